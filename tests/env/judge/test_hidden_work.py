# SPDX-License-Identifier: Apache-2.0
"""What counts as hidden work."""

import pytest

from verl_kernel.env.judge.candidate_session import ALLOWED_MS, FIRST_MS, CpuTime, hidden_work


def entry(total: float, explained: float = 5.0, events: int = 1) -> CpuTime:
    return CpuTime(total, explained, events)


HONEST, HIDING = entry(5.0 + ALLOWED_MS / 2), entry(80.0)


def test_a_few_milliseconds_need_no_explanation():
    assert hidden_work([HONEST] * 5) is None
    assert hidden_work([]) is None


def test_the_typical_forward_decides():
    assert hidden_work([HIDING] * 3 + [HONEST] * 2) is HIDING
    assert hidden_work([HIDING] * 2 + [HONEST] * 3) is None


def test_a_first_forward_may_import_and_tune():
    assert hidden_work([HIDING, HONEST]) is None
    assert hidden_work([HIDING]) is None
    assert hidden_work([entry(80.0 + FIRST_MS)]) is not None


def test_explained_work_and_events_grant_more():
    assert hidden_work([entry(118.0, explained=100.0)] * 3) is None
    assert hidden_work([entry(40.0, events=300)] * 3) is None
    assert hidden_work([entry(40.0, events=1)] * 3) is not None


@pytest.mark.parametrize("spent", [None, [], {"own": -1}, {"own": 1.5}, {"own": True}, {"own": "1"}])
def test_a_claim_that_is_no_time_was_not_written_by_our_runner(spent):
    with pytest.raises(ValueError, match="processor times"):
        CpuTime.read(1, spent, 0)


def test_nanoseconds_become_milliseconds():
    assert CpuTime.read(3_000_000, {"own": 1_000_000, "device": 500_000}, 2) == CpuTime(3.0, 1.5, 2)
