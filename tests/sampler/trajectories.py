# SPDX-License-Identifier: Apache-2.0
"""The sampler built as verl's trainer builds it, and a queue filled the way verl's agent loop worker fills it."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from torch.nn.utils.rnn import pad_sequence
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.utils.import_utils import load_extern_type
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

import verl_kernel.plugin  # noqa: F401  registers the estimators
from tests.reward.results import turn
from verl_kernel.env.result import EvalResult
from verl_kernel.reward.manager import extra_info
from verl_kernel.reward.record import TurnRecord
from verl_kernel.rollout.trajectory import KernelAgentOutput, summarise
from verl_kernel.sampler.prs import PRSReplayBuffer

modes = pytest.mark.parametrize(
    "mode", ["sync", "colocate_async", pytest.param("separate_async", marks=pytest.mark.exhaustive)]
)
"""Of the trainer; the two asynchronous ones have the same buffer of verl's."""
queues = pytest.mark.parametrize(
    "queue", ["memory", pytest.param("transfer_queue", marks=pytest.mark.ray)], indirect=True
)
"""Both in `make test`, where other tests have TransferQueue itself in `make test-all` alone."""


def make_buffer(
    mode: str = "sync", refill_fn: Any = None, cls: type[PRSReplayBuffer] | None = None, **kwargs: Any
) -> PRSReplayBuffer:
    cls = cls or load_extern_type("pkg://verl_kernel.sampler.prs", "PRSReplayBuffer")
    sampler_kwargs = OmegaConf.create({"poll_interval_s": 0.01} | kwargs)
    return cls(
        trainer_mode=mode, trainer_config=OmegaConf.create({}), max_off_policy_threshold=8,
        max_off_policy_strategy="drop", sampler_kwargs=sampler_kwargs, refill_fn=refill_fn,
    )  # fmt: skip


def trajectory(*results: EvalResult) -> tuple[list[int], list[TurnRecord]]:
    """A mask of turns of 3, 4, 5... tokens with 2 feedback tokens between them."""
    mask: list[int] = []
    turns = []
    for number, result in enumerate(results):
        mask += [0, 0] if number else []
        turns.append(turn(result, len(mask), len(mask) + 3 + number, reward=1.0))
        mask += [1] * (3 + number)
    return mask, turns


def put(
    partition: str, uid: str, rows: list[tuple[list[int], list[TurnRecord]]], with_turns: bool = True,
    prompt: tuple[int, ...] = (1, 2), step: int = 1,
) -> None:  # fmt: skip
    """Store a prompt and its rollouts; without turns, as another agent loop does, with a reward of 1 at their ends."""
    fields = []
    for mask, turns in rows:
        ours = {"kernel_gym_seconds": 3.0, "kernel_generate_seconds": 1.0}
        ours |= {"reward_extra_info": summarise(turns)}
        extra = ours if with_turns else {"reward_extra_info": extra_info(turns[-1].result)}
        own = {"turns": tuple(turns)} if with_turns else {}
        output = (KernelAgentOutput if with_turns else AgentLoopOutput)(
            **own, prompt_ids=list(prompt), response_ids=[3] * len(mask), response_mask=mask, reward_score=1.0,
            metrics=AgentLoopMetrics(), extra_fields=extra,
        ).as_dict()  # fmt: skip
        reference = {"style": "rule", "ground_truth": f"reference of {uid}"}
        fields.append(output | {"loss_mask": output["response_mask"], "uid": uid, "reward_model": reference})
    tq.kv_batch_put(
        keys=[f"{uid}_{session}_0" for session in range(len(rows))], partition_id=partition,
        fields=list_of_dict_to_tensordict(fields), tags=[{"status": "success", "global_steps": step} for _ in rows],
    )  # fmt: skip
    tq.kv_put(key=uid, partition_id=partition, tag={"is_prompt": True, "status": "finished", "global_steps": step})


def masks(batch: tq.KVBatchMeta, neutral: str | None = None) -> dict[str, tuple[list[int], list[int]]]:
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "loss_mask", "rm_scores"]
    )
    scores = dict(zip(batch.keys, data["rm_scores"].unbind(), strict=True))
    assert all((row[row != 0] == 1.0).all() for row in scores.values()), "rewards were edited"
    assert all(row.any() == (key != neutral) for key, row in scores.items()), "rewards were taken away"
    rows = zip(data["response_mask"].unbind(), data["loss_mask"].unbind(), strict=True)
    return {key: (a.tolist(), b.tolist()) for key, (a, b) in zip(batch.keys, rows, strict=True)}


def clear(batch: tq.KVBatchMeta) -> None:
    tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)


def advantages_of(batch: tq.KVBatchMeta, estimator: str) -> torch.Tensor:
    names = ["uid", "response_mask", "rm_scores"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    padded = {name: pad_sequence(list(data[name].unbind()), batch_first=True) for name in names[1:]}
    index = np.array([getattr(uid, "data", uid) for uid in data["uid"]], dtype=object)
    given = {"token_level_rewards": padded["rm_scores"], "response_mask": padded["response_mask"], "index": index}
    return get_adv_estimator_fn(estimator)(**given, config=AlgoConfig(adv_estimator=estimator))[0]


def prompts(keys: Iterable[str]) -> set[str]:
    return {key.split("_")[0] for key in keys}


def left() -> set[str]:
    return {key for items in (tq.kv_list() or {}).values() for key in items}
