# SPDX-License-Identifier: Apache-2.0
"""The roofline of a task: the time of its forward at a GPU's peak rates (Williams et al., CACM 52(4), 2009).

It depends on the reference only, so no candidate can change it, and no verdict or reward reads it. A kernel that needs
less work than the reference's ops, such as one that skips the zeros of a triangular matrix, may be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.env.gpus import Gpu
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.trace import TraceEvent

_SPLITS = 3
"""Number of products of 16-bit parts that replace a float32 product (bf16x3), the fastest way on tensor cores."""


@dataclass(frozen=True)
class Demand:
    """Least memory traffic and work of a forward."""

    read: int
    """Bytes of inputs and weights that its ops read, each once; gathered tensors do not count."""
    written: int
    """Bytes of its outputs, except those that are views of inputs or weights."""
    flops: int
    """Operations of products (of matrices, convolutions, attention) on operands of 32 bits."""
    half_flops: int
    """Operations of products on operands of 16 bits."""

    @classmethod
    def of(cls, events: Sequence[TraceEvent], read: int, written: int) -> Demand:
        """Compute the demand of a forward with these events."""
        products = [event for event in events if any(step.flops for step in event.steps)]
        half = sum(event.half_flops for event in products)
        return cls(read, written, sum(event.flops for event in products) - half, half)


def flop_rates(gpu: Gpu, tf32: bool) -> tuple[float, float]:
    """Return the peak operations per second of products of 32-bit operands, and of 16-bit ones."""
    half = gpu.half_tflops * 1e12
    single = max(gpu.tflops * 1e12, half / _SPLITS, gpu.tf32_tflops * 1e12 if tf32 else 0.0)
    return single, half


def roofline_ms(demand: Demand, machine: MachineModel) -> float | None:
    """Return the longer of memory and product time in ms, at the machine's peaks; None if nothing is counted."""
    single, half = flop_rates(machine.gpu, machine.matmul_tf32)
    moved_s = (demand.read + demand.written) / (machine.gpu.bandwidth_gbs * 1e9)
    return 1e3 * max(moved_s, demand.flops / single + demand.half_flops / half) or None
