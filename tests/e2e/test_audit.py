# SPDX-License-Identifier: Apache-2.0
"""The audit of gradients for real: the quickstart's model answers, local judges judge, and a second call goes on."""

import json
from pathlib import Path

import pytest

from recipes.cpu_study.audit.arms import ARMS
from recipes.cpu_study.audit.command import app
from recipes.cpu_study.audit.rollouts import read_groups
from tests.commands.lines import invoked

MARKS = (pytest.mark.exhaustive, pytest.mark.e2e, pytest.mark.slow, pytest.mark.processes)
pytestmark = [*MARKS, pytest.mark.timeout(1800)]


def audit(quickstart: Path, out: Path, *extra: str, exit_code: int = 0) -> str:
    small = ["actor_rollout_ref.rollout.n=2", "data.train_batch_size=1", "kernelgym.num_judges=1"]
    words = ["--out", out, "--groups", "2", f"quickstart_dir={quickstart}", *small, *extra]
    return " ".join(invoked(*words, exit_code=exit_code, command=app).output.split())


def test_an_audit_samples_judges_and_goes_on_where_it_was(quickstart, tmp_path):
    out = tmp_path / "out"
    assert "2 of 2 groups sampled and judged" in audit(quickstart, out)
    groups = read_groups(out / "rollouts")
    assert [len(group) for group in groups] == [2, 2]
    turns = [turn for group in groups for rollout in group for turn in rollout.turns]
    assert len(turns) == 8
    assert any(turn.code is not None and turn.result.stage_seconds for turn in turns)
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]
    assert [line.get("arm") for line in lines] == [*ARMS, None]
    (out / "rollouts" / "1.jsonl").unlink()
    again = audit(quickstart, out)
    assert "2 of 2 groups sampled and judged" in again
    assert read_groups(out / "rollouts")[0] == groups[0]
    other = audit(quickstart, out, "actor_rollout_ref.rollout.temperature=0.5", exit_code=2)
    assert "holds rollouts of another model, of other tasks or of other options: name another folder" in other
