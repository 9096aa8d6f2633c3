# SPDX-License-Identifier: Apache-2.0
"""The status of a pool; tests/env/pool/cluster asks a live one."""

import pytest

from tests.commands.lines import invoked
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.env.pool.stats import JudgeStats, PoolCounters


@pytest.fixture
def stats(monkeypatch):
    tally = PoolCounters()
    for status in (EvalStatus.OK, EvalStatus.OK, EvalStatus.CRASH):
        tally.note(EvalResult(task_id="t", status=status))
    judges = (
        JudgeStats(number=0, state="busy", node="a" * 40, pid=11),
        JudgeStats(number=1, state="quarantined", node="b" * 40, pid=12),
        JudgeStats(number=2, state="down"),
    )
    stats = tally.stats(judges, queue=5, held_back=2, prefilter=None)
    monkeypatch.setattr("verl_kernel.commands.serve.status.read_stats", lambda address, name: [stats])
    return stats


def test_it_shows_queue_judges_and_counts(stats):
    output = invoked("serve-status").output
    assert "3: 1 busy, 2 alive, 1 quarantined" in output
    assert "1 crash, 2 ok" in output
    assert all(word in output for word in ("waiting for a judge", "aaaaaaaaaaaa", "down", "results per second"))


def test_json_is_the_record(stats):
    assert type(stats).model_validate_json(invoked("serve-status", "--json").output) == stats
