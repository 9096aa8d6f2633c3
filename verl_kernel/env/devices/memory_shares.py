# SPDX-License-Identifier: Apache-2.0
"""How the memory of one GPU is divided among its judges and their runners.

Each has a ceiling, and all of them together fit. So whoever runs out of memory has used up what was its own: a judge
that cannot prepare a reference says nothing about a candidate, and no candidate can take a judge's memory away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady

if TYPE_CHECKING:  # it imports devices
    from verl_kernel.env.reference import Reference

_CONTEXT_MB = 600
"""What a process takes by using a GPU at all."""
_LEAST_MB = 256


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


def runner_needs_mb(reference: Reference, clock_bytes: int) -> int:
    """Megabytes without which no runner can be asked.

    They hold the reference's weights and the candidate's, the inputs, the places of the outputs and the outputs, and
    `clock_bytes` of the clock.
    """
    needed = 2 * tensor_bytes(reference) + reference.input_bytes + 2 * reference.output_bytes + clock_bytes
    return -(-needed // (1 << 20))


def tensor_bytes(reference: Reference) -> int:
    """Size of a reference's weights and arguments."""
    tensors: list[torch.Tensor] = [*reference.init.tensors, *reference.state.values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def misfit(reference: Reference, options: GymOptions, clock_bytes: int) -> str | None:
    """Why no runner with this grant could hold the task's tensors, or None."""
    needed = runner_needs_mb(reference, clock_bytes)
    if needed <= options.memory_mb:
        return None
    return (
        f"a runner needs {needed} MB of the GPU for its weights, inputs and outputs and gets kernelgym.memory_mb = "
        f"{options.memory_mb}: raise it, or leave the task out"
    )
