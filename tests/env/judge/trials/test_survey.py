# SPDX-License-Identifier: Apache-2.0
"""A survey runs all trials whatever became of one, and a chosen plan changes training only."""

import json

import pytest

from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes
TASK = Task(REFERENCE, task_id="task")
KINDS = ("drawn", "large", "varied", "drawn")
SECRET = bytes(range(32))
CUT = HONEST.replace("tl.maximum(v, 0.0)", "tl.minimum(tl.maximum(v, 0.0), 40.0)")
"""Right but for large numbers."""
OPTIONS = GymOptions(device="cpu", static_check="off", run_timeout_s=4.0)


@pytest.fixture(scope="module")
def judge():
    with Judge(OPTIONS, seed=1) as judge:
        yield judge


def crashing_on_large(end):
    return candidate(f"if x.abs().max() > 30:\n    {end}\nreturn self.right(x, y)", "import os, time")


def test_one_failed_trial_leaves_out_no_other(judge):
    assert judge.survey(TASK, HONEST, KINDS, SECRET) == [EvalStatus.OK] * 4
    assert [outcome.value for outcome in judge.survey(TASK, CUT, KINDS, SECRET)] == ["ok", "incorrect", "ok", "ok"]
    for end, status in (("raise ValueError", "runtime_error"), ("os._exit(3)", "crash")):
        outcomes = judge.survey(TASK, crashing_on_large(end), KINDS, SECRET)
        assert [outcome.value for outcome in outcomes] == ["ok", status, "ok", "ok"]


def test_a_timeout_ends_a_survey_of_its_candidate(judge):
    late = judge.survey(TASK, crashing_on_large("time.sleep(60)"), KINDS, SECRET)
    assert late == [EvalStatus.OK, EvalStatus.TIMEOUT, None, None]
    assert judge.survey(TASK, "import nothing", KINDS, SECRET) == [EvalStatus.LOAD_ERROR] * 4


def test_a_survey_repeats_with_its_secret(judge):
    before = judge.evaluate(TASK, HONEST).model_dump(exclude={"stage_seconds"})
    assert judge.survey(TASK, CUT, ("large",) * 3, SECRET) == [EvalStatus.INCORRECT] * 3
    assert judge.evaluate(TASK, HONEST).model_dump(exclude={"stage_seconds"}) == before


def test_a_choice_holds_for_training_on_its_tasks_only(tmp_path):
    file = tmp_path / "choice.json"
    counts = {"drawn": 1, "varied": 1, "large": 3, "negative": 1, "positive": 1}
    file.write_text(json.dumps({"format": 1, "tasks": {TASK.fingerprint: {"kinds": counts}}}))
    other = Task(f"{REFERENCE}\n# another", task_id="other")
    with Judge(GymOptions(device="cpu", trial_choice=str(file)), seed=1) as judge:
        chosen = judge.judge(EvalRequest(TASK, HONEST))
        assert chosen.rewarded
        assert chosen.env["trial_kinds"] == counts
        assert chosen.trials is not None
        assert chosen.trials.passed == chosen.trials.total == 7
        assert chosen.decoy_kernel is False
        for request in (EvalRequest(TASK, HONEST, validate=True), EvalRequest(other, HONEST)):
            own = judge.judge(request)
            assert own.trials is not None
            assert own.trials.total == 5
            assert "trial_kinds" not in own.env
        wrong = judge.judge(EvalRequest(TASK, CUT))
        assert wrong.status is EvalStatus.INCORRECT
        assert wrong.trials is not None
        assert wrong.trials.passed < 7
