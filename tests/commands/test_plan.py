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
    assert (given.tokens, given.evaluations, given.limit) == (128 * 8192, 384, "generating")
    # Half of the candidates reach 4 GPUs, where two evaluations take as long as one and a clock; then the last one.
    clock = 0.9 + 0.06 * 20
    judged = 192 * (4.8 / 2 + clock) / 4 + 16 * 2 / 8 + 4.8 + 2 * clock + 4
    assert given.seconds["generating"] + given.seconds["judging beyond generating"] == pytest.approx(judged)
    half = plan(replace(split, trainers=8), *fixed, Rates())
    assert half.seconds["update"] == pytest.approx(given.seconds["update"] / 2)
    exact = plan(replace(split, width=0.01), *fixed, Rates(jitter=1e-4))
    assert exact == plan(split, *fixed, Rates(jitter=1e-4))  # ten rounds are the fewest


@pytest.mark.parametrize(("size", "machine"), [("eight", "8xH100-80GB"), ("sixteen", "2x8xH100-80GB")])
def test_judging_is_planned_as_less_than_a_third_of_a_step(size, machine):
    where, split = described(machine), split_of(composed("kernel_trloo", MODEL, f"gpus={size}"))
    fixed = (SHAPES["8b"], gpu_of(where), 80, Rates())
    assert plan(split, *fixed).judging_share < 1 / 3
    others = [other for other in choices(split, where.nodes).values() if other.trainers == split.trainers]
    # Each of three settings is needed for it.
    assert [plan(other, *fixed).judging_share > 1 / 3 for other in others] == [True] * 3


@pytest.mark.parametrize(("words", "said"), [
    ("", "384 evaluations a step"), ("--rate gpu_s=fast", "--rate is 'gpu_s=fast': write"),
    ("--rate gpu=1", "gpu_s"), ("--rate row_share=2", "--rate.row_share"), ("--machine 8xP4-8GB", "a P4"),
    ("--machine 2xH100-80GB", "asks for 8 GPUs (4 the trainer, 4 the judges)"),
    ("--config-name=cpu_quickstart", "choose a recipe for GPUs"),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=3", "set it to a divisor"),
    ("--machine 8xA100-20GB", "does not hold the model's"), ("actor_rollout_ref.model.path=a/b", "no size of 0.6b"),
])  # fmt: skip
def test_the_command_shows_the_plan_or_one_sentence(words, said):
    done = CliRunner().invoke(app, ["plan", MODEL, *words.split()])
    assert said in done.output
    assert (done.exit_code == 0) == (words == "")
