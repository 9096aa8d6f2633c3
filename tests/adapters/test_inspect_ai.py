# SPDX-License-Identifier: Apache-2.0
"""Inspect runs a suite against a model of the test's own, and its own reader opens the log."""

import json
from pathlib import Path

import pytest

from verl_kernel.env import EvalResult

inspect_ai = pytest.importorskip("inspect_ai")
pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).parents[2] / "examples"
FUSED, WRONG = (f"```python\n{(EXAMPLES / f'{name}.py').read_text()}```" for name in ("fused", "wrong"))


@pytest.fixture
def model():
    """First it answers wrongly, and after the verdict rightly."""
    from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi

    class Scripted(ModelAPI):
        async def generate(self, input, tools, tool_choice, config):
            told = "Verdict: incorrect" in input[-1].text
            return ModelOutput.from_content("scripted", FUSED if told else WRONG)

        async def count_tokens(self, input):
            return 1

    modelapi("scripted")(lambda: Scripted)
    return get_model("scripted/one")


def test_the_last_answer_of_a_sample_is_scored(model, tmp_path):
    from inspect_ai import eval as evaluate
    from inspect_ai.log import read_eval_log

    from verl_kernel.adapters.inspect_ai import kernels

    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "one.py").write_text((EXAMPLES / "reference.py").read_text())
    for turns, correct in ((1, 0.0), (2, 1.0)):
        (log,) = evaluate(
            kernels(str(tasks), turns=turns, device="cpu", trials=2), model=model, log_dir=str(tmp_path / "logs"),
            display="none",
        )  # fmt: skip
        assert log.status == "success", log.error
        read = read_eval_log(log.location)
        (sample,) = read.samples
        score = sample.scores["kernel_score"]
        assert score.value["correct"] == correct
        assert score.value["judged"] == 1.0
        result = EvalResult.model_validate_json(json.dumps(score.metadata))
        assert (result.speedup or 0.0) == pytest.approx(score.value["speedup"])
        means = {each.name: each.metrics["mean"].value for each in read.results.scores}
        assert means["correct"] == correct
