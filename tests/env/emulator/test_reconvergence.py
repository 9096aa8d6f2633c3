# SPDX-License-Identifier: Apache-2.0
"""The order of a kernel's blocks, against its definition, on random graphs."""

from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.emulator.flow.reconvergence import ranks


@st.composite
def graphs(draw):
    """Blocks that each jump or branch, among them loops with one entry and with several."""
    count = draw(st.integers(1, 12))
    return [draw(st.lists(st.integers(0, count), max_size=2)) for _ in range(count)]


def reached(successors, start, without):
    """Blocks that lie on some way from a block that does not pass another."""
    found, ahead = set(), [start]
    while ahead:
        for following in successors[ahead.pop()]:
            if following < len(successors) and following != without and following not in found:
                found.add(following)
                ahead.append(following)
    return found


@given(graphs())
def test_each_block_has_its_own_rank_and_the_entry_is_first(successors):
    order = ranks(successors)
    assert sorted(order) == [*range(len(successors))]
    assert order[0] == 0


@given(graphs())
def test_a_way_goes_back_only_to_the_head_of_a_loop_around_it(successors):
    order = ranks(successors)
    everywhere = {0, *reached(successors, 0, None)}
    for block in everywhere:
        for following in successors[block]:
            if following < len(successors) and order[following] <= order[block]:
                assert block == following or block in reached(successors, following, None)


@given(graphs())
def test_what_a_loop_leaves_to_comes_after_the_whole_loop(successors):
    order = ranks(successors)
    everywhere = {0, *reached(successors, 0, None)}
    for block in everywhere:
        loop = {other for other in reached(successors, block, None) if block in reached(successors, other, None)}
        for inside in loop & everywhere:
            for following in successors[inside]:
                if following < len(successors) and following not in loop:
                    assert order[following] > max(order[other] for other in loop)


def test_two_ways_meet_after_both():
    assert ranks([[1, 2], [3], [3], [4]])[3] == 3


def test_a_rotated_loop_meets_after_the_block_where_lanes_part():
    entry, meet, body, other, done = 0, 1, 2, 3, 4
    order = ranks([[body], [done, body], [meet, other], [meet], [5]])
    assert order[entry] < order[body] < order[other] < order[meet] < order[done]


def test_thousands_of_blocks_in_a_row_need_no_deep_stack():
    assert ranks([[number + 1] for number in range(5000)]) == [*range(5000)]
