# SPDX-License-Identifier: Apache-2.0
"""The adaptive worker with a scripted language model and a scripted reward; all that lies between is verl's."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, _agent_loop_registry

from tests.reward.results import correct, failed
from verl_kernel.env.result import EvalResult
from verl_kernel.reward.judging import Judged
from verl_kernel.rollout.adaptive_worker import AdaptiveWorker
from verl_kernel.rollout.trajectory import KernelAgentOutput, Trajectory

FAST, SLOW, WRONG = correct(2.0), correct(0.5), failed()
LOST = failed("infra_error")


class ScriptedModel:
    """Answers the n-th rollout of a prompt by its script: the results of the turns that its kernels will have."""

    def __init__(self, scripts: dict[str, Callable[[int], tuple[EvalResult, ...] | Exception]]) -> None:
        self.scripts = scripts
        self.asked: dict[str, list[int]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}

    async def generate(self, uid: str, session: int) -> tuple[EvalResult, ...]:
        self.asked[uid].append(session)
        if uid in self.gates:
            await self.gates[uid].wait()
        # Later sessions are done first.
        await asyncio.sleep(0.002 * (9 - session % 10))
        answer = self.scripts[uid](session)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ScriptedLoop(AgentLoopBase):
    """Plays the turns that the model's answer names; the reward of a turn is its speedup where it is correct."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> KernelAgentOutput:
        results = await self.server_manager.generate(row["uid"], row["session_id"])
        trajectory = Trajectory(prompt_length=2, ids=[1, 2])
        for result in results:
            start = len(trajectory.mask)
            merged = SimpleNamespace(token_ids=[*trajectory.ids, 3 + row["session_id"], 3])
            trajectory.take_tokens(merged, [*trajectory.mask, 1, 1], [*(trajectory.logprobs or []), -0.5, -0.5])
            reward = (result.speedup or 0.0) if result.rewarded else 0.0
            trajectory.record_turn(start, start + 2, Judged("x = 1", result, reward))
        trajectory.extra = {"min_global_steps": 0, "max_global_steps": 0}
        return trajectory.output(AgentLoopMetrics().model_dump())


def worker(model: ScriptedModel, n: int = 4, **ada: Any) -> AdaptiveWorker:
    """A worker as verl builds it, but for tokenizer and model."""
    _agent_loop_registry["scripted"] = {"_target_": f"{ScriptedLoop.__module__}.ScriptedLoop"}
    own = object.__new__(AdaptiveWorker)
    rollout = {"n": n, "val_kwargs": {"n": 2}, "response_length": 64, "prompt_length": 8}
    own.config = OmegaConf.create(
        {"algorithm": {"ada": ada}, "actor_rollout_ref": {"rollout": rollout}, "data": {}, "kernelgym": {}}
    )
    own.llm_client, own.tokenizer, own.processor, own.tools = model, None, None, []
    own.hf_model_type, own.dataset_cls, own.distillation_enabled = None, None, False
    own.reward_loop_worker_handles, own.background_tasks, own.open_rounds = [], set(), {}
    return own


async def play(own: AdaptiveWorker, uid: str, validate: bool = False) -> None:
    """One prompt of step 3, as `generate_sequences` of verl's worker starts it."""
    prompt = {"uid": uid, "global_steps": 3, "agent_name": "scripted", "raw_prompt": [{"role": "user", "content": uid}]}
    where = {"step": 3, "sample_index": 0, "rollout_n": 0, "validate": validate}
    await own._run_prompt(prompt, {}, trajectory=where)
