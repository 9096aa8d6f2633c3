# SPDX-License-Identifier: Apache-2.0
"""How the memory of one GPU is divided among its judges and their runners.

Each has a ceiling, and all of them together fit. So whoever runs out of memory has used up what was its own: a judge
that cannot prepare a reference says nothing about a candidate, and no candidate can take a judge's memory away.
"""

from __future__ import annotations

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady

_CONTEXT_MB = 600
"""Memory of a CUDA context, which each process on a GPU has."""
_LEAST_MB = 256
TIMED_BYTES = 64 << 20
"""Inputs and outputs of a timed request of several forwards, at most."""


def judge_share_mb(total_mb: int, options: GymOptions) -> int:
    """Megabytes that each judge on a GPU of `total_mb` may hold.

    Raises:
        EnvironmentNotReady: what runners are granted leaves it none.
    """
    judges, granted = options.judges_per_gpu, options.memory_mb
    share = total_mb // judges - granted - 2 * _CONTEXT_MB
    if share < _LEAST_MB:
        most = total_mb // judges - 2 * _CONTEXT_MB - _LEAST_MB
        raise EnvironmentNotReady(
            f"kernelgym.memory_mb is {granted}, and {judges} of its judges share a GPU of {total_mb} MB, which leaves "
            f"a judge no memory of its own: {f'at most {most} fits' if most > 0 else 'let fewer judges share it'}"
        )
    return share


def misfit(needed_bytes: int, options: GymOptions) -> str | None:
    """Why no runner with this grant could hold what it needs, or None."""
    needed_mb = -(-needed_bytes // (1 << 20))
    if needed_mb <= options.memory_mb:
        return None
    return (
        f"a runner needs {needed_mb} MB of the GPU for its weights, inputs and outputs and gets kernelgym.memory_mb = "
        f"{options.memory_mb}: raise it, or leave the task out"
    )
