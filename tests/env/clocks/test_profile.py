# SPDX-License-Identifier: Apache-2.0
"""Coverage: whose kernels took the time."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.profile import profile_events
from verl_kernel.env.result import Launch
from verl_kernel.env.tamper.trace_checks import Parts, computes, latest_known, lazy_flags, own_work
from verl_kernel.env.trace import TraceEvent

OWN = TraceEvent("launch", "mine", (2, 1, 1), bytes=6, source="candidate.py")
FOREIGN = TraceEvent("launch", "theirs", (1, 1, 1), bytes=2, source="library.py")
FAILED = TraceEvent("launch", "mine", (2, 1, 1), bytes=1, source="candidate.py", failed=True)
OP = TraceEvent("op", "aten::add.Tensor", bytes=4)


def profile(*events, idle=(), moves_count=False, **options):
    work = own_work(events, "candidate.py", events, idle, moves_count)
    return profile_events(events, "candidate.py", lambda event: float(event.bytes), work, **options)


def launch(stored, computed, name="mine", size=6):
    return TraceEvent("launch", name, (1, 1, 1), bytes=size, source="candidate.py", stored=stored, computed=computed)


def test_only_the_candidates_own_kernels_count():
    seen = profile(OWN, FOREIGN, OP, OP)
    assert (seen.num_custom_kernels, seen.num_total_kernels) == (1, 4)
    assert seen.number_coverage == 0.25
    assert seen.time_coverage == 6 / 16
    assert seen.fallback_ops == {"aten::add.Tensor": 2}


def test_an_op_named_like_a_kernel_is_still_an_op():
    seen = profile(TraceEvent("op", "mine", bytes=1, source=""), FOREIGN)
    assert seen.num_custom_kernels == 0
    assert seen.time_coverage == 0.0


def test_a_launch_that_raised_is_not_work_done():
    seen = profile(FAILED, OP)
    assert seen.num_custom_kernels == 0
    assert seen.num_total_kernels == 2


def test_launches_are_grouped_by_kernel_and_grid():
    other = TraceEvent("launch", "mine", (4, 1, 1), source="candidate.py")
    assert profile(OWN, other, OWN).launches == (
        Launch(name="mine", grid=(2, 1, 1), count=2),
        Launch(name="mine", grid=(4, 1, 1), count=1),
    )


def test_top_kernels_are_summed_and_sorted():
    assert profile(OP, OWN, OP, FOREIGN, top=2).top_kernels == (("aten::add.Tensor", 8.0), ("mine", 6.0))


def test_nothing_ran():
    seen = profile()
    assert (seen.time_coverage, seen.number_coverage, seen.num_total_kernels) == (0.0, 0.0, 0)


@given(st.lists(st.sampled_from([OWN, FOREIGN, FAILED, OP]), min_size=1))
def test_coverage_is_a_share(events):
    seen = profile(*events)
    assert 0 <= seen.time_coverage <= 1
    assert 0 <= seen.number_coverage <= 1
    assert (seen.number_coverage == 1) == all(event is OWN for event in events)
    assert seen.time_coverage == pytest.approx(
        sum(event.bytes for event in events if event is OWN) / sum(event.bytes for event in events)
    )


def test_what_is_moved_counts_on_neither_side():
    seen = profile(launch(8, 0), launch(8, 8), OP, OP)
    assert seen.number_coverage == 1 / 3
    assert seen.time_coverage == 6 / 14
    assert seen.num_custom_kernels == 2
    assert seen.num_total_kernels == 4


def test_a_launch_counts_as_far_as_it_computes():
    seen = profile(launch(8, 2), OP)
    assert seen.number_coverage == 0.25 / 1.25
    assert seen.time_coverage == pytest.approx(1.5 / (6 - 4.5 + 4))


def test_moving_alone_covers_nothing_unless_it_is_the_task():
    assert profile(launch(8, 0), OP).time_coverage == profile(launch(8, 0), OP).number_coverage == 0.0
    assert profile(launch(8, 0)).time_coverage == 0.0
    assert profile(launch(8, 0), OP, moves_count=True).time_coverage == 0.6


def test_a_launch_without_effect_costs_and_covers_nothing():
    seen = profile(launch(8, 8), launch(8, 8, "junk"), OP, idle={1})
    assert seen.number_coverage == 1 / 3
    assert seen.time_coverage == 6 / 16


def test_a_launch_that_stores_nothing_covers_nothing():
    assert profile(launch(0, 0), OP).time_coverage == 0.0


def test_the_latest_forward_knows_best():
    first, last = [launch(8, 8), OP], [launch(8, 0), OP]
    assert own_work(first, "candidate.py", last, (), False).covered == (0.0, 0.0)
    other = [launch(8, 0, "another"), OP]
    assert own_work(first, "candidate.py", other, (), False).covered == (1.0, 0.0)


def test_another_mode_shows_more_of_the_same_code():
    moves, computes = (replace(launch(8, computed), variant="code") for computed in (0, 8))
    assert latest_known([moves, OP], [computes, OP], "candidate.py") == [computes, OP]


def test_another_mode_shows_nothing_of_other_code_or_other_work():
    moves, computes = (replace(launch(8, computed), variant="code") for computed in (0, 8))
    for latest in ([replace(computes, variant="other"), OP], [computes], [replace(computes, name="another"), OP]):
        assert latest_known([moves, OP], latest, "candidate.py") == [moves, OP]


def test_an_unpriced_op_leaves_no_time_coverage():
    seen = profile(launch(8, 8), TraceEvent("op", "aten::_fft_r2c", bytes=4, priced=False))
    assert seen.time_coverage is None
    assert seen.number_coverage == 0.5


@pytest.mark.parametrize(
    ("events", "flags"),
    [
        ([launch(8, 0), OP], ("only_moves",)),
        ([launch(8, 8), OP], ()),
        ([OWN, OP], ()),  # a device that does not see stores
        ([FAILED, launch(8, 0)], ("launch_raised", "only_moves")),
        ([OP], ()),
    ],
)
def test_flags(events, flags):
    assert lazy_flags([events], own_work(events, "candidate.py", events, (), False), "candidate.py") == flags


def test_launches_are_asked_for_one_by_one_heavy_ones_first():
    light, heavy, moves = launch(8, 8, size=1), launch(8, 8, size=9), launch(8, 0, size=99)
    assert Parts.of([moves, light, OP, heavy, FOREIGN], "candidate.py", False).groups(4) == [[2], [1]]
    assert Parts.of([moves, light, heavy], "candidate.py", True).groups(4) == [[0], [2], [1]]
    assert Parts.of([light, OP], "candidate.py", False).groups(4) == []


def test_kernels_are_asked_for_where_there_are_many_launches():
    some, others = [launch(8, 8, "a", 1)] * 3, [launch(8, 8, "b", 2)] * 3
    assert Parts.of([*some, *others], "candidate.py", False).groups(4) == [[3, 4, 5], [0, 1, 2]]
    many = [launch(8, 8, str(number), number) for number in range(9)]
    assert Parts.of(many, "candidate.py", False).groups(4) == [[8], [7], [6], [5]]
    assert Parts.of(some * 2, "candidate.py", False).groups(4) == []


@pytest.mark.parametrize(("found", "least", "most"), [(0, 0, 0), (1, 20, 30), (2, 45, 55), (4, 95, 100)])
def test_as_many_launches_count_as_idle_as_among_those_drawn(found, least, most):
    parts = Parts.of([launch(8, 8, "a", 1)] * 100, "candidate.py", False)
    drawn = [3, 14, 15, 92]
    idle = parts.like(Random(0), drawn, set(drawn[:found]))
    assert least <= len(idle) <= most
    assert idle & set(drawn) == set(drawn[:found])


def test_heavy_launches_are_drawn_more_often():
    events = [launch(8, 8, "a", 1 << 20), *[launch(8, 8, "a", 1)] * 99]
    assert Parts.of(events, "candidate.py", False).drawn(Random(0), 20).count(0) > 15


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::reflection_pad2d", False),
        ("aten::pixel_shuffle", False),
        ("aten::embedding_dense_backward", False),
        ("aten::index_add_", False),
        ("aten::add.Tensor", True),
    ],
)
def test_what_a_task_asks_for_beside_moving(name, expected):
    assert computes([TraceEvent("op", "aten::gather"), TraceEvent("op", name)]) is expected
