# SPDX-License-Identifier: Apache-2.0
"""Coverage: whose kernels took the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.profile import profile_events
from verl_kernel.env.result import Launch
from verl_kernel.env.trace import TraceEvent

OWN = TraceEvent("launch", "mine", (2, 1, 1), bytes=6, source="candidate.py")
FOREIGN = TraceEvent("launch", "theirs", (1, 1, 1), bytes=2, source="library.py")
FAILED = TraceEvent("launch", "mine", (2, 1, 1), bytes=1, source="candidate.py", failed=True)
OP = TraceEvent("op", "aten::add.Tensor", bytes=4)


def profile(*events, **options):
    return profile_events(events, "candidate.py", lambda event: float(event.bytes), **options)


def test_only_the_candidates_own_kernels_count():
    seen = profile(OWN, FOREIGN, OP, OP)
    assert (seen.num_custom_kernels, seen.num_total_kernels) == (1, 4)
    assert seen.number_coverage == 0.25 and seen.time_coverage == 6 / 16
    assert seen.fallback_ops == {"aten::add.Tensor": 2}


def test_an_op_named_like_a_kernel_is_still_an_op():
    seen = profile(TraceEvent("op", "mine", bytes=1, source=""), FOREIGN)
    assert seen.num_custom_kernels == 0 and seen.time_coverage == 0.0


def test_a_launch_that_raised_is_not_work_done():
    seen = profile(FAILED, OP)
    assert seen.num_custom_kernels == 0 and seen.num_total_kernels == 2


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
    assert 0 <= seen.time_coverage <= 1 and 0 <= seen.number_coverage <= 1
    assert (seen.number_coverage == 1) == all(event is OWN for event in events)
    assert seen.time_coverage == pytest.approx(
        sum(event.bytes for event in events if event is OWN) / sum(event.bytes for event in events)
    )
