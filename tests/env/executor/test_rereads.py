# SPDX-License-Identifier: Apache-2.0
"""How far apart blocks read the same bytes again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.executor.tile_reads import COPIES, FAR, LOADS, MEGABYTE, NEAR, launches
from verl_kernel.env.executor.rereads import _distinct_between


def read(megabytes: int, tile: str, seed: int | None = None, loads: str = LOADS) -> tuple[tuple[int, int], ...]:
    """What `Rereads` finds where two blocks read each tile."""
    run, blocks = launches(megabytes, tile, loads)
    return run(None if seed is None else np.random.default_rng(seed).permutation(blocks)).rereads


@pytest.mark.parametrize("megabytes", [8, 64])
def test_what_the_next_block_reads_again_is_near(megabytes):
    assert read(megabytes, NEAR) == ()


@pytest.mark.parametrize("loads", [LOADS, COPIES], ids=["loads", "copies"])
@pytest.mark.parametrize("megabytes", [8, 64])
def test_a_reread_after_all_else_is_as_far_as_all_else(megabytes, loads):
    ((others, again),) = read(megabytes, FAR, loads=loads)
    assert others == pytest.approx(megabytes * MEGABYTE, rel=0.25)
    assert again == pytest.approx(megabytes * MEGABYTE, rel=0.15)


@pytest.mark.parametrize("tile", [NEAR, FAR])
def test_the_order_of_blocks_changes_only_the_sample(tile):
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
