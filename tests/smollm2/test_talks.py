# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from random import Random

import pytest
import yaml

import verl_kernel
from recipes.cpu_smollm2 import talks
from recipes.cpu_smollm2.build import BATCH
from recipes.cpu_smollm2.talks import draw_talks, draw_tasks, task_messages
from verl_kernel.env import EvalStatus, GymOptions, Task, check
from verl_kernel.env.pool.local import LocalPool
from verl_kernel.reward.extract import extract_code

CONFIG = Path(verl_kernel.__file__).parent / "config"


def test_prompts_hold_the_task_and_an_example_of_another():
    taken: set[str] = set()
    programs = draw_tasks(12, Random(0), taken)
    assert len({program.reference for program in programs} & taken) == 12
    for program in programs:
        (message,) = task_messages(program)
        assert message["role"] == "user"
        assert program.prompt in message["content"]
        assert message["content"].count("class ModelNew(nn.Module)") == 1
        assert "2.5" not in program.reference


def test_talks_end_with_one_fused_kernel():
    taken: set[str] = set()
    draw_tasks(12, Random(0), taken)
    for talk in draw_talks(12, Random(1), taken):
        assert [message["role"] for message in talk] == ["user", "assistant", "user", "assistant"]
        assert "Verdict: ok" in talk[2]["content"]
        assert "def fused_kernel(" in talk[3]["content"]
        for answer in (talk[1], talk[3]):
            assert not check(extract_code(answer["content"]))


@pytest.mark.processes
def test_the_example_and_the_answers_of_a_talk_are_right():
    """tests/world/test_answers.py judges the kinds that answers are drawn from."""
    program = draw_tasks(1, Random(3), set())[0]
    answers = [extract_code(message["content"]) for message in talks.draw_talk(program, Random(3))[1::2]]
    cases = [(Task(program.reference), answer, "") for answer in answers]
    example = talks.example().source
    assert example in task_messages(program)[0]["content"]
    with LocalPool(GymOptions(device="cpu", num_judges=1, correctness_trials=2), seed=0) as pool:
        results = pool.evaluate_many([*cases, (Task(talks._EXAMPLE.reference), example, "")])
    assert [result.status for result in results] == [EvalStatus.OK] * 3


def test_the_command_knows_what_the_recipes_ask_for():
    """A step's talks, and feedback as long as the rollout's."""
    sft, quickstart = (
        yaml.safe_load((CONFIG / f"{name}.yaml").read_text()) for name in ("cpu_smollm2_sft", "cpu_quickstart")
    )
    assert sft["data"]["train_batch_size"] == BATCH
    assert quickstart["kernelgym"]["feedback_chars"] == talks.FEEDBACK_CHARS
