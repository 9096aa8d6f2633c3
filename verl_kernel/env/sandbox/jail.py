# SPDX-License-Identifier: Apache-2.0
"""Restricts a runner before it loads a candidate, by an ordered list of mechanisms, each probed by applying it.

A mechanism that the kernel refuses is left out of the report, never silently replaced: the judge puts the list of
mechanisms in force into every result and refuses to evaluate if one of `require_isolation` is missing.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl_kernel.env.sandbox import isolation, landlock, seccomp
from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.sandbox.libc import LIBC, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, prctl, refusal

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_FIRST_UID, _UIDS = 61184, 4336
"""First user id and size of systemd's range for temporary users."""
_CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Limits:
    """Resources that the judge and the device grant one runner."""

    scratch: str
    """Private directory: the runner's cwd, HOME, TMPDIR and Triton cache."""
    memory_mb: int
    profile: IsolationProfile
    number: int | None = None
    """From which its user is chosen; None for its process id, which is no choice in a namespace of processes."""


@dataclass(frozen=True)
class Mechanism:
    """One way to restrict a process; `apply` raises OSError if the machine does not offer it."""

    name: str
    apply: Callable[[Limits], None]


def leave_network() -> bool:
    """Move this process and its future children to a new network namespace (9 ms); returns whether that worked."""
    flags = (_NEW_NETWORK, _NEW_USER | _NEW_NETWORK)
    return _is_alone() or any(LIBC.unshare(flag) == 0 for flag in flags)


def _is_alone() -> bool:
    """Whether the only network interface is an unused loopback."""
    interfaces = [line.split() for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return all(name == "lo:" and received == "0" for name, received, *_ in interfaces)


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when the thread that forked it ends."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def hide_memory() -> None:
    """Deny other processes of the same user access to this process's memory (no ptrace, no /proc/<pid>/mem)."""
    prctl(PR_SET_DUMPABLE, 0)


def enter(limits: Limits) -> list[str]:
    """Apply every mechanism in order to this process; returns the names of those in force."""
    os.chdir(limits.scratch)
    return [mechanism.name for mechanism in MECHANISMS if _holds(mechanism, limits)]


def _holds(mechanism: Mechanism, limits: Limits) -> bool:
    try:
        mechanism.apply(limits)
    except OSError:
        return False
    return True


def _group(limits: Limits) -> None:
    os.setsid()


def _death_signal(limits: Limits) -> None:
    parent = os.getppid()
    die_with_parent()
    if os.getppid() != parent:  # the parent ended before the signal was set
        os._exit(1)


def _rlimits(limits: Limits) -> None:
    profile = limits.profile
    caps = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: profile.file_bytes,
        resource.RLIMIT_NOFILE: profile.open_files,
    }
    if profile.processes is not None:
        caps[resource.RLIMIT_NPROC] = profile.processes
    if profile.limits_addresses:
        caps[resource.RLIMIT_AS] = _address_space() + (limits.memory_mb << 20)
    for kind, cap in caps.items():
        resource.setrlimit(kind, (cap, cap))
    _prefer_as_oom_victim()


def _prefer_as_oom_victim() -> None:
    """Make the kernel's OOM killer choose a runner before its judge or a trainer."""
    prctl(PR_SET_DUMPABLE, 1)  # while its memory is hidden, its files under /proc belong to root
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    hide_memory()


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _no_new_privs(limits: Limits) -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _capabilities(limits: Limits) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if LIBC.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise refusal("capset")


def _network(limits: Limits) -> None:
    if not leave_network():
        raise PermissionError("the kernel refuses a network namespace")


def _own_user(limits: Limits) -> None:
    """Switch to a separate user, if the judge is root and other users can read Python's files."""
    if os.geteuid() != 0:
        raise PermissionError("only root can become another user")
    if closed := closed_paths():
        raise PermissionError(f"other users cannot read {closed[0]}")
    uid = _FIRST_UID + (os.getpid() if limits.number is None else limits.number) % _UIDS
    for path in (limits.scratch, *(entry.path for entry in os.scandir(limits.scratch))):
        os.chown(path, uid, uid)
    os.setgroups(isolation.groups(limits.profile.nodes))
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


@functools.cache
def closed_paths() -> list[str]:
    """Return Python's paths that other users cannot read; a zygote calls this before it forks, so its forks know it."""
    return [path for path in (*sys.path, sys.prefix, sys.base_prefix) if os.path.exists(path) and not _is_open(path)]


def _is_open(path: str) -> bool:
    return all(os.stat(part).st_mode & 0o001 for part in (path, *map(str, Path(path).parents)) if os.path.isdir(part))


def _landlock(limits: Limits) -> None:
    nodes, readable = map(isolation.existing, (limits.profile.nodes, limits.profile.readable))
    landlock.restrict([limits.scratch, *nodes], readable, limits.profile.may_name_threads)


def _seccomp(limits: Limits) -> None:
    seccomp.restrict(limits.profile)


MECHANISMS = (
    Mechanism("process_group", _group),
    Mechanism("network_namespace", _network),
    Mechanism("own_user", _own_user),
    Mechanism("death_signal", _death_signal),  # after own_user: a change of user clears it
    Mechanism("no_dump", lambda limits: hide_memory()),
    Mechanism("rlimits", _rlimits),
    Mechanism("no_new_privs", _no_new_privs),
    Mechanism("landlock", _landlock),
    Mechanism("no_capabilities", _capabilities),
    Mechanism("seccomp", _seccomp),
)
"""Mechanisms in the order of application: the last one forbids the calls that the others need."""
