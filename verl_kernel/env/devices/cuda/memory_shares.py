# SPDX-License-Identifier: Apache-2.0
"""Divides the memory of one GPU among its judges and their runners.

Each process has a limit, and all limits together fit. So a process that runs out of memory has used up its own share:
a judge that cannot prepare a reference says nothing about a candidate, and no candidate can take a judge's memory.
Where several judges share a GPU, a task that is too large for their parts has the GPU alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady

_CONTEXT_MB = 600
"""Memory of a CUDA context, which each process on a GPU has."""
_LEAST_MB = 256
CACHE_SHARE = 4
"""Cached references may take one part in this number of a judge's memory."""
TIMED_BYTES = 64 << 20
"""Largest size of the inputs and outputs in a timed request of several forwards."""


@dataclass(frozen=True)
class Shares:
    """Megabytes of a GPU that a judge and its runner may hold."""

    judge: int
    runner: int


def shares(total_mb: int, options: GymOptions) -> tuple[Shares, Shares]:
    """Divide a GPU of `total_mb`; return what each judge has beside the others, and what one has that is alone.

    Raises:
        EnvironmentNotReady: the memory granted to a runner leaves its judge too little.
    """
    judges, granted = options.judges_per_gpu, options.memory_mb
    room = total_mb // judges - 2 * _CONTEXT_MB
    runner = granted if judges == 1 else min(granted, room // 2)
    beside = Shares(room - runner, runner)
    # The others keep their contexts and references.
    kept = (judges - 1) * (2 * _CONTEXT_MB + beside.judge // CACHE_SHARE)
    alone = Shares(total_mb - 2 * _CONTEXT_MB - kept - granted, granted)
    if min(beside.judge, alone.judge) < _LEAST_MB:
        most_mb = granted + alone.judge - _LEAST_MB
        raise EnvironmentNotReady(
            f"kernelgym.memory_mb is {granted}, and {judges} of its judges share a GPU of {total_mb} MB, which leaves "
            f"a judge no memory of its own: {f'at most {most_mb} fits' if most_mb > 0 else 'let fewer judges share it'}"
        )
    return beside, alone


def misfit(needed_bytes: int, options: GymOptions) -> str | None:
    """Return why no runner with this memory limit could hold `needed_bytes`; None if one could."""
    needed_mb = -(-needed_bytes // (1 << 20))
    if needed_mb <= options.memory_mb:
        return None
    return (
        f"a runner needs {needed_mb} MB of the GPU for its weights, inputs and outputs and gets kernelgym.memory_mb = "
        f"{options.memory_mb}: raise it, or leave the task out"
    )
