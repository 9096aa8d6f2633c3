# SPDX-License-Identifier: Apache-2.0
"""Restricts by Landlock what a process may read, write and reach from now on (kernel 5.13 and later).

Rights are bits of linux/landlock.h; each ABI level added some, and a request for one that the kernel does not know is
an error, so the sets are reduced to the level found.
"""

from __future__ import annotations

import ctypes
import os
import site
import stat
import struct
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache

import verl_kernel
from verl_kernel.env.sandbox.libc import LIBC, refusal

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEV}
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_ABI, _NET_ALL = 4, 0b11
_SCOPE_ABI, _SCOPE_ALL = 6, 0b11
_THREADS = "/proc/self/task"


def abi() -> int:
    """Return the ABI level of the running kernel; 0 without Landlock."""
    return max(0, int(LIBC.syscall(_CREATE, None, 0, _VERSION_FLAG)))


def restrict(writable: Sequence[str], readable_too: Sequence[str] = (), may_name_threads: bool = False) -> None:
    """Allow reads of Python's files and `readable_too`, all access beneath `writable`; no TCP, no foreign signals.

    With `may_name_threads`, also allow writes to the files of this process's threads, the only ones it owns in /proc.

    Raises:
        OSError: the kernel has no Landlock or refuses.
    """
    level = abi()
    if level == 0:
        raise OSError(ctypes.get_errno(), "the kernel has no Landlock")
    rights = sum(bits for since, bits in _FILE_RIGHTS_BY_ABI.items() if since <= level)
    ruleset = _create(level, rights)
    try:
        for path in (*readable(), *readable_too):
            _allow(ruleset, path, _READ & rights)
        for path in (*writable, "/dev/null"):
            _allow(ruleset, path, rights)
        if may_name_threads:
            # Never closed: the kernel drops a rule with its inode, and the inode when no process holds it open.
            os.open(_THREADS, os.O_PATH | os.O_CLOEXEC)
            _allow(ruleset, _THREADS, (_WRITE_FILE | _TRUNCATE) & rights)
        _call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


@lru_cache(maxsize=1)
def readable() -> tuple[str, ...]:
    """Return the folders of this Python and its libraries, and the few system files that they read."""
    package = os.path.dirname(os.path.abspath(verl_kernel.__file__))
    python = (sys.prefix, sys.base_prefix, package, *site.getsitepackages(), *_libraries())
    system = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc/self", "/proc/meminfo", "/proc/cpuinfo")
    devices = ("/dev/urandom", "/dev/random", "/dev/zero", "/sys/devices/system/cpu")
    return tuple(path for path in dict.fromkeys((*python, *system, *devices)) if os.path.exists(path))


def _libraries() -> list[str]:
    """Return the folders of libraries also outside site-packages: they load parts, and run programs, on first use.

    Where an installer laid links (`uv pip install --link-mode=symlink`), the folders that they lead to count too.
    """
    files = [getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "triton", "numpy")]
    libraries = [way(path) for path in files if path for way in (os.path.abspath, os.path.realpath)]
    return [os.path.dirname(os.path.dirname(path)) for path in libraries]


def _create(level: int, rights: int) -> int:
    net = _NET_ALL if level >= _NET_ABI else 0
    scope = _SCOPE_ALL if level >= _SCOPE_ABI else 0
    size = 8 if level < _NET_ABI else 16 if level < _SCOPE_ABI else 24
    attributes = struct.pack("=QQQ", rights, net, scope)[:size]
    return _call(_CREATE, attributes, ctypes.c_size_t(size), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _ON_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result = int(LIBC.syscall(number, *arguments))
    if result < 0:
        raise refusal(f"system call {number}")
    return result


# A runner's environment, and cached values of its zygote that it must reset.
#
# Python, torch and Triton read their directories from the environment when they need one, so new variables suffice;
# values cached in the zygote are reset here, each with its reason.


_OWN = ("HOME", "TMPDIR", "TRITON_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Variables set to the scratch directory; without TRITON_HOME Triton would use the home it was imported under."""


def environment(base: dict[str, str], scratch: str) -> dict[str, str]:
    """Return the runner's whole environment: the device's variables and private directories."""
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **base, **dict.fromkeys(_OWN, scratch)}


def settle(base: dict[str, str], scratch: str) -> None:
    """Set this process's environment to that of a runner with the directory `scratch`."""
    private = environment(base, scratch)
    os.environ.clear()
    os.environ.update(private)
    tempfile.tempdir = None  # tempfile cached the judge's directory if anything made a temporary file in the zygote
