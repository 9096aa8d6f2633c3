# SPDX-License-Identifier: Apache-2.0
"""An answer without a program means the same to the single-turn reward manager as to the agent loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl import DataProto

from tests.reward.results import correct
from tests.rollout.chat_tokenizers import tokenizer
from verl_kernel.env.task import Task
from verl_kernel.reward import manager
from verl_kernel.reward.extract import no_program
from verl_kernel.reward.options import ProfilingReward
from verl_kernel.reward.profiling import profiling_reward

REFERENCE = "class Block: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []"
TASK = Task(reference=REFERENCE, task_id="t", entry_point="Block")


class Gym:
    """Says `ok` to everything and keeps the sources."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    async def evaluate(self, task, source, **kwargs):
        self.sources.append(source)
        return correct(2.0, 1.0)


async def judge(monkeypatch, answer: str, **reward: float) -> tuple[dict, list[str]]:
    gym, trained = Gym(), tokenizer([answer])
    monkeypatch.setattr(manager, "connect", lambda options: gym)
    config = OmegaConf.create({"kernelgym": {"device": "cpu", "reward": reward}})
    ids = torch.tensor([trained.encode(answer)])
    row = {"reward_model": {"ground_truth": REFERENCE}, "extra_info": {"task_id": "t", "entry_point": "Block"}}
    data = DataProto.from_dict(
        {"responses": ids, "attention_mask": torch.ones_like(ids)},
        {key: np.array([value], dtype=object) for key, value in row.items()},
    )
    return await manager.KernelGymRewardManager(config, trained).run_single(data), gym.sources


@pytest.mark.parametrize("penalty", [0.0, 0.5])
async def test_it_earns_what_a_source_that_does_not_compile_earns(monkeypatch, penalty):
    said, sources = await judge(monkeypatch, "I do not know.", uncompiled_penalty=penalty)
    in_the_loop = profiling_reward(no_program(TASK), ProfilingReward(uncompiled_penalty=penalty))
    assert said["reward_score"] == in_the_loop == -penalty
    assert not sources
    assert said["reward_extra_info"] == {"acc": 0.0, "speedup": 0.0, "time_coverage": 0.0, "unjudged": 0.0}


async def test_the_program_is_the_one_of_the_rows_entry_point(monkeypatch):
    answer = "```python\nclass BlockNew: pass\n```\n```python\nclass ModelNew: pass\n```"
    said, sources = await judge(monkeypatch, answer)
    assert sources == ["class BlockNew: pass\n"]
    assert said["reward_extra_info"] == {"acc": 1.0, "speedup": 2.0, "time_coverage": 1.0, "unjudged": 0.0}
