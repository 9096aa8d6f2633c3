# SPDX-License-Identifier: Apache-2.0
"""Memory of a process that forks, in fewer and larger pages."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from verl_kernel.env.sandbox.libc import LIBC

_HUGEPAGE, _COLLAPSE, _HUGE = 14, 25, 2 << 20
"""Numbers of advice to `madvise` (include/uapi/asm-generic/mman-common.h), and bytes of a huge page."""
_PRIVATE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw.p \S+ 00:00 0\s*(\[heap\])?$", re.MULTILINE)


def collapse() -> None:
    """Put this process's own memory into huge pages, where the kernel can.

    A fork copies one table entry for each page, and the forked process gives them back at its end. The memory of torch
    and Triton has 40,000 small pages, or a hundred huge ones. A process that writes to a huge page copies 4 kB of it.
    """
    for found in _PRIVATE.finditer(Path("/proc/self/maps").read_text()):
        first, last = -(-int(found[1], 16) // _HUGE) * _HUGE, int(found[2], 16) // _HUGE * _HUGE
        if first < last and LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _HUGEPAGE) == 0:
            LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _COLLAPSE)
