# SPDX-License-Identifier: Apache-2.0
"""The best verified kernel of each task, from a bench run or from a training run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from verl_kernel.bench.kernel_files import Provenance
from verl_kernel.bench.records import BenchTurn, RunHeader
from verl_kernel.bench.run_files import HEADER, read_run
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError
from verl_kernel.reporting.kernels import Kernel, read_kernels, sure_speedup_of

LOG = "kernels.jsonl"
"""File in which a training run keeps its best kernels (`sampler.kernel_log`)."""


@dataclass(frozen=True)
class BestKernel:
    """A kernel that may earn a reward, with its origin."""

    provenance: Provenance
    code: str
    order: tuple[int, ...]
    """Key that tells which of two kernels is the earlier one."""


def best_of_run(folder: Path) -> list[BestKernel]:
    """Return the best kernel of each task that has one, sorted by the task's name.

    The best kernel is the verified one with the highest sure speedup, and the earliest among equals. A kernel of
    unknown speedup is chosen only if there is no other.

    Raises:
        DataError: the folder holds neither a bench run nor a training run that logged its kernels.
    """
    if (folder / HEADER).is_file():
        return _best(_of_bench(folder, *read_run(folder)))
    if not (folder / LOG).is_file():
        raise DataError(
            f"{folder} holds neither {HEADER} of a bench nor {LOG} of a training run: name a run's folder (a training "
            "run writes the file where trainer.v1.sampler.sampler_kwargs.best_kernels names it)"
        )
    date = datetime.fromtimestamp((folder / LOG).stat().st_mtime, timezone.utc)
    return _best(_of_training(folder, one, date.isoformat(timespec="seconds")) for one in read_kernels(folder / LOG))


def _best(kernels: Iterable[BestKernel]) -> list[BestKernel]:
    best: dict[str, BestKernel] = {}
    for kernel in sorted(kernels, key=lambda one: one.order):
        known = best.get(kernel.provenance.task)
        if known is None or kernel.provenance.rank > known.provenance.rank:
            best[kernel.provenance.task] = kernel
    return [best[task] for task in sorted(best)]


def _of_bench(folder: Path, header: RunHeader, turns: Iterable[BenchTurn]) -> Iterable[BestKernel]:
    for turn in turns:
        if not turn.result.rewarded or turn.result.memory_findings or turn.code is None:
            continue
        result = turn.result
        provenance = Provenance(
            task=turn.task_id, task_hash=turn.task_hash, run=folder.resolve().name, model=header.model,
            speedup=result.speedup, sure_speedup=result.sure_speedup, timing_source=result.timing_source,
            reference_mode=result.reference_mode, device=_device(result.env) or header.device,
            versions=_versions(result.env) or _versions(header.versions), sample=str(turn.sample), turn=turn.turn,
            date=header.started,
        )  # fmt: skip
        yield BestKernel(provenance, turn.code, (turn.turn, turn.sample))


def _of_training(folder: Path, kernel: Kernel, date: str) -> BestKernel:
    """Read a line of the log; lines of older runs lack the device and the sure speedup."""
    source, env = _text(kernel.get("timing_source")), kernel.get("env")
    facts = env if isinstance(env, dict) else {}
    provenance = Provenance(
        task=kernel["task_id"], task_hash=_hash(kernel), run=folder.resolve().name, model=None,
        speedup=kernel["speedup"], sure_speedup=sure_speedup_of(kernel), timing_source=source,
        reference_mode=_text(kernel.get("reference_mode")), device=_device(facts), versions=_versions(facts),
        sample=_text(kernel.get("sample")), turn=kernel["turn"], date=date, step=kernel["step"],
    )  # fmt: skip
    return BestKernel(provenance, kernel["code"], (kernel["step"], kernel["turn"]))


def _hash(kernel: Kernel) -> str | None:
    entry = re.search(r"^class\s+(\w+)New\b", kernel["code"], re.MULTILINE)
    try:
        return Task(kernel.get("reference") or "", entry_point=entry[1] if entry else "Model").text_hash
    except TaskError:  # The log has no reference, or one under another name.
        return None


def _device(env: Mapping[str, Any]) -> str | None:
    """Return the GPU to which the times belong, measured or simulated."""
    return _text(env.get("gpu_name") or env.get("gpu_profile") or env.get("device"))


def _versions(env: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{key} {env[key]}" for key in ("python", "torch", "triton") if key in env) or None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
