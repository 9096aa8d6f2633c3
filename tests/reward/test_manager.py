# SPDX-License-Identifier: Apache-2.0
"""An answer's way to its reward: `judge_answer`, and the manager of verl's single-turn loop as its worker calls it."""

from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

import verl_kernel.plugin  # noqa: F401  registers the manager
from tests.reward.results import correct, failed
from tests.rollout.chat_tokenizers import GLM_TEMPLATE, tokenizer
from tests.rollout.scripted_loop import ANSWER, OURS, REFERENCE, Gym
from verl_kernel.env.pool.cluster.gym import KernelGym
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import InfraError
from verl_kernel.generated_tasks.tokenizer import CHAT_TEMPLATE, train_tokenizer
from verl_kernel.reward.judging import judge_answer, judge_program
from verl_kernel.reward.manager import KernelGymRewardManager
from verl_kernel.reward.profiling import ProfilingReward

BLOCKS = "```python\nclass BlockNew: pass\n```\n```python\nclass ModelNew: pass\n```"
TOKENIZER = train_tokenizer([ANSWER, REFERENCE, BLOCKS] * 4, 400)
NOTHING = {"acc": 0.0, "speedup": 0.0, "time_coverage": 0.0, "unjudged": 0.0}


def manager(
    monkeypatch: pytest.MonkeyPatch, result: EvalResult, sampler: str | None = OURS, **reward: float
) -> tuple[KernelGymRewardManager, Gym]:
    gym = Gym([result])
    monkeypatch.setattr(KernelGym, "connect", lambda options: gym)
    trainer = {"v1": {"sampler": {"custom_sampler": {"path": sampler}}}}
    config = OmegaConf.create({"kernelgym": {"device": "cpu", "reward": reward}, "trainer": trainer})
    return get_reward_manager_cls("kernelgym")(config, TOKENIZER), gym


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


async def test_an_answer_earns_its_profiling_reward(monkeypatch):
    judge, gym = manager(monkeypatch, correct(2.0, 0.5))
    figures = {"acc": 1, "speedup": 2, "time_coverage": 0.5, "unjudged": 0}
    reward = 0.5 * (1 + 2 + 0.5)
    assert await judge.run_single(sample(ANSWER)) == {"reward_score": reward, "reward_extra_info": figures}
    assert [task.reference for task in gym.tasks] == [REFERENCE]
    assert (gym.sources, gym.asked) == (["x = 1\n"], [{"validate": False, "step": 5}])


async def test_the_program_and_the_validation_are_those_of_the_row(monkeypatch):
    judge, gym = manager(monkeypatch, correct())
    row = {"reward_model": {"ground_truth": REFERENCE.replace("Model", "Block")}, "kernel_validation": True}
    await judge.run_single(sample(BLOCKS, extra_info={"task_id": "t", "entry_point": "Block"}, **row))
    assert gym.sources == ["class BlockNew: pass\n"]
    assert gym.asked[0]["validate"] is True


@pytest.mark.parametrize(
    ("prompts", "first"), [((4, 4), 40), ((50, 4), 40), ((50, 4), 1), ((4, 50), 2)],
    ids=["equal prompts", "a longer first row", "a longer first prompt", "a growing context"],
)  # fmt: skip
async def test_the_last_of_several_rows_is_read_whole(monkeypatch, prompts, first):
    """Rows as `AgentLoopWorkerTQ._compute_score` pads them: each tensor to its own longest row."""
    judge, gym = manager(monkeypatch, correct())
    answers = [torch.ones(first, dtype=torch.long), torch.tensor(TOKENIZER.encode(ANSWER, add_special_tokens=False))]
    asked = [torch.ones(length, dtype=torch.long) for length in prompts]
    whole = [torch.cat(pair) for pair in zip(asked, answers, strict=True)]
    columns = {"prompts": asked, "responses": answers, "attention_mask": [torch.ones_like(row) for row in whole]}
    padded = {key: pad_sequence(rows, batch_first=True) for key, rows in columns.items()}
    fields = {"reward_model": {"ground_truth": REFERENCE}, "extra_info": {"task_id": "t"}, "global_steps": 5}
    rows = {key: np.array([value, value]) for key, value in fields.items()}
    rows["response_len"] = np.array([len(answer) for answer in answers])
    await judge.run_single(DataProto(batch=TensorDict(padded, batch_size=2), non_tensor_batch=rows))
    assert gym.sources == ["x = 1\n"]


