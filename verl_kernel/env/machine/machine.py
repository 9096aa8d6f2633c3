# SPDX-License-Identifier: Apache-2.0
"""A GPU with its rates of moving bytes and multiplying, given the precision of float32 products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_kernel.env.machine.constants import constant

# The GPUs that can be simulated, with numbers from their data sheets.


@dataclass(frozen=True)
class Gpu:
    """Peaks and sizes of a GPU."""

    name: str
    sms: int
    """Number of streaming multiprocessors."""
    clock_ghz: float
    bandwidth_gbs: float
    """Bandwidth of device memory in 1e9 bytes per second."""
    l2_mb: float
    """Size of the L2 cache in 1024**2 bytes."""
    l2_gbs: float
    """Bandwidth of L2 in 1e9 bytes per second."""
    tflops: float
    """Peak of float32 without tensor cores in 1e12 operations per second."""
    tf32_tflops: float
    """Peak of dense products of float32 operands rounded to TF32, on tensor cores."""
    half_tflops: float
    """Peak of dense products of 16-bit operands on tensor cores."""
    shared_kb: int
    """Shared memory of one SM in 1024 bytes."""
    is_calibrated: bool
    """Whether the constants of the model were fitted to times of this GPU."""
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    lanes_per_sm: int = 128
    """Threads for which one SM issues an instruction in a cycle."""
    targets: str = "sm_"
    """How the names of its maker's targets begin (`kernelgym.compile_for`)."""

    @property
    def timing_source(self) -> str:
        """Name of the clock that simulates it, in results."""
        return "simulated" if self.is_calibrated else "simulated_unvalidated"

    @property
    def lane_rate(self) -> float:
        """Number of single-thread instructions per second."""
        return self.sms * self.lanes_per_sm * self.clock_ghz * 1e9


_CDNA: Mapping[str, Any] = {"warps_per_sm": 32, "blocks_per_sm": 16, "lanes_per_sm": 64, "targets": "gfx"}
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
    # AMD Instinct MI300X data sheet and CDNA 3 white paper. A compute unit counts as an SM, a wave as a warp, and the
    # Infinity Cache, the last one before the memory, as L2.
    "mi300x": Gpu(
        "AMD Instinct MI300X", sms=304, clock_ghz=2.1, bandwidth_gbs=5325.0, l2_mb=256.0, l2_gbs=17200.0,
        tflops=163.4, tf32_tflops=653.7, half_tflops=1307.4, shared_kb=64, is_calibrated=False, **_CDNA,
    ),
    # AMD Instinct MI355X data sheet and CDNA 4 white paper; it has no TF32. Rate of the cache: assumed as before.
    "mi355x": Gpu(
        "AMD Instinct MI355X", sms=256, clock_ghz=2.4, bandwidth_gbs=8000.0, l2_mb=256.0, l2_gbs=17200.0,
        tflops=157.3, tf32_tflops=157.3, half_tflops=2516.6, shared_kb=160, is_calibrated=False, **_CDNA,
    ),
}  # fmt: skip
"""GPUs by the name in `kernelgym.gpu_profile`."""


_SHARED_BYTES = 128
"""Bytes that the shared memory of an SM delivers in a cycle (all GPUs since Volta)."""
_CACHE_BYTES = 64
"""Bytes that L2 delivers to an SM in a cycle (all GPUs since Volta)."""


@dataclass(frozen=True)
class Machine:
    """The GPU and settings on which prices depend."""

    gpu: Gpu
    matmul_tf32: bool = False
    """Whether matrix products may round float32 operands to TF32."""
    convolution_tf32: bool = False
    """Whether convolutions and recurrent layers may do so, which torch's defaults allow."""

    @classmethod
    def of(cls, gpu_profile: str, float32: str = "ieee") -> Machine:
        """Return the machine for a judge's options `gpu_profile` and `float32`."""
        return cls(GPUS[gpu_profile], float32 == "tf32", float32 == "tf32")

    @property
    def l2_bytes(self) -> float:
        """Size of the L2 cache."""
        return self.gpu.l2_mb * 2**20

    def flop_rate(self, unit: str, intensity: int = 0) -> float:
        """Return the operations per second of a unit's products, whose tiles read operands from shared memory."""
        peak, share, size = self._peak(unit)
        needed = peak / (self.gpu.sms * self.gpu.clock_ghz * 1e9) * size / (2 * _SHARED_BYTES)
        return share * peak * (min(1.0, intensity / needed) if intensity else 1.0)

    def _peak(self, unit: str) -> tuple[float, float, int]:
        """Return the peak operations per second, the share that is reached, and the bytes of an operand."""
        gpu = self.gpu
        if unit == "half":
            return gpu.half_tflops * 1e12, constant("tensor"), 2
        if unit == "tf32" or (unit == "matmul" and self.matmul_tf32):
            return gpu.tf32_tflops * 1e12, constant("tensor"), 4
        if unit in ("convolution", "transposed") and self.convolution_tf32:
            return gpu.tf32_tflops * 1e12, constant(unit), 4
        return gpu.tflops * 1e12, constant("direct" if unit == "direct" else "fma"), 4

    def bandwidth(self, access: str) -> float:
        """Return the bytes per second from device memory."""
        return constant(access) * self.gpu.bandwidth_gbs * 1e9

    def l2_rate(self, blocks: int) -> float:
        """Return the bytes per second from L2 to a number of blocks; 0 means one for each SM."""
        gpu = self.gpu
        alone = gpu.clock_ghz * 1e9 * _CACHE_BYTES
        return min(gpu.l2_gbs * 1e9, (min(blocks, gpu.sms) or gpu.sms) * alone)
