# SPDX-License-Identifier: Apache-2.0
"""How far apart programs of a large launch read again, beside the same launch run whole."""

import numpy as np
import pytest

from tests.env.executor.tile_reads import FAR, MEGABYTE, NEAR, launches
from verl_kernel.env.execution.sampling import MOVED, Sampler, Windows

STRIPES = "shr.u32 %x, %b, 6; mul.lo.u32 %x, %x, 32; and.b32 %tile, %b, 31; add.u32 %tile, %tile, %x;"
"""Each tile is read again 32 blocks later."""
LITTLE_AGAIN = "setp.gt.u32 %p, %b, {0}; @%p and.b32 %b, %b, 15; mov.u32 %tile, %b; mov.u32 %b, %ctaid.x;"
"""The first half of the blocks read all tiles, the other half a few, over and over."""
SIZE = 512


@pytest.fixture
def found(request):
    """Bytes that windows, and the whole launch, find further away than a cache of 50 MB."""
    run, blocks = launches(SIZE, request.param)
    ran = []

    def some(numbers):
        ran.append(len(numbers))
        return run(numbers)

    count = run(None)
    found = Windows(some, (blocks, 1, 1), np.random.default_rng(0)).rereads(count)
    far = [sum(size for distance, size in rows if distance > 50 << 20) for rows in (found, count.rereads)]
    return *far, sum(ran) / blocks


@pytest.mark.parametrize("found", [NEAR, STRIPES], indirect=True)
def test_what_neighbours_read_again_is_near(found):
    assert found[0] == 0


@pytest.mark.parametrize("found", [FAR], indirect=True)
def test_what_is_read_again_far_away_is_found(found):
    assert found[0] == pytest.approx(SIZE * MEGABYTE, rel=0.35)  # places that two tiles share seem read again


@pytest.mark.parametrize("found", [FAR], indirect=True)
def test_the_whole_launch_tells_the_same(found):
    assert found[0] == pytest.approx(found[1], rel=0.35)


@pytest.mark.parametrize("found", [LITTLE_AGAIN], indirect=True)
def test_what_is_new_everywhere_has_not_been_read_before(found):
    assert found[0] < 0.2 * SIZE * MEGABYTE


@pytest.mark.parametrize("found", [NEAR, FAR], indirect=True)
def test_windows_are_short(found):
    assert found[2] <= 3 * MOVED / (SIZE * MEGABYTE)


@pytest.mark.parametrize(("tile", "is_far"), [(NEAR, False), (FAR, True)])
def test_the_count_of_a_sampled_launch_has_them(tile, is_far):
    run, blocks = launches(SIZE, tile)
    nothing = ("nothing", 0.0)
    count = Sampler(run, (blocks, 1, 1), np.random.default_rng(0), lambda count: count, lambda *both: nothing).count()
    far = sum(size for distance, size in count.rereads if distance > 50 << 20)
    assert (far > 0.05 * SIZE * MEGABYTE) == is_far
