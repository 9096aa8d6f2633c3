# SPDX-License-Identifier: Apache-2.0
"""The plan of a step is arithmetic on stated rates, and says which part limits."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.config.composed import composed
from verl_kernel.cli import app
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.hardware import described
from verl_kernel.preflight.step_plan import SHAPES, Rates, choices, gpu_of, plan, shape_of, split_of

pytestmark = pytest.mark.slow
H100 = gpu_of(described("8xH100-80GB"))
MODEL = "actor_rollout_ref.model.path=Qwen/Qwen3-8B"


def test_sizes_are_those_of_the_published_models():
    billions = {name: round(shape.parameters / 1e9, 2) for name, shape in SHAPES.items()}
    assert billions == {"0.6b": 0.6, "1.7b": 1.72, "4b": 4.02, "8b": 8.19, "14b": 14.77, "32b": 32.76}
    assert SHAPES["8b"].kv_bytes == 147456


def test_each_part_follows_its_rates():
    split, rates = split_of(composed("kernel_trloo", MODEL)), Rates()
    given = plan(split, SHAPES["8b"], H100, 80, rates)
    assert (given.tokens, given.evaluations) == (128 * 8192, 384)
    assert given.limit == "judging beyond generating"
    both = given.seconds["generating"] + given.seconds[given.limit]
    assert both == pytest.approx(384 * rates.judge_s / 4 + rates.judge_s)
    # Twice the trainers halve the update; judging that generating hides leaves one evaluation.
    twice = plan(replace(split, trainers=8), SHAPES["8b"], H100, 80, rates)
    assert twice.seconds["update"] == pytest.approx(given.seconds["update"] / 2)
    quick = plan(split, SHAPES["8b"], H100, 80, replace(rates, judge_s=0.1))
    assert (quick.seconds["judging beyond generating"], quick.limit) == (0.1, "generating")
    # By these rates two settings bring judging of the default split below a third of a step.
    shares = [plan(each, SHAPES["8b"], H100, 80, rates).judging_share for each in choices(split, nodes=1).values()]
    assert given.judging_share > 0.7
    assert shares[2] < 1 / 3


@pytest.mark.parametrize(("words", "said"), [
    ((MODEL,), "384 evaluations a step"), ((MODEL, "--rate", "judge_s=fast"), "--rate is 'judge_s=fast': write"),
    ((MODEL, "--rate", "judge=1"), "judge_s"), ((MODEL, "--rate", "row_share=2"), "--rate.row_share"),
    ((MODEL, "--machine", "8xP4-8GB"), "names a P4, of which no rates are known: h100"),
    ((MODEL, "--machine", "8xA100-20GB"), "does not hold the model's 16 GB"),
    (("actor_rollout_ref.model.path=some/model",), "its name holds no size of 0.6b"),
])  # fmt: skip
def test_the_command_shows_the_plan_or_one_sentence(words, said):
    done = CliRunner().invoke(app, ["plan", *words])
    assert said in done.output
    assert (done.exit_code == 0) == (len(words) == 1 and words[0] == MODEL)
    assert done.exit_code == 0 or done.output.strip().count("\n") == 0


def test_a_model_that_is_here_says_its_sizes_itself(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no size"):
        shape_of(composed("kernel_trloo", f"actor_rollout_ref.model.path={tmp_path}"))
