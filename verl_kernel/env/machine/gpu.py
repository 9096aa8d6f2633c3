# SPDX-License-Identifier: Apache-2.0
"""The GPUs that can be simulated, by their data sheets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """Peaks and sizes of a GPU."""

    name: str
    sms: int
    """Streaming multiprocessors."""
    clock_ghz: float
    bandwidth_gbs: float
    """Device memory, 1e9 bytes per second."""
    l2_mb: float
    """L2 cache, 1024**2 bytes."""
    l2_gbs: float
    """What L2 delivers, 1e9 bytes per second."""
    tflops: float
    """float32 without tensor cores, 1e12 operations per second."""
    tf32_tflops: float
    """Dense products of float32 operands rounded to TF32, on tensor cores."""
    half_tflops: float
    """Dense products of 16-bit operands on tensor cores."""
    shared_kb: int
    """Shared memory of one SM."""
    is_calibrated: bool
    """Whether the constants of the model were fitted to times of this GPU."""
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    lanes_per_sm: int = 128
    """Threads that one SM issues an instruction for in a cycle."""

    @property
    def lane_rate(self) -> float:
        """Instructions of single threads per second."""
        return self.sms * self.lanes_per_sm * self.clock_ghz * 1e9


GPUS = {
    # NVIDIA H100 SXM5 80 GB data sheet and Hopper white paper; rate of L2: published micro-benchmarks, 5.5 to 7 TB/s.
    "h100": Gpu(
        "NVIDIA H100 SXM5 80GB", sms=132, clock_ghz=1.755, bandwidth_gbs=3350.0, l2_mb=50.0, l2_gbs=5500.0,
        tflops=67.0, tf32_tflops=494.7, half_tflops=989.4, shared_kb=228, is_calibrated=True,
    ),
    # NVIDIA A100 SXM4 80 GB data sheet and Ampere architecture white paper.
    "a100": Gpu(
        "NVIDIA A100 SXM4 80GB", sms=108, clock_ghz=1.41, bandwidth_gbs=2039.0, l2_mb=40.0, l2_gbs=3900.0,
        tflops=19.5, tf32_tflops=156.0, half_tflops=312.0, shared_kb=164, is_calibrated=False, lanes_per_sm=64,
    ),
}  # fmt: skip
"""By the name in `kernelgym.gpu_profile`."""
