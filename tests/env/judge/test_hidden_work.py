# SPDX-License-Identifier: Apache-2.0
"""What counts as hidden work."""

import pytest

from verl_kernel.env.judge.candidate_session import ALLOWED_MS, FIRST_MS, CpuTime, hidden_work


def entry(total: float, explained: float = 5.0, events: int = 1) -> CpuTime:
    return CpuTime(total, explained, events)


HONEST, HIDING = entry(5.0 + ALLOWED_MS / 2), entry(80.0)
FORWARDS = {
    "none": ([], False),
    "a few milliseconds": ([HONEST] * 5, False),
    "most of them": ([HIDING] * 3 + [HONEST] * 2, True),
    "less than half": ([HIDING] * 2 + [HONEST] * 3, False),
    "a first one, which may import and tune": ([HIDING, HONEST], False),
    "the only one": ([HIDING], False),
    "a first one with too much": ([entry(80.0 + FIRST_MS)], True),
    "explained": ([entry(118.0, explained=100.0)] * 3, False),
    "many events": ([entry(40.0, events=300)] * 3, False),
    "few events": ([entry(40.0, events=1)] * 3, True),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_the_typical_forward_decides_whether_work_is_hidden(name):
    forwards, is_hidden = FORWARDS[name]
    assert hidden_work(forwards) is (forwards[0] if is_hidden else None)


@pytest.mark.parametrize("spent", [None, [], {"own": -1}, {"own": 1.5}, {"own": True}, {"own": "1"}])
def test_a_claim_that_is_no_time_was_not_written_by_our_runner(spent):
    with pytest.raises(ValueError, match="processor times"):
        CpuTime.read(1, spent, 0)


def test_nanoseconds_become_milliseconds():
    assert CpuTime.read(3_000_000, {"own": 1_000_000, "device": 500_000}, 2) == CpuTime(3.0, 1.5, 2)
