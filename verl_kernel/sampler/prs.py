# SPDX-License-Identifier: Apache-2.0
"""PRS as a replay buffer of verl's V1 trainer, for its sync and both of its async modes.

Selected by `trainer.v1.sampler.custom_sampler.{path: pkg://verl_kernel.sampler.prs, name: PRSReplayBuffer}`. After
verl's own `sample` has chosen the trajectories of a training step, the buffer reads their turns (the JSON that the
agent loop left in `extra_fields["kernel_turns"]`), lets `rejection` decide, sets the mask of rejected turns to 0 in
TransferQueue, and adds `prs/*` and `kernel/*` to the metrics that `sample` returns. Rewards are never
edited, so a rejected turn still counts in returns and baselines. Validation is left alone.

verl refuses a batch without a single loss token. If rejection would leave none, the rejected turn of the highest
coverage is put back (`prs/forced_keep` is 1 then): one lazy kernel in the loss is the smallest departure from
the rule that lets the step run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from verl_kernel.evaluation.metrics import kernel_metrics
from verl_kernel.reward.record import TurnRecord, load_turns
from verl_kernel.sampler.rejection import PRSOptions, Verdict, judge_turns, prs_metrics
from verl_kernel.sampler.sample_log import log_samples

TURNS_FIELD = "kernel_turns"
UNJUDGED_FIELD = "kernel_unjudged"


class PRSReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """verl's replay buffer followed by profiling-based rejection of turns; asynchronous where the trainer is.

    Args:
        trainer_mode: `sync`, `colocate_async` or `separate_async`.
        sampler_kwargs: the keys of `rejection.PRSOptions`.
        kwargs: the rest of what verl hands to a sampler.

    Raises:
        ConfigError: `sampler_kwargs` holds an unknown key or a bad value.
    """

    def __new__(cls, trainer_mode: str, **kwargs: Any) -> PRSReplayBuffer:
        """Choose verl's asynchronous sampling policy for its asynchronous trainers."""
        kind = cls if trainer_mode == "sync" or issubclass(cls, ReplayBufferAsync) else PRSReplayBufferAsync
        buffer: PRSReplayBuffer = super().__new__(kind)
        return buffer

    def __init__(self, trainer_mode: str, sampler_kwargs: Mapping[str, Any] | None, **kwargs: Any) -> None:
        self.options = PRSOptions.from_node(sampler_kwargs)
        super().__init__(
            trainer_mode=trainer_mode,
            sampler_kwargs=sampler_kwargs,
            poll_interval=self.options.poll_interval_s,
            **kwargs,
        )

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[tq.KVBatchMeta, dict[str, Any]]:
        """Sample as verl does, then reject turns of a training batch.

        Args:
            global_steps: the training step.
            partition_id: `train` or `val`.
            batch_size: number of prompts.

        Returns:
            The batch, and verl's metrics joined by ours.
        """
        batch, metrics = super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        if partition_id != "val" and batch.keys:
            metrics = metrics | self._reject(batch, global_steps)
        return batch, metrics

    def _reject(self, batch: tq.KVBatchMeta, step: int) -> dict[str, float]:
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields", "response_mask"]
        )
        turns = [_turns_of(entry) for entry in data["extra_fields"]]
        masks = list(data["response_mask"].unbind())
        metrics = kernel_metrics(turns, sum(_fields(entry).get(UNJUDGED_FIELD, 0) for entry in data["extra_fields"]))
        if self.options.enabled:
            verdicts = [judge_turns(key, row, step, self.options) for key, row in zip(batch.keys, turns, strict=True)]
            punched, forced = _punch_batch(masks, turns, verdicts, self.options)
            _write_masks(batch, masks, punched)
            metrics |= prs_metrics(verdicts) | {"prs/forced_keep": float(forced)}
        else:
            verdicts, punched = [[Verdict(None, kept=True) for _ in row] for row in turns], masks
        if self.options.record_dir:
            log_samples(Path(self.options.record_dir), step, batch, turns, verdicts, (masks, punched))
        return metrics


class PRSReplayBufferAsync(PRSReplayBuffer, ReplayBufferAsync):  # type: ignore[misc]
    """`PRSReplayBuffer` over verl's asynchronous sampling policy."""


def _fields(entry: Any) -> Mapping[str, Any]:
    fields = getattr(entry, "data", entry)  # TransferQueue may wrap what is no tensor.
    return fields if isinstance(fields, Mapping) else {}


def _turns_of(entry: Any) -> tuple[TurnRecord, ...]:
    text = _fields(entry).get(TURNS_FIELD)
    return load_turns(text) if text else ()


def _punch(mask: torch.Tensor, turns: Sequence[TurnRecord], verdicts: Sequence[Verdict]) -> torch.Tensor:
    punched = mask.clone()
    for turn, verdict in zip(turns, verdicts, strict=True):
        if not verdict.kept:
            punched[turn.start : turn.stop] = 0
    return punched


def _punch_batch(
    masks: Sequence[torch.Tensor],
    turns: Sequence[Sequence[TurnRecord]],
    verdicts: list[list[Verdict]],
    options: PRSOptions,
) -> tuple[list[torch.Tensor], bool]:
    """Masks without the rejected turns, and whether a turn had to be put back (also into `verdicts`)."""
    punched = [_punch(*row) for row in zip(masks, turns, verdicts, strict=True)]
    rejected = [(i, t) for i, row in enumerate(verdicts) for t, verdict in enumerate(row) if not verdict.kept]
    if not rejected or any(mask.any() for mask in punched):
        return punched, False
    i, t = max(rejected, key=lambda at: float(getattr(turns[at[0]][at[1]].result, options.key)))
    verdicts[i][t] = Verdict(verdicts[i][t].probability, kept=True)
    punched[i] = _punch(masks[i], turns[i], verdicts[i])
    return punched, True


def _write_masks(batch: tq.KVBatchMeta, before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> None:
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if not torch.equal(old, new)]
    if not changed:
        return
    # verl counts the tokens of a batch in `loss_mask` and takes the loss over `response_mask`.
    mask = torch.nested.as_nested_tensor([after[i] for i in changed], layout=torch.jagged)
    tq.kv_batch_put(
        keys=[batch.keys[i] for i in changed],
        partition_id=batch.partition_id,
        fields=TensorDict({"response_mask": mask, "loss_mask": mask.clone()}, batch_size=len(changed)),
    )
