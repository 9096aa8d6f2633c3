# SPDX-License-Identifier: Apache-2.0
"""Inspect runs the example's suite against a model of the test's own, and its own reader opens the log."""

import json

import pytest

from tests.adapters.packages import FUSED, WRONG, one_task
from verl_kernel.env import EvalResult

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def model():
    """First it answers wrongly, and after the verdict rightly."""
    pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi

    class Scripted(ModelAPI):
        async def generate(self, input, tools, tool_choice, config):
            told = "Verdict: incorrect" in input[-1].text
            return ModelOutput.from_content("scripted", FUSED if told else WRONG)

        async def count_tokens(self, input):
            return 1

    modelapi("scripted")(lambda: Scripted)
    return get_model("scripted/one")


@pytest.mark.parametrize(("turns", "correct"), [(2, 1.0), pytest.param(1, 0.0, marks=pytest.mark.exhaustive)])
def test_the_last_answer_of_a_sample_is_scored(model, tmp_path, turns, correct):
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.log import read_eval_log

    from examples.inspect_ai.best_of import best_of

    task = best_of(str(one_task(tmp_path)), turns=turns, samples=1)
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error
    read = read_eval_log(log.location)
    score = read.samples[0].scores["kernel_score"]
    assert (score.value["correct"], score.value["judged"]) == (correct, 1.0)
    result = EvalResult.model_validate_json(json.dumps(score.metadata))
    assert (result.speedup or 0.0) == pytest.approx(score.value["speedup"])
    assert {each.name: each.metrics["mean"].value for each in read.results.scores}["correct"] == correct
