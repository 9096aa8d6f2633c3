# SPDX-License-Identifier: Apache-2.0
"""Divides the memory of one GPU among its judges and their runners.

Each process has a limit, and all limits together fit. So a process that runs out of memory has used up its own share:
a judge that cannot prepare a reference says nothing about a candidate, and no candidate can take a judge's memory.
"""

from __future__ import annotations

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady

_CONTEXT_MB = 600
"""Memory of a CUDA context, which each process on a GPU has."""
_LEAST_MB = 256
TIMED_BYTES = 64 << 20
"""Largest size of the inputs and outputs in a timed request of several forwards."""


def judge_share_mb(total_mb: int, options: GymOptions) -> int:
    """Return the megabytes that each judge on a GPU of `total_mb` may hold.

    Raises:
        EnvironmentNotReady: the memory granted to runners leaves too little for judges.
    """
    judges, granted = options.judges_per_gpu, options.memory_mb
    share = total_mb // judges - granted - 2 * _CONTEXT_MB
    if share < _LEAST_MB:
        most_mb = total_mb // judges - 2 * _CONTEXT_MB - _LEAST_MB
        raise EnvironmentNotReady(
            f"kernelgym.memory_mb is {granted}, and {judges} of its judges share a GPU of {total_mb} MB, which leaves "
            f"a judge no memory of its own: {f'at most {most_mb} fits' if most_mb > 0 else 'let fewer judges share it'}"
        )
    return share


def misfit(needed_bytes: int, options: GymOptions) -> str | None:
    """Return why no runner with this memory limit could hold `needed_bytes`; None if one could."""
    needed_mb = -(-needed_bytes // (1 << 20))
    if needed_mb <= options.memory_mb:
        return None
    return (
        f"a runner needs {needed_mb} MB of the GPU for its weights, inputs and outputs and gets kernelgym.memory_mb = "
        f"{options.memory_mb}: raise it, or leave the task out"
    )
