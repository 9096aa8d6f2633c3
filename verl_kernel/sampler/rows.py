# SPDX-License-Identifier: Apache-2.0
"""Reads trajectories for the sampler from TransferQueue, and writes its changes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from verl_kernel.advantage.turns import marked_stops
from verl_kernel.errors import DataError
from verl_kernel.reward.record import TURNS_COLUMN, TurnRecord, load_turns
from verl_kernel.reward.rows import UNJUDGED
from verl_kernel.sampler.rejection import TurnDecision, trajectory_name

SECONDS_FIELDS = ("kernel_gym_seconds", "kernel_generate_seconds")


@dataclass(frozen=True)
class TrajectoryRow:
    """One sampled trajectory."""

    key: str
    """verl's `{uid}_{session}_{output}`; the uid is random."""
    name: str
    """Name of the trajectory that is the same in every run."""
    step: int
    """Training step in which the prompt was drawn; an asynchronous trainer may train on it later."""
    turns: tuple[TurnRecord, ...]
    """Turns of the trajectory; empty if another agent loop made the row."""
    mask: torch.Tensor
    """Response mask, int64 of shape (response length,)."""
    unjudged: bool
    """Whether the gym could not judge one of its turns."""
    gym_seconds: float
    """Seconds for which the trajectory waited for verdicts."""
    generate_seconds: float
    """Seconds for which it waited for the policy."""


def read_rows(batch: tq.KVBatchMeta, step: int) -> list[TrajectoryRow]:
    """Read a batch; rows whose tags name no step get `step`."""
    names = ["extra_fields", "response_mask", "prompts"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    columns = (batch.keys, batch.tags, data["extra_fields"], data["response_mask"].unbind(), data["prompts"].unbind())
    rows = []
    for key, tag, entry, mask, prompt in zip(*columns, strict=True):
        fields = fields_of(entry)
        name = trajectory_name(prompt.cpu().numpy().tobytes(), "_".join(key.rsplit("_", 2)[1:]))
        drawn_step = int(tag.get("global_steps", step))
        seconds = (float(fields.get(field, 0.0)) for field in SECONDS_FIELDS)
        rows.append(TrajectoryRow(key, name, drawn_step, turns_of(entry), mask, is_unjudged(entry), *seconds))
    return rows


def check_markers(partition_id: str, rows: Sequence[TrajectoryRow], step: int) -> None:
    """Check that the rewards in the queue mark the ends of the turns that were played.

    Raises:
        DataError: a marker has been moved, lost or added since the agent loop wrote them.
    """
    ours = [row for row in rows if row.turns]
    if not ours:
        return
    keys = [row.key for row in ours]
    data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["rm_scores"])
    for row, scores in zip(ours, data["rm_scores"].unbind(), strict=True):
        played, marked = [turn.stop for turn in row.turns], marked_stops(scores)
        if marked != played:
            raise DataError(
                f"step {step}: the turns of trajectory {row.key} end at tokens {played}, but its rm_scores "
                f"({str(scores.dtype).removeprefix('torch.')}) are other than 0 at {marked}, so turns would be taken "
                "apart wrongly: leave rm_scores in float32 as the agent loop wrote them, and put what is to be added "
                "or taken off into a reward term (docs/howto/reward_term.md)"
            )


def keep_rows(
    batch: tq.KVBatchMeta, rows: Sequence[TrajectoryRow], keeps: Callable[[TrajectoryRow], bool]
) -> tuple[tq.KVBatchMeta, list[TrajectoryRow]]:
    """Remove the rows that are not kept from a batch and from TransferQueue; verl fills up with empty ones."""
    remaining = [i for i, row in enumerate(rows) if keeps(row)]
    if len(remaining) == len(rows):
        return batch, list(rows)
    gone = sorted(set(batch.keys) - {rows[i].key for i in remaining})
    tq.kv_clear(keys=gone, partition_id=batch.partition_id)
    smaller = tq.KVBatchMeta(
        partition_id=batch.partition_id,
        keys=[batch.keys[i] for i in remaining],
        tags=[batch.tags[i] for i in remaining],
    )
    return smaller, [rows[i] for i in remaining]


def is_unjudged(entry: Any) -> bool:
    """Whether a trajectory's `extra_fields` say that the gym could not judge one of its turns."""
    return bool(fields_of(fields_of(entry).get("reward_extra_info")).get(UNJUDGED, False))


def turns_of(entry: Any) -> tuple[TurnRecord, ...]:
    """Return the turns in a trajectory's `extra_fields`; none if another agent loop made it."""
    text = fields_of(entry).get(TURNS_COLUMN)
    return load_turns(text) if text else ()


def punched_mask(row: TrajectoryRow, verdicts: Sequence[TurnDecision]) -> torch.Tensor:
    """Return the row's mask without its rejected turns."""
    mask = row.mask.clone()
    for turn, verdict in zip(row.turns, verdicts, strict=True):
        if not verdict.is_kept:
            mask[turn.start : turn.stop] = 0
    return mask


def write_masks(partition_id: str, rows: Sequence[TrajectoryRow], masks: Sequence[torch.Tensor]) -> None:
    """Write the masks that differ from those of their rows."""
    changed = [(row.key, mask) for row, mask in zip(rows, masks, strict=True) if not torch.equal(row.mask, mask)]
    if not changed:
        return
    # verl counts the tokens of a batch in `loss_mask` and takes the loss over `response_mask`.
    mask = torch.nested.as_nested_tensor([mask for _, mask in changed], layout=torch.jagged)
    fields = TensorDict({"response_mask": mask, "loss_mask": mask.clone()}, batch_size=len(changed))
    tq.kv_batch_put(keys=[key for key, _ in changed], partition_id=partition_id, fields=fields)


def write_neutral(partition_id: str, row: TrajectoryRow) -> None:
    """Make a row the only one of a new prompt, with rewards of 0: every group-relative advantage of it is 0."""
    fields = {"uid": f"neutral{uuid4().hex}", "rm_scores": torch.zeros(len(row.mask), dtype=torch.float32)}
    tq.kv_batch_put(keys=[row.key], partition_id=partition_id, fields=list_of_dict_to_tensordict([fields]))


def fields_of(entry: Any) -> Mapping[str, Any]:
    """Return a mapping that went through TransferQueue; empty if it is none."""
    fields = getattr(entry, "data", entry)  # TransferQueue may wrap values that are not tensors.
    return fields if isinstance(fields, Mapping) else {}
