# SPDX-License-Identifier: Apache-2.0
"""The reward manager of verl's single-turn loop, called as verl's reward worker calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

import verl_kernel.plugin  # noqa: F401  registers the manager
from tests.reward.results import correct, failed
from verl_kernel.env.pool.cluster.gym import KernelGym
from verl_kernel.env.result import EvalResult
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError
from verl_kernel.reward.manager import KernelGymRewardManager
from verl_kernel.world.tokenizer import train_tokenizer

REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    "def get_inputs():\n    return [torch.ones(1)]\ndef get_init_inputs():\n    return []\n"
)
ANSWER = "Here.\n```python\nx = 1\n```"
TOKENIZER = train_tokenizer([ANSWER, REFERENCE] * 4, 400)


class Gym:
    def __init__(self, result: EvalResult) -> None:
        self.result, self.asked = result, []

    async def evaluate(self, task: Task, source: str, **kwargs: Any) -> EvalResult:
        self.asked.append((task.reference, source, kwargs))
        return self.result


def manager(
    monkeypatch: pytest.MonkeyPatch, result: EvalResult, sampler: str | None = "pkg://verl_kernel.sampler.prs"
) -> tuple[KernelGymRewardManager, Gym]:
    gym = Gym(result)
    monkeypatch.setattr(KernelGym, "connect", lambda options: gym)
    config = {"kernelgym": {"device": "cpu"}, "trainer": {"v1": {"sampler": {"custom_sampler": {"path": sampler}}}}}
    return get_reward_manager_cls("kernelgym")(OmegaConf.create(config), TOKENIZER), gym


def sample(answer: str, **row: Any) -> DataProto:
    """Two rows of a trajectory, padded on the right; the last one is judged."""
    answers = [TOKENIZER.encode(text, add_special_tokens=False) for text in ("```python\nfirst\n```", answer)]
    width = max(map(len, answers)) + 3
    padded = torch.tensor([ids + [1] * (width - len(ids)) for ids in answers])
    shown = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in answers])
    prompts = torch.ones(2, 4, dtype=torch.long)
    tensors = {"prompts": prompts, "responses": padded, "attention_mask": torch.cat([prompts, shown], dim=1)}
    fields = {"reward_model": {"ground_truth": REFERENCE}, "extra_info": {"task_id": "t"}, "global_steps": 5} | row
    columns = {key: np.array([value, value]) for key, value in fields.items()}
    return DataProto(batch=TensorDict(tensors, batch_size=2), non_tensor_batch=columns)


async def test_an_answer_earns_its_profiling_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, gym = manager(monkeypatch, correct(2.0, 0.5))
    assert await judge.run_single(sample(ANSWER)) == {
        "reward_score": 0.5 * (1 + 2 + 0.5),
        "reward_extra_info": {"acc": 1, "speedup": 2, "time_coverage": 0.5, "unjudged": 0},
    }
    assert gym.asked == [(REFERENCE, "x = 1\n", {"validate": False, "step": 5})]


async def test_the_gym_is_told_what_is_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, gym = manager(monkeypatch, correct())
    await judge.run_single(sample(ANSWER, kernel_validation=True))
    assert gym.asked[0][2]["validate"] is True


async def test_failures_and_answers_without_a_program_earn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"acc": 0, "speedup": 0, "time_coverage": 0, "unjudged": 0}
    judge, gym = manager(monkeypatch, failed("incorrect", speedup=9.0, time_coverage=1.0))
    assert await judge.run_single(sample(ANSWER)) == {"reward_score": 0, "reward_extra_info": nothing}
    assert await judge.run_single(sample("No idea.")) == {"reward_score": 0, "reward_extra_info": nothing}
    assert len(gym.asked) == 1


@pytest.mark.parametrize(("sampler", "row"), [("pkg://verl_kernel.sampler.prs", {}), (None, {"kernel_validation": 1})])
async def test_an_answer_that_was_not_judged_is_marked(
    monkeypatch: pytest.MonkeyPatch, sampler: str | None, row: dict[str, Any]
) -> None:
    judge, _ = manager(monkeypatch, failed("infra_error", correctness=None), sampler)
    found = await judge.run_single(sample(ANSWER, **row))
    assert found["reward_score"] == 0
    assert found["reward_extra_info"]["unjudged"] == 1


async def test_where_nobody_takes_it_out_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, _ = manager(monkeypatch, failed("infra_error", correctness=None), sampler=None)
    with pytest.raises(InfraError, match="task t was not judged"):
        await judge.run_single(sample(ANSWER))
