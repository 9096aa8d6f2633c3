# SPDX-License-Identifier: Apache-2.0
"""Namespaces in which a process sees no other processes, files of /proc or networks than its own.

A process outside of them ends all processes inside at once: they die with the first one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from verl_kernel.env.sandbox.libc import LIBC, PR_SET_DUMPABLE, prctl, refusal

NAME = "process_namespace"
"""Name in reports of mechanisms in force."""
_NEW = 0x20000000 | 0x00020000 | 0x40000000 | 0x08000000
"""Flags of clone(2) for processes, mounts, networks and System V's IPC."""
_NEW_USER = 0x10000000
_MOST_PROCESSES, _SINCE = 512, (6, 14)
"""Limit on processes and threads, and the version of Linux since which a namespace has a limit of its own."""
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _RECURSIVE, _PRIVATE = 2, 4, 8, 1 << 14, 1 << 18


def leave() -> None:
    """Put all later children of this process into new namespaces; `furnish` must follow in the first child.

    Raises:
        OSError: the kernel refuses.
    """
    if LIBC.unshare(_NEW) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    prctl(PR_SET_DUMPABLE, 1)  # else its files under /proc belong to root
    if LIBC.unshare(_NEW_USER | _NEW) != 0:
        raise refusal("unshare")
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{user} {user} 1")
    (own / "gid_map").write_text(f"{group} {group} 1")


def furnish(folder: str, megabytes: int) -> None:
    """Mount this namespace's own /proc and an empty file system in memory over a folder, and limit its processes.

    Linux counts no processes of root against a limit of a user, hence the namespace's.

    Raises:
        OSError: the kernel refuses.
    """
    _mount("none", "/", "", _RECURSIVE | _PRIVATE, "")
    _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS, "")
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= _SINCE:
        Path("/proc/sys/kernel/pid_max").write_text(str(_MOST_PROCESSES))
    _mount("tmpfs", folder, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={megabytes}m,mode=0700")


def are_granted() -> bool:
    """Whether a process on this machine can have such namespaces: a child tries."""
    with tempfile.TemporaryDirectory() as folder:
        return _succeeds(partial(_can_leave, folder))


def _can_leave(folder: str) -> bool:
    leave()
    return _succeeds(partial(_can_furnish, folder))


def _can_furnish(folder: str) -> bool:
    furnish(folder, megabytes=1)
    return True


def _succeeds(attempt: Callable[[], bool]) -> bool:
    """Whether an attempt returns true in a child of this process."""
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):  # the copy must not return to its caller, whatever is raised
            status = int(not attempt())
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    if LIBC.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        raise refusal(f"mount {target}")
