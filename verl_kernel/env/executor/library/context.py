# SPDX-License-Identifier: Apache-2.0
"""Layout of what a launch hands to native code: words of 64 bits."""

from __future__ import annotations

(
    PARAMETERS,
    SHARED,
    SHARED_BYTES,
    TABLE,
    BUFFERS,
    SITES,
    COUNTS,
    FAULT,
    GRID_X,
    GRID_Y,
    GRID_Z,
    LOCAL,
    FUEL,
    ENTRY,
    WARPS,
    FRAME,
    USES,
    TOTALS,
    WORK,
    CACHE,
) = range(20)
"""Pointers to the parameters, shared memory, the table of buffers, the sites' words, the blocks' counters and the
fault; lengths; the grid; local memory of the block's lanes; how many jumps back are left; the kernel's function, warps
of a block, bytes of a warp's frame; what library/traffic.py counts: of the block that runs, of all blocks, the launch's
work, the block's cache."""
CONTEXT_WORDS = 24

START, SIZE, WRITTEN = range(3)
"""Words of a row of the table: first address and length of a buffer, and the difference from its addresses to those of
the bytes that say what was written; 0 where all is."""
ROW_WORDS = 4

KIND, SITE, PLACE, BLOCK, WARP, LANE, MOMENT = range(7)
"""Words of a fault: what it was (0: none), a pointer to the site's words, the address, who met it."""
FAULT_WORDS = 8

OUT_OF_BOUNDS, MISALIGNED, OUT_OF_SHARED, OUT_OF_LOCAL, DIVERGENT, OUT_OF_FUEL, STOPPED = range(1, 8)
"""Kinds of faults."""
