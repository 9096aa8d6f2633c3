# SPDX-License-Identifier: Apache-2.0
"""A GPU with its rates of moving bytes and multiplying, given the precision of float32 products."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.gpus import Gpu, gpu_named
from verl_kernel.env.machine.constants import constant

_SHARED_BYTES = 128
"""Bytes that the shared memory of an SM delivers in a cycle (all GPUs since Volta)."""
_CACHE_BYTES = 64
"""Bytes that L2 delivers to an SM in a cycle (all GPUs since Volta)."""


@dataclass(frozen=True)
class MachineModel:
    """The GPU and settings on which prices depend."""

    gpu: Gpu
    matmul_tf32: bool = False
    """Whether matrix products may round float32 operands to TF32."""
    convolution_tf32: bool = False
    """Whether convolutions and recurrent layers may do so, which torch's defaults allow."""

    @classmethod
    def of(cls, gpu_profile: str, float32: str = "ieee") -> MachineModel:
        """Return the machine for a judge's options `gpu_profile` and `float32`."""
        return cls(gpu_named(gpu_profile), float32 == "tf32", float32 == "tf32")

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
