# SPDX-License-Identifier: Apache-2.0
"""Nominal GPUs and what counted work takes on them.

time = sum over device kernels of launch_overhead + max(bytes / bandwidth, arithmetic time), a roofline per kernel.
It depends on the counted events alone, so it is the same on every machine and in every run. float32 products are
charged at the float32 rate whoever issues them: the interpreter does not round to TF32, so neither side may gain by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from verl_kernel.env.trace import TraceEvent


@dataclass(frozen=True)
class GpuProfile:
    """Nominal peaks of a GPU."""

    name: str
    bandwidth_gbs: float
    """Device memory, 1e9 bytes per second."""
    tflops: float
    """float32 without tensor cores, 1e12 operations per second."""
    half_tflops: float
    """Dense 16-bit matrix products on tensor cores, 1e12 operations per second."""
    launch_overhead_us: float = 4.0
    """Shortest distance between two kernels of one stream. NVIDIA measured 3.8 us for back-to-back short kernels
    ("Getting Started with CUDA Graphs", 2019)."""


PROFILES = {
    # NVIDIA H100 SXM5 80 GB data sheet: HBM3 3.35 TB/s, FP32 67 TFLOPS, FP16 tensor core 989.4 TFLOPS (dense).
    "h100": GpuProfile("NVIDIA H100 SXM5 80GB", bandwidth_gbs=3350.0, tflops=67.0, half_tflops=989.4),
    # NVIDIA A100 SXM4 80 GB data sheet: HBM2e 2,039 GB/s, FP32 19.5 TFLOPS, FP16 tensor core 312 TFLOPS (dense).
    "a100": GpuProfile("NVIDIA A100 SXM4 80GB", bandwidth_gbs=2039.0, tflops=19.5, half_tflops=312.0),
}


def event_ms(event: TraceEvent, profile: GpuProfile) -> float:
    """Milliseconds of one device kernel."""
    memory = event.bytes / (profile.bandwidth_gbs * 1e6)
    vector = (event.flops - event.half_flops) / (profile.tflops * 1e9)
    tensor = event.half_flops / (profile.half_tflops * 1e9)
    return profile.launch_overhead_us / 1e3 + max(memory, vector + tensor)


def time_ms(events: Sequence[TraceEvent], profile: GpuProfile) -> float:
    """Milliseconds of one forward; 0 if it needs no device kernel."""
    return fsum(event_ms(event, profile) for event in events)