TOOL = "```python\nclass ModelNew: tool = 1\n```"
PROGRAM = "```python\nclass ModelNew: own = 1\n```"
TALKS = {
    "a tool between two turns": ["Let me see.", TOOL, PROGRAM],
    "the last turn has words only": [PROGRAM, TOOL, "This is the answer."],
    "a tool has the last word": [PROGRAM, TOOL],
    "several tools": ["a", TOOL, PROGRAM, TOOL, "b", TOOL, "c"],
}


OBSERVED = GLM_TEMPLATE.replace("message['role']", "('observation' if message['role'] == 'tool' else message['role'])")


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, OBSERVED])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("talk", TALKS)
async def test_a_tools_text_is_not_the_policys_program(monkeypatch, talk, masked, template):
    """Rows as verl's ToolAgentLoop makes them: the messages of tools between the policy's turns, in one response."""
    judge, gym = manager(monkeypatch, correct())
    judge.tokenizer = tokenizer([TOOL, PROGRAM, *TALKS["several tools"]] * 4, template)
    messages, ids, mask = [{"role": "user", "content": "x"}], [], []
    for number, text in enumerate(TALKS[talk]):
        is_own = number % 2 == 0
        before = judge.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=is_own)
        messages.append({"role": "assistant" if is_own else "tool", "content": text})
        whole = judge.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=not is_own)
        piece = judge.tokenizer.encode(whole.removeprefix(before), add_special_tokens=False)
        ids, mask = ids + piece, mask + [int(is_own)] * len(piece)
    row = sample(ANSWER, response_len=len(ids))
    width = len(ids) + 2
    tensors = {"responses": torch.tensor([[*ids, 0, 0]] * 2), "attention_mask": torch.ones(2, 4 + width)}
    tensors |= {"response_mask": torch.tensor([[*mask, 0, 0]] * 2)} if masked else {}
    rows = DataProto(batch=TensorDict(tensors, batch_size=2), non_tensor_batch=row.non_tensor_batch)
    await judge.run_single(rows)
    assert gym.sources == ["class ModelNew: own = 1\n"]


async def test_a_failure_earns_nothing(monkeypatch):
    judge, _ = manager(monkeypatch, failed("incorrect", speedup=9.0, time_coverage=1.0))
    assert await judge.run_single(sample(ANSWER)) == {"reward_score": 0, "reward_extra_info": NOTHING}


@pytest.mark.parametrize("penalty", [0.0, 0.5])
async def test_an_answer_without_a_program_does_not_compile(monkeypatch, penalty):
    judge, gym = manager(monkeypatch, correct(2.0), uncompiled_penalty=penalty)
    found = await judge.run_single(sample("I do not know."))
    assert found == {"reward_score": -penalty, "reward_extra_info": NOTHING}
    assert not gym.asked


@pytest.mark.parametrize(("sampler", "row"), [(OURS, {}), (None, {"kernel_validation": 1})])
async def test_an_answer_that_was_not_judged_is_marked(monkeypatch, sampler, row):
    judge, _ = manager(monkeypatch, failed("infra_error", correctness=None), sampler, failure_penalty=1.0)
    found = await judge.run_single(sample(ANSWER, **row))
    assert (found["reward_score"], found["reward_extra_info"]["unjudged"]) == (0, 1)


async def test_where_nobody_takes_it_out_it_is_an_error(monkeypatch):
    judge, _ = manager(monkeypatch, failed("infra_error", correctness=None), sampler=None)
    with pytest.raises(InfraError, match="task t was not judged"):
        await judge.run_single(sample(ANSWER))


async def test_an_answer_is_judged_by_its_program_if_it_has_one():
    task, gym = Task(REFERENCE, task_id="t"), Gym([correct(2.0)])
    judged = await judge_answer(task, ANSWER, gym.evaluate)
    assert (gym.tasks, gym.sources, gym.asked) == ([task], ["x = 1\n"], [{}])
    assert (judged.code, judged.result) == ("x = 1\n", correct(2.0))
    missing = await judge_program(task, None, gym.evaluate, ProfilingReward(uncompiled_penalty=0.25))
    assert len(gym.asked) == 1
    assert (missing.code, missing.result.status) == (None, EvalStatus.REJECTED_STATIC)
    assert missing.reward == -0.25
