# SPDX-License-Identifier: Apache-2.0
"""Which stored blocks are loaded ones, moved: against an oracle that goes through the lanes one by one."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_kernel.env.devices.cpu.blocks import MANY, Block, moved_from

FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 3.25, float("nan"), float("inf")])
BLOCKS = st.lists(st.tuples(FLOATS, st.booleans()), min_size=1, max_size=5)


def block(lanes):
    values, mask = zip(*lanes, strict=True)
    return Block(np.array(values, dtype=np.float32), np.array(mask))


def same(one, other):
    return one == other or (one != one and other != other)


def all_same(some, others):
    return len(some) == len(others) and all(map(same, some, others))


def is_moved(stored, loaded):
    """In place, in order, or as a repetition; blocks this small count as nothing else."""
    wanted = [value for value, active in stored if active]
    given = [value for value, active in loaded if active]
    places = [place for place, (_, active) in enumerate(stored) if active]
    if len(stored) == len(loaded) and all(same(stored[place][0], loaded[place][0]) for place in places):
        return True
    if not given or len(wanted) % len(given):
        return False
    times = len(wanted) // len(given)
    return all_same(wanted, given * times) or all_same(wanted, [value for value in given for _ in range(times)])


@settings(max_examples=500)
@given(BLOCKS.filter(lambda lanes: any(active for _, active in lanes)), BLOCKS)
def test_small_blocks_move_in_order_only(stored, loaded):
    assert (moved_from(block(stored), [block(loaded)]) is not None) == is_moved(stored, loaded)


@given(st.integers(0, 2**32 - 1), st.integers(MANY, 40))
def test_large_blocks_move_in_any_order(seed, size):
    random = np.random.default_rng(seed)
    values = random.standard_normal(size).astype(np.float32)
    others = values + np.float32(0.5)
    order = random.permutation(size)
    loads = [Block(others), Block(values)]
    assert moved_from(Block(values[order]), loads) == 1
    changed = values[order]
    changed[random.integers(size)] += 1.0
    assert moved_from(Block(changed), loads) is None


def test_no_permutation_of_few_lanes_but_the_same_one():
    values = np.arange(4, dtype=np.float32) ** 2 - 3
    found = [order for order in permutations(range(4)) if moved_from(Block(values[list(order)]), [Block(values)]) == 0]
    assert found == [(0, 1, 2, 3)]


LANES = np.random.default_rng(0).standard_normal(64).astype(np.float32)


@pytest.mark.parametrize(
    ("stored", "loaded"),
    [
        (LANES * np.float32(1), [LANES]),
        (LANES + np.float32(0), [LANES]),
        (LANES[::-1], [LANES]),
        (LANES.reshape(8, 8).T, [LANES.reshape(8, 8)]),
        (LANES[:32], [LANES]),
        (LANES[1::2], [LANES]),
        (np.repeat(LANES, 2), [LANES]),
        (np.broadcast_to(LANES, (4, 64)), [LANES]),
        (np.full(16, LANES[0]), [LANES[:1]]),
        (np.concatenate([LANES[32:], LANES[:32]]), [LANES[:32], LANES[32:]]),
        (LANES, [LANES.astype(np.float64)]),
        (LANES.astype(np.float16), [LANES]),
        (np.arange(64, dtype=np.int64), [np.arange(64, dtype=np.int32)]),
        (np.sort(LANES)[::-1], [np.sort(LANES)]),
    ],
)
def test_moves(stored, loaded):
    assert moved_from(Block(stored), list(map(Block, loaded))) is not None


@pytest.mark.parametrize(
    ("stored", "loaded"),
    [
        (np.maximum(LANES, 0), [LANES]),
        (np.maximum(LANES[:32], LANES[32:]), [LANES[:32], LANES[32:]]),
        (-LANES, [LANES]),
        (np.sort(LANES), [LANES]),
        (np.sort(LANES)[::-1], [LANES]),
        (LANES.max()[None], [LANES]),
        (np.argsort(LANES), [LANES]),
        (LANES.reshape(32, 2).max(1), [LANES]),
        (LANES * np.float32(1 + 2**-23), [LANES]),
        (LANES, []),
        (np.arange(64, dtype=np.int32), [np.arange(64, dtype=np.float32)]),
    ],
)
def test_what_computes(stored, loaded):
    assert moved_from(Block(stored), list(map(Block, loaded))) is None


def test_only_active_lanes_count():
    mask = np.arange(64) < 40
    garbage = np.where(mask, LANES, np.float32(7))
    assert moved_from(Block(garbage, mask), [Block(LANES)]) == 0
    assert moved_from(Block(garbage), [Block(LANES)]) is None
    assert moved_from(Block(garbage[::-1], mask[::-1]), [Block(LANES, mask)]) == 0
