# SPDX-License-Identifier: Apache-2.0
"""Memory of a process that forks, in fewer and larger pages."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from verl_kernel.env.sandbox.libc import LIBC

_HUGE = 2 << 20
_HUGEPAGE, _COLLAPSE = 14, 25
"""Advice of `madvise`: huge pages from now on, and what is there put into such."""
_PRIVATE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw.p \S+ 00:00 0\s*(\[heap\])?$", re.MULTILINE)


def collapse() -> None:
    """Put this process's own memory into huge pages, where the kernel can.

    A fork copies an entry for each page, and its end takes them back: 40,000 for the memory of torch and Triton, or a
    hundred. Whoever writes to such a page copies a small one.
    """
    for found in _PRIVATE.finditer(Path("/proc/self/maps").read_text()):
        first, last = -(-int(found[1], 16) // _HUGE) * _HUGE, int(found[2], 16) // _HUGE * _HUGE
        if first < last and LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _HUGEPAGE) == 0:
            LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)
