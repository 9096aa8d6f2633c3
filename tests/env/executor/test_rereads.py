# SPDX-License-Identifier: Apache-2.0
"""How far apart blocks read the same bytes again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.executor.ptx import aligned, buffer, entry
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.executor.rereads import _distinct_between

MEGABYTE, TILE = 1 << 20, 4096
READ = (
    ".reg .b64 %in, %out, %o; .reg .b32 %t, %b, %x, %tile; .reg .pred %p;"
    "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; {tile}"
    "mul.wide.u32 %o, %tile, 4096; add.u64 %in, %in, %o; mul.wide.u32 %o, %t, 16; add.u64 %in, %in, %o;"
    "{loads} mul.wide.u32 %o, %b, 4; add.u64 %out, %out, %o; setp.eq.u32 %p, %t, 0; @%p st.global.b32 [%out], %x; ret;"
)
"""Each block reads a tile of 4 kB."""
LOADS = "".join(f"ld.global.b32 %x, [%in+{at}];" for at in range(0, TILE, 512))
COPIES = "".join(
    f"cp.async.cg.shared.global [%s], [%in+{at}], 16;" for at in range(0, TILE, 512)
)  # fmt: skip
COPIES = f".reg .b32 %s; mul.lo.u32 %s, %t, 16; {COPIES} cp.async.wait_all; mov.u32 %x, 0;"
NEAR, FAR = "shr.u32 %tile, %b, 1;", "and.b32 %tile, %b, {};"


def read(megabytes: int, tile: str, seed: int | None = None, loads: str = LOADS) -> tuple[tuple[int, int], ...]:
    """What `Rereads` finds where two blocks read each tile."""
    tiles = megabytes * MEGABYTE // TILE
    kernel = Kernel(entry(READ.format(tile=tile.format(tiles - 1), loads=loads), 2), 1, 512)
    source, out = aligned(megabytes * MEGABYTE), aligned(8 * tiles, np.uint32)
    order = None if seed is None else np.random.default_rng(seed).permutation(2 * tiles)
    arguments, buffers = [source.ctypes.data, out.ctypes.data], [buffer(source), buffer(out)]
    return kernel.launch((2 * tiles,), arguments, buffers, order=order).rereads


@pytest.mark.parametrize("megabytes", [8, 64])
def test_what_the_next_block_reads_again_is_near(megabytes):
    assert read(megabytes, NEAR) == ()


@pytest.mark.parametrize("loads", [LOADS, COPIES], ids=["loads", "copies"])
@pytest.mark.parametrize("megabytes", [8, 64])
def test_what_is_read_again_after_all_else_is_as_far_as_all_else(megabytes, loads):
    ((others, again),) = read(megabytes, FAR, loads=loads)
    assert others == pytest.approx(megabytes * MEGABYTE, rel=0.25)
    assert again == pytest.approx(megabytes * MEGABYTE, rel=0.15)


@pytest.mark.parametrize("tile", [NEAR, FAR])
def test_the_order_in_which_blocks_run_changes_nothing_but_the_sample(tile):
    plain, drawn = read(64, tile), read(64, tile, seed=1)
    assert [others for others, _ in drawn] == pytest.approx([others for others, _ in plain], rel=0.2)
    assert [size for _, size in drawn] == pytest.approx([size for _, size in plain], rel=0.15)


def test_what_fits_into_every_cache_is_not_looked_at():
    assert read(2, FAR) == ()


@given(st.lists(st.integers(0, 6), max_size=40))
def test_other_places_between_are_counted_once(places):
    counted = []
    for number, place in enumerate(places):
        before = [other for other in range(number) if places[other] == place]
        counted.append(len({*places[before[-1] + 1 : number]}) if before else 0)
    assert _distinct_between(places) == counted
