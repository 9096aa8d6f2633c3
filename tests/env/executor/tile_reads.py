# SPDX-License-Identifier: Apache-2.0
"""Launches of which two blocks read each tile of 4 kB: the next one, or one after all others."""

from collections.abc import Callable, Sequence

import numpy as np

from tests.env.executor.ptx import aligned, buffer, entry
from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.kernel import Kernel

MEGABYTE, TILE = 1 << 20, 4096
READ = (
    ".reg .b64 %in, %out, %o; .reg .b32 %t, %b, %x, %tile; .reg .pred %p;"
    "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; {tile}"
    "mul.wide.u32 %o, %tile, 4096; add.u64 %in, %in, %o; mul.wide.u32 %o, %t, 16; add.u64 %in, %in, %o;"
    "{loads} mul.wide.u32 %o, %b, 4; add.u64 %out, %out, %o; setp.eq.u32 %p, %t, 0; @%p st.global.b32 [%out], %x; ret;"
)
LOADS = "".join(f"ld.global.b32 %x, [%in+{at}];" for at in range(0, TILE, 512))
COPIES = "".join(
    f"cp.async.cg.shared.global [%s], [%in+{at}], 16;" for at in range(0, TILE, 512)
)  # fmt: skip
COPIES = f".reg .b32 %s; mul.lo.u32 %s, %t, 16; {COPIES} cp.async.wait_all; mov.u32 %x, 0;"
NEAR, FAR = "shr.u32 %tile, %b, 1;", "and.b32 %tile, %b, {};"


def launches(
    megabytes: int, tile: str, loads: str = LOADS
) -> tuple[Callable[[Sequence[int] | None], LaunchCount], int]:
    """What runs blocks of a launch, all without their numbers; and how many there are."""
    tiles = megabytes * MEGABYTE // TILE
    kernel = Kernel(entry(READ.format(tile=tile.format(tiles - 1), loads=loads), 2), 1, 512)
    source, out = aligned(megabytes * MEGABYTE), aligned(8 * tiles, np.uint32)

    def run(order: Sequence[int] | None) -> LaunchCount:
        arguments, buffers = [source.ctypes.data, out.ctypes.data], [buffer(source), buffer(out)]
        return kernel.launch((2 * tiles,), arguments, buffers, order=order)

    return run, 2 * tiles
