# SPDX-License-Identifier: Apache-2.0
"""Calls of the C library for which Python has no function."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38


def prctl(option: int, value: int, argument: bytes | None = None) -> None:
    """Set one attribute of this process (raises OSError)."""
    if LIBC.prctl(option, ctypes.c_ulong(value), argument, None, None) != 0:
        raise refusal(f"prctl {option}")


def refusal(call: str) -> OSError:
    """Return the error of the call that has just failed."""
    return OSError(ctypes.get_errno(), f"{call} is refused")


_HUGEPAGE, _COLLAPSE, _HUGE = 14, 25, 2 << 20
"""Advice numbers of `madvise` (include/uapi/asm-generic/mman-common.h), and bytes of a huge page."""
_PRIVATE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw.p \S+ 00:00 0\s*(\[heap\])?$", re.MULTILINE)


def collapse() -> None:
    """Move this process's private memory to huge pages, where the kernel can.

    A fork copies one table entry for each page, and the forked process frees them at its end. The memory of torch and
    Triton has 40,000 small pages, or a hundred huge ones. A process that writes to a huge page copies 4 kB of it.
    """
    for mapping in _PRIVATE.finditer(Path("/proc/self/maps").read_text()):
        first, last = -(-int(mapping[1], 16) // _HUGE) * _HUGE, int(mapping[2], 16) // _HUGE * _HUGE
        if first < last and LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _HUGEPAGE) == 0:
            LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)
