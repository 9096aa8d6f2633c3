# SPDX-License-Identifier: Apache-2.0
"""The plan of a step is arithmetic on stated rates, and says which part limits."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.config.composed import composed
from verl_kernel.cli import app
from verl_kernel.preflight.hardware import described
from verl_kernel.preflight.step_plan import SHAPES, Rates, choices, gpu_of, plan, split_of

pytestmark = pytest.mark.slow
MODEL = "actor_rollout_ref.model.path=Qwen/Qwen3-8B"


def test_each_part_follows_its_rates():
    assert [round(shape.parameters / 1e9, 2) for shape in SHAPES.values()] == [0.6, 1.72, 4.02, 8.19, 14.77, 32.76]
    split, fixed = split_of(composed("kernel_trloo", MODEL)), (SHAPES["8b"], gpu_of(described("8xH100-80GB")), 80)
    given = plan(split, *fixed, Rates())
    assert (given.tokens, given.evaluations, given.limit) == (128 * 8192, 384, "judging beyond generating")
    assert given.seconds["generating"] + given.seconds[given.limit] == pytest.approx(8.5 * (384 / 4 + 1))
    quick = plan(replace(split, trainers=8), *fixed, Rates(judge_s=0.1))
    assert (quick.seconds["update"], quick.limit) == (pytest.approx(given.seconds["update"] / 2), "generating")
    # By these rates two settings bring judging of the default split below a third of a step.
    assert [plan(other, *fixed, Rates()).judging_share < 1 / 3 for other in choices(split, nodes=1).values()][2]


@pytest.mark.parametrize(("words", "said"), [
    ("", "384 evaluations a step"), ("--rate judge_s=fast", "--rate is 'judge_s=fast': write"),
    ("--rate judge=1", "judge_s"), ("--rate row_share=2", "--rate.row_share"), ("--machine 8xP4-8GB", "a P4"),
    ("--machine 8xA100-20GB", "does not hold the model's"), ("actor_rollout_ref.model.path=a/b", "no size of 0.6b"),
])  # fmt: skip
def test_the_command_shows_the_plan_or_one_sentence(words, said):
    done = CliRunner().invoke(app, ["plan", MODEL, *words.split()])
    assert said in done.output
    assert (done.exit_code == 0) == (words == "")
