# SPDX-License-Identifier: Apache-2.0
"""PRS as a replay buffer of verl's V1 trainer, for its sync and both of its async modes.

Selected by `trainer.v1.sampler.custom_sampler.{path: pkg://verl_kernel.sampler.prs, name: PRSReplayBuffer}`. After
verl's own `sample` has chosen the trajectories of a training step, the buffer reads their turns (the JSON that the
agent loop left in `extra_fields["kernel_turns"]`), lets `rejection` decide, sets the mask of rejected turns to 0 in
TransferQueue, and adds `prs/*`, `groups/*` and `kernel/*` to the metrics that `sample` returns. Rewards are not
edited, so a rejected turn still counts in returns and baselines; it is checked that rewards still mark the
ends of turns. Trajectories with a turn that the gym could not judge leave the batch before. Validation is not changed.

verl refuses a batch without a single loss token. Where rejection leaves none, the step is made neutral: the rejected
turn of the highest coverage gets its mask back, and its row gets a separate uid and rewards of 0, so that its advantage
is 0.

Zero-variance groups (`groups`) are replaced before sampling (`refill`), or leave the batch after it. Pools and counts
of Reinforce-Ada are read where it is on (`adaptive`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from verl_kernel.errors import InfraError
from verl_kernel.reward import first_validation
from verl_kernel.sampler.adaptive import AdaptiveReplayBuffer
from verl_kernel.sampler.groups import prompt_of, zero_variance_prompts
from verl_kernel.sampler.logs import KernelLog, SampleLog
from verl_kernel.sampler.metrics import (
    accepted_metrics,
    gradient_metrics,
    kernel_metrics,
    selection_metrics,
    unjudged_metrics,
    waiting_metrics,
)
from verl_kernel.sampler.options import GROUP_STD, PRSOptions
from verl_kernel.sampler.rejection import TurnDecision, judge_turns, prs_metrics
from verl_kernel.sampler.rows import (
    TrajectoryRow,
    check_markers,
    keep_rows,
    punched_mask,
    read_rows,
    write_masks,
    write_neutral,
)

logger = logging.getLogger(__name__)


class PRSReplayBuffer(AdaptiveReplayBuffer):
    """verl's replay buffer followed by profiling-based rejection of turns; asynchronous if the trainer is.

    Args:
        trainer_mode: `sync`, `colocate_async` or `separate_async`.
        sampler_kwargs: the keys of `options.PRSOptions`.
        kwargs: all other arguments that verl passes to a sampler.

    Raises:
        ConfigError: `sampler_kwargs` holds an unknown key or a bad value.
    """

    def __new__(cls, trainer_mode: str, **kwargs: Any) -> PRSReplayBuffer:
        """Choose verl's asynchronous sampling policy for its asynchronous trainers."""
        kind: type[PRSReplayBuffer] = cls
        if trainer_mode != "sync" and not issubclass(cls, ReplayBufferAsync):
            kind = PRSReplayBufferAsync
            if cls is not PRSReplayBuffer:
                # Python calls __init__ only on an instance of cls, so each subclass needs its own asynchronous twin.
                kind = type(f"{cls.__name__}Async", (cls, PRSReplayBufferAsync), {})
        buffer: PRSReplayBuffer = super().__new__(kind)
        return buffer

    def __init__(self, trainer_mode: str, sampler_kwargs: Mapping[str, Any] | None, **kwargs: Any) -> None:
        options = PRSOptions.from_node(sampler_kwargs)
        super().__init__(options, trainer_mode=trainer_mode, sampler_kwargs=sampler_kwargs, **kwargs)
        self._neutral_steps = 0
        self._kernel_log = KernelLog(Path(options.best_kernels)) if options.best_kernels else None
        self._sample_log = SampleLog(Path(options.record_dir)) if options.record_dir else None

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[tq.KVBatchMeta, dict[str, Any]]:
        """Sample as verl does, then drop zero-variance groups and reject turns of a training batch.

        Args:
            global_steps: the training step.
            partition_id: `train` or `val`.
            batch_size: number of prompts.

        Returns:
            The batch, and verl's metrics joined by ours.

        Raises:
            DataError: rewards no longer mark the ends of turns (`rows.check_markers`).
            InfraError: no trajectory could be judged.
        """
        batch, metrics = super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        if partition_id == "val" and batch.keys:
            turns = (turn for row in read_rows(batch, global_steps) for turn in row.turns)
            first_validation.note(turns, self.options.least_programs)
        if partition_id == "val" or not batch.keys:
            return batch, metrics
        rows = read_rows(batch, global_steps)
        check_markers(partition_id, rows, global_steps)
        metrics |= kernel_metrics([row.turns for row in rows]) | unjudged_metrics(rows) | waiting_metrics(rows)
        metrics |= self._adapt(batch, rows, global_steps)
        if self._kernel_log is not None:
            self._kernel_log.update(global_steps, partition_id, rows)
        batch, rows = self._drop_unjudged(batch, rows, global_steps)
        batch, rows, group_metrics = self._drop_zero_variance(batch, rows)
        return batch, metrics | group_metrics | self._reject(batch, rows, global_steps)

    def _drop_unjudged(
        self, batch: tq.KVBatchMeta, rows: list[TrajectoryRow], step: int
    ) -> tuple[tq.KVBatchMeta, list[TrajectoryRow]]:
        """Remove the trajectories with a turn that the gym could not judge, so that no group counts them."""
        if all(row.unjudged for row in rows):
            raise InfraError(
                f"step {step}: the gym could judge none of the {len(rows)} trajectories: find out why in its log "
                "(`verl-kernel serve-status` shows its judges), and resume from the last checkpoint"
            )
        return keep_rows(batch, rows, lambda row: not row.unjudged)

    def _drop_zero_variance(
        self, batch: tq.KVBatchMeta, rows: list[TrajectoryRow]
    ) -> tuple[tq.KVBatchMeta, list[TrajectoryRow], dict[str, float]]:
        """Report the share of zero-variance groups and drop them if asked to, unless none would be left."""
        options = self.options
        flat = zero_variance_prompts(((row.key, row.turns) for row in rows), GROUP_STD, options.group_spread)
        metrics = {"groups/flat_fraction": sum(flat.values()) / len(flat)} if any(row.turns for row in rows) else {}
        if options.group_filter != "drop":
            return batch, rows, metrics
        if all(flat.values()):
            return batch, rows, metrics | {"groups/dropped": 0.0}
        batch, rows = keep_rows(batch, rows, lambda row: not flat[prompt_of(row.key)])
        return batch, rows, metrics | {"groups/dropped": float(sum(flat.values()))}

    def _reject(self, batch: tq.KVBatchMeta, rows: Sequence[TrajectoryRow], step: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if self.options.enabled:
            verdicts = [judge_turns(row.name, row.turns, row.step, self.options) for row in rows]
            masks = [punched_mask(row, judged) for row, judged in zip(rows, verdicts, strict=True)]
            neutral = self._neutralise(batch.partition_id, rows, verdicts, masks, step)
            write_masks(batch.partition_id, rows, masks)
            metrics = prs_metrics(verdicts) | selection_metrics(rows, verdicts) | {"prs/neutral_step": float(neutral)}
        else:
            verdicts, masks = (
                [[TurnDecision(None, is_kept=True) for _ in row.turns] for row in rows],
                [row.mask for row in rows],
            )
        if self._sample_log is not None:
            before = [row.mask for row in rows]
            self._sample_log.write(step, batch, [row.turns for row in rows], verdicts, (before, masks))
        return metrics | accepted_metrics(rows, verdicts) | gradient_metrics(rows, verdicts, GROUP_STD)

    def _neutralise(
        self,
        partition_id: str,
        rows: Sequence[TrajectoryRow],
        verdicts: Sequence[Sequence[TurnDecision]],
        masks: list[torch.Tensor],
        step: int,
    ) -> bool:
        """Restore one turn, in `masks` too, with an advantage of 0 if rejection left no token; return if it did."""
        rejected = [(i, t) for i, row in enumerate(verdicts) for t, verdict in enumerate(row) if not verdict.is_kept]
        if not rejected or any(mask.any() for mask in masks):
            return False
        i, t = max(rejected, key=lambda at: (self._coverage(rows[at[0]], at[1]), rows[at[0]].name, at[1]))
        turn = rows[i].turns[t]
        masks[i][turn.start : turn.stop] = rows[i].mask[turn.start : turn.stop]
        write_neutral(partition_id, rows[i])
        self._neutral_steps += 1
        logger.warning(
            "step %d: all %d turns were rejected, so the step teaches nothing (%d such steps so far); is %s too low?",
            step,
            len(rejected),
            self._neutral_steps,
            self.options.key,
        )
        return True

    def _coverage(self, row: TrajectoryRow, turn: int) -> float:
        return float(getattr(row.turns[turn].result, self.options.key) or 0.0)


class PRSReplayBufferAsync(PRSReplayBuffer, ReplayBufferAsync):  # type: ignore[misc]
    """`PRSReplayBuffer` over verl's asynchronous sampling policy."""
