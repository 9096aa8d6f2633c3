# SPDX-License-Identifier: Apache-2.0
"""Files of `kernelgym.trial_choice`: what they may say, and that validation does not follow them."""

import json

import pytest

from tests.env.programs import HONEST, REFERENCE
from verl_kernel.env.judge.trials.plan import TrialChoice
from verl_kernel.env.pool.scheduling.scheduler import Pin
from verl_kernel.env.pool.verdict_cache import verdict_key
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError

TASK = Task(REFERENCE)
COUNTS = {"drawn": 2, "varied": 1, "large": 3, "negative": 1, "positive": 1}


def written(tmp_path, kinds, **other):
    file = tmp_path / "choice.json"
    file.write_text(json.dumps({"format": 1, "tasks": {TASK.fingerprint: {"kinds": kinds}}} | other))
    return str(file)


def test_a_choice_is_by_reference_and_not_for_validation(tmp_path):
    choice = TrialChoice.read(written(tmp_path, COUNTS))
    assert choice.of(EvalRequest(TASK, HONEST)) == COUNTS
    assert choice.of(EvalRequest(Task(REFERENCE, task_id="renamed"), HONEST)) == COUNTS
    assert choice.of(EvalRequest(TASK, HONEST, validate=True)) is None
    assert choice.of(EvalRequest(Task(f"{REFERENCE}\n"), HONEST)) is None
    assert TrialChoice.read(None).of(EvalRequest(TASK, HONEST)) is None


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"drawn": 5}, "it must give each of drawn, varied, large, negative, positive one trial or more"),
        ({**COUNTS, "large": 0}, "it must give each of"),
        ({**COUNTS, "negative": 0}, "it must give each of"),
        ({**COUNTS, "large": 1.5}, "it must give each of"),
        ({**COUNTS, "large": True}, "it must give each of"),
        ({**COUNTS, "seed": 1}, "it must give each of"),
        (["drawn"], "it must give each of"),
        ({**COUNTS, "large": 100}, "more than 64 trials"),
    ],
)
def test_no_kind_can_be_left_out(tmp_path, kinds, words):
    with pytest.raises(ConfigError, match=f"kernelgym.trial_choice: .*{words}"):
        TrialChoice.read(written(tmp_path, kinds))


def test_a_file_of_something_else_is_refused(tmp_path):
    for path in (written(tmp_path, COUNTS, format=2), str(tmp_path), str(tmp_path / "none.json")):
        with pytest.raises(ConfigError, match="write one with `verl-kernel aces`"):
            TrialChoice.read(path)


def test_verdicts_are_shared_only_where_judged_alike():
    pin, request = Pin(), EvalRequest(TASK, HONEST, step=1)
    held_out = EvalRequest(TASK, HONEST, validate=True, step=1)
    assert verdict_key(request, pin) == verdict_key(held_out, pin) == verdict_key(request, pin, True)
    assert verdict_key(held_out, pin, True) != verdict_key(request, pin, True)
