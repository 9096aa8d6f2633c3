# SPDX-License-Identifier: Apache-2.0
"""A GPU with what its float32 products may do: how fast it moves bytes and multiplies."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.machine.constants import constant

# The GPUs that can be simulated, by their data sheets.


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


_SHARED_BYTES = 128
"""Bytes that the shared memory of an SM delivers in a cycle (all GPUs since Volta)."""
_CACHE_BYTES = 64
"""Bytes that L2 delivers to an SM in a cycle (as above)."""


@dataclass(frozen=True)
class Machine:
    """What prices depend on, besides the work itself."""

    gpu: Gpu
    matmul_tf32: bool = False
    """Whether matrix products may round float32 operands to TF32."""
    convolution_tf32: bool = False
    """The same for convolutions and recurrent layers, which torch's defaults allow."""

    @classmethod
    def of(cls, gpu_profile: str, float32: str = "ieee") -> Machine:
        """The machine of a judge's options `gpu_profile` and `float32`."""
        return cls(GPUS[gpu_profile], float32 == "tf32", float32 == "tf32")

    @property
    def l2_bytes(self) -> float:
        """Size of the L2 cache."""
        return self.gpu.l2_mb * 2**20

    def flop_rate(self, unit: str, intensity: int = 0) -> float:
        """Operations per second of products of a unit, whose tiles read operands from shared memory."""
        peak, share, size = self._peak(unit)
        needed = peak / (self.gpu.sms * self.gpu.clock_ghz * 1e9) * size / (2 * _SHARED_BYTES)
        return share * peak * (min(1.0, intensity / needed) if intensity else 1.0)

    def _peak(self, unit: str) -> tuple[float, float, int]:
        """Operations per second, the share of them that is reached, and bytes of an operand."""
        gpu = self.gpu
        if unit == "half":
            return gpu.half_tflops * 1e12, constant("tensor"), 2
        if unit == "tf32" or (unit == "matmul" and self.matmul_tf32):
            return gpu.tf32_tflops * 1e12, constant("tensor"), 4
        if unit in ("convolution", "transposed") and self.convolution_tf32:
            return gpu.tf32_tflops * 1e12, constant(unit), 4
        return gpu.tflops * 1e12, constant("direct" if unit == "direct" else "fma"), 4

    def bandwidth(self, access: str) -> float:
        """Bytes per second from device memory."""
        return constant(access) * self.gpu.bandwidth_gbs * 1e9

    def l2_rate(self, blocks: int) -> float:
        """Bytes per second from L2 to so many blocks; 0 for as many as there are SMs."""
        gpu = self.gpu
        alone = gpu.clock_ghz * 1e9 * _CACHE_BYTES
        return min(gpu.l2_gbs * 1e9, (min(blocks, gpu.sms) or gpu.sms) * alone)
