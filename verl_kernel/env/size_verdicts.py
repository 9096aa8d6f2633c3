# SPDX-License-Identifier: Apache-2.0
"""Judges a candidate at each size of a task, and makes one verdict of all of them.

A kernel that is right, or fast, at one size only would otherwise earn what a kernel earns that works at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus, SizeVerdict
from verl_kernel.env.sizes import size_name
from verl_kernel.env.task import Task


def at_sizes(request: EvalRequest) -> list[EvalRequest]:
    """Return a request for each size of the task; the request itself for a task of one."""
    if not request.task.workloads:
        return [request]
    return [replace(request, task=request.task.at_size(workload)) for workload in request.task.workloads]


def joined(task: Task, results: Sequence[EvalResult]) -> EvalResult:
    """Return one verdict of those at several sizes.

    It is right where all are, and its speedup is their geometric mean. All else that it says is that of its worst size:
    the first that is not rewarded, else the one with the least speedup.
    """
    names = [size_name(workload) for workload in task.workloads]
    verdicts = tuple(size_verdict(name, result) for name, result in zip(names, results, strict=False))
    worst = _worst(results)
    result = results[worst]
    known: dict[str, object] = {"task_id": task.task_id, "task_hash": task.text_hash, "sizes": verdicts}
    known["stage_seconds"] = _added([one.stage_seconds for one in results])
    if result.error is not None:
        known["error"] = result.error.model_copy(update={"message": f"at {names[worst]}: {result.error.message}"})
    if not all(one.solves for one in results):
        return result.model_copy(update={**known, "speedup": None, "speedup_low": None, "speedup_interval": None})
    return result.model_copy(
        update={
            **known,
            "speedup": _mean([one.speedup for one in results]),
            "speedup_low": _mean([one.speedup_low for one in results]),
            "speedup_interval": _mean_interval(results),
            "hack_flags": tuple(dict.fromkeys(flag for one in results for flag in one.hack_flags)),
            "task_flags": tuple(dict.fromkeys(flag for one in results for flag in one.task_flags)),
        }
    )


def _worst(results: Sequence[EvalResult]) -> int:
    # A recorded decoy solves its task, and is not rewarded: at one size it must not hide behind a slower one.
    wrong = [index for index, result in enumerate(results) if not result.rewarded]
    lost = [index for index in wrong if results[index].status is EvalStatus.INFRA_ERROR]
    if wrong:
        return (lost or wrong)[0]
    return min(range(len(results)), key=lambda index: results[index].speedup or 0.0)


def size_verdict(name: str, result: EvalResult) -> SizeVerdict:
    """Return what a result at one size says of it."""
    return SizeVerdict(
        name=name,
        status=result.status,
        speedup=result.speedup,
        speedup_low=result.speedup_low,
        kernel_ms=None if result.kernel_ms is None else result.kernel_ms.median,
        reference_ms=None if result.reference_ms is None else result.reference_ms.median,
        time_coverage=result.time_coverage,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean; None if a value is unknown."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return math.exp(math.fsum(math.log(value) for value in known) / len(known)) if all(known) else 0.0


def _mean_interval(results: Sequence[EvalResult]) -> tuple[float, float] | None:
    """Return the geometric means of both ends: errors of a model of a GPU are shared by all sizes of a kernel."""
    ends = [result.speedup_interval for result in results]
    low, high = (_mean([None if pair is None else pair[end] for pair in ends]) for end in (0, 1))
    return None if low is None or high is None else (low, high)


def _added(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        stage: sum(part.get(stage, 0.0) for part in parts)
        for stage in dict.fromkeys(key for part in parts for key in part)
    }
