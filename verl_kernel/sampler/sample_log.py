# SPDX-License-Identifier: Apache-2.0
"""Logs the samples that the trainer gets from the sampler: one JSON object per trajectory in `<step>.jsonl`.

Fields: `key` (verl's `{uid}_{session}_{output}`), `turns` (each `reward.record.TurnRecord` plus `kept`), token ids
`prompts` and `responses`, and per response token `rm_scores`, `rollout_log_probs`, `generated_mask` (1 on
model tokens) and `response_mask` (the same after rejection).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq

from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.rejection import Verdict

_TENSORS = ("prompts", "responses", "rm_scores", "rollout_log_probs")


class SampleLog:
    """Keeps the files; an earlier run's files for the first batch's step and later steps become `<step>.jsonl.old`.

    Args:
        folder: folder of the files; created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = False

    def write(
        self,
        step: int,
        batch: tq.KVBatchMeta,
        turns: Sequence[Sequence[TurnRecord]],
        verdicts: Sequence[Sequence[Verdict]],
        masks: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
    ) -> None:
        """Append a batch to the step's file; an asynchronous trainer may sample several in a step.

        Args:
            step: the training step, which names the file.
            batch: the sampled keys.
            turns: per trajectory, its turns.
            verdicts: per trajectory, the decision on each turn.
            masks: per trajectory, the response mask before and after rejection.
        """
        if not self._open:
            self._begin(step)
        with (self._folder / f"{step}.jsonl").open("a", encoding="utf-8") as file:
            for row in _lines(step, batch, turns, verdicts, masks):
                file.write(json.dumps(row) + "\n")

    def _begin(self, step: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob("*.jsonl"):
            if path.stem.isdecimal() and int(path.stem) >= step:
                path.replace(path.with_name(f"{path.name}.old"))
        self._open = True


def _lines(
    step: int,
    batch: tq.KVBatchMeta,
    turns: Sequence[Sequence[TurnRecord]],
    verdicts: Sequence[Sequence[Verdict]],
    masks: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
) -> Iterator[dict[str, Any]]:
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_TENSORS))
    columns = {name: [row.tolist() for row in data[name].unbind()] for name in _TENSORS if name in data.keys()}  # noqa: SIM118  a TensorDict has no `in`
    columns["generated_mask"], columns["response_mask"] = ([mask.tolist() for mask in kind] for kind in masks)
    for i, key in enumerate(batch.keys):
        judged = [
            {**turn.model_dump(mode="json"), "kept": verdict.kept}
            for turn, verdict in zip(turns[i], verdicts[i], strict=True)
        ]
        yield {"key": key, "step": step, "turns": judged, **{name: rows[i] for name, rows in columns.items()}}
