# SPDX-License-Identifier: Apache-2.0
"""Two logs of a training run: its best kernels in one JSONL file, and all samples of a step in a file of its own.

The first gains a line whenever a kernel beats all earlier ones of its task. Fields: `step`, `task_id`, `turn` (from 1),
`speedup`, `time_coverage`, `number_coverage`, `reward`, `timing_source`, `kernel_ms` and `reference_ms` (medians),
`novel` (by normal form; null if it was not measured), `reference` and `code` (sources); for `verl-kernel best` also
`sample` (the trajectory's name), `sure_speedup`, `reference_mode` and `env` (device, versions). Only correct kernels of
known speedup enter.

`<step>.jsonl` holds one JSON object for each trajectory that the trainer gets. Fields: `key` (verl's
`{uid}_{session}_{output}`), `turns` (each `reward.record.TurnRecord` plus `kept`), token ids `prompts` and `responses`,
and per response token `rm_scores`, `rollout_log_probs`, `generated_mask` (1 on model tokens) and `response_mask` (the
same after rejection).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq

from verl_kernel.figures.attempts import Rank, rank
from verl_kernel.reporting.kernels import rank_of, read_kernels
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.rejection import TurnDecision
from verl_kernel.sampler.rows import TrajectoryRow, fields_of

_TENSORS = ("prompts", "responses", "rm_scores", "rollout_log_probs")


class KernelLog:
    """Keeps the file of kernels; the first batch removes an earlier run's lines of its own step and later ones.

    Args:
        path: the file; its folder is created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._best: dict[str, Rank] | None = None

    def update(self, step: int, partition_id: str, rows: Sequence[TrajectoryRow]) -> None:
        """Append the kernels of a batch that are the best of their tasks so far (`figures.attempts.rank`).

        Args:
            step: the training step.
            partition_id: where the rows are in TransferQueue, which holds their references.
            rows: the batch.
        """
        if self._best is None:
            self._best = self._open(step)
        best: dict[str, tuple[TrajectoryRow, int]] = {}
        for row, number, turn in (
            (trajectory, n, turn) for trajectory in rows for n, turn in enumerate(trajectory.turns)
        ):
            if not turn.result.rewarded or turn.code is None or not turn.result.speedup:
                continue
            kernel_rank, task = rank(turn.result.sure_speedup, turn.result.speedup), _task(row, turn)
            if task not in self._best or kernel_rank > self._best[task]:
                self._best[task], best[task] = kernel_rank, (row, number)
        if not best:
            return
        keys = [row.key for row, _ in best.values()]
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["reward_model"])
        with self._path.open("a", encoding="utf-8") as file:
            for (row, number), entry in zip(best.values(), data["reward_model"], strict=True):
                file.write(json.dumps(_line(step, row, number, fields_of(entry).get("ground_truth"))) + "\n")

    def _open(self, step: int) -> dict[str, Rank]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        earlier = [kernel for kernel in read_kernels(self._path) if kernel["step"] < step]
        self._path.write_text("".join(json.dumps(kernel) + "\n" for kernel in earlier), encoding="utf-8")
        return {kernel["task_id"]: rank_of(kernel) for kernel in sorted(earlier, key=rank_of)}


def _task(row: TrajectoryRow, turn: TurnRecord) -> str:
    """Return the task's name; if the dataset gives none, the prompt's name."""
    return turn.result.task_id or row.name.partition("_")[0]


def _line(step: int, row: TrajectoryRow, number: int, reference: str | None) -> dict[str, Any]:
    turn = row.turns[number]
    result = turn.result
    return {
        "step": step,
        "task_id": _task(row, turn),
        "turn": number + 1,
        **{key: getattr(result, key) for key in ("speedup", "time_coverage", "number_coverage", "timing_source")},
        "kernel_ms": result.kernel_ms and result.kernel_ms.median,
        "reference_ms": result.reference_ms and result.reference_ms.median,
        "reward": turn.reward,
        "novel": turn.novel,
        "sample": row.name,
        **{key: getattr(result, key) for key in ("sure_speedup", "reference_mode", "env")},
        "reference": reference,
        "code": turn.code,
    }


class SampleLog:
    """Keeps the files of samples; the first batch gives an earlier run's files of its step and later the suffix `.old`.

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
        verdicts: Sequence[Sequence[TurnDecision]],
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
    verdicts: Sequence[Sequence[TurnDecision]],
    masks: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]],
) -> Iterator[dict[str, Any]]:
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_TENSORS))
    columns = {name: [row.tolist() for row in data[name].unbind()] for name in _TENSORS if name in data.keys()}  # noqa: SIM118  a TensorDict has no `in`
    columns["generated_mask"], columns["response_mask"] = ([mask.tolist() for mask in kind] for kind in masks)
    for i, key in enumerate(batch.keys):
        judged = [
            {**turn.model_dump(mode="json"), "kept": verdict.is_kept}
            for turn, verdict in zip(turns[i], verdicts[i], strict=True)
        ]
        yield {"key": key, "step": step, "turns": judged, **{name: rows[i] for name, rows in columns.items()}}
