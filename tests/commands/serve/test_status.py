# SPDX-License-Identifier: Apache-2.0
"""What the command says where there is nothing to show; `tests/env/pool/cluster/test_ray_pool.py` asks a live pool."""

import pytest
from typer.testing import CliRunner

from verl_kernel.cli import app
from verl_kernel.env.pool.stats import JudgeStats, Tally
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import EnvironmentNotReady


@pytest.fixture
def stats(monkeypatch):
    tally = Tally()
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
    output = CliRunner().invoke(app, ["serve-status"]).output
    assert "3: 1 busy, 2 alive, 1 quarantined" in output
    assert "1 crash, 2 ok" in output
    assert all(word in output for word in ("waiting for a judge", "aaaaaaaaaaaa", "down", "results per second"))


def test_json_is_the_record(stats):
    output = CliRunner().invoke(app, ["serve-status", "--json"]).output
    assert type(stats).model_validate_json(output) == stats


def test_a_pool_that_is_missing_is_named(monkeypatch):
    def missing(address, name):
        raise EnvironmentNotReady(f"the cluster has no pool called {name}")

    monkeypatch.setattr("verl_kernel.commands.serve.status.read_stats", missing)
    result = CliRunner().invoke(app, ["serve-status", "--name", "other"])
    assert result.exit_code == 2
    assert result.output == "Error: the cluster has no pool called other\n"
