# SPDX-License-Identifier: Apache-2.0
"""AMD's GPUs: the resources of a compute unit, and what LLVM's metadata says of a kernel.

Sizes, units and the rules by which waves share a compute unit are those of LLVM's AMDGPU back end (`AMDGPUBaseInfo`).
A *wave* is what NVIDIA calls a warp, LDS its shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.target import Target, rounded_up

_REGISTER_BYTES = 4
_MOST_THREADS_OF_AXIS = 2**32 - 1
"""A launch gives the number of its threads along each axis as 32 bits (`hipModuleLaunchKernel`)."""
_SCALARS, _WAVES_BEYOND = 100, 7
"""Scalar registers of a wave, and how many waves with more of them a SIMD holds; from gfx10 on they limit nothing."""
_METADATA = re.compile(r"\.amdgpu_metadata\n(.*)\.end_amdgpu_metadata", re.DOTALL)
_COUNT = re.compile(r"^[ -]+\.(\w+): +(\d+)$", re.MULTILINE)
_MATRIX = re.compile(r"^\s*v_(?:mfma|smfmac|wmma|swmmac)_", re.MULTILINE)


@dataclass(frozen=True)
class AmdTarget(Target):
    """An architecture; its compute unit is what the waves of a block share."""

    BACKEND, CODE, TOOLS = "hip", "amdgcn", "AMD's back end"

    shared_bytes: int
    """LDS of a compute unit."""
    shared_unit: int
    """Bytes in multiples of which LDS is allocated."""
    simds: int
    """SIMDs of a compute unit."""
    waves: int
    """The most waves on a SIMD."""
    registers: int
    """Vector registers of a SIMD, for each of a wave's lanes."""
    register_unit: int
    """Registers in multiples of which they are allocated."""
    most_blocks: int
    """The most blocks of several waves on a compute unit: each takes one of its barriers."""

    @property
    def architecture(self) -> str:
        """Return the name."""
        return self.name

    def resources(self, metadata: Mapping[str, Any], texts: Mapping[str, str], log: str) -> Resources:
        """Read what LLVM writes into the object; a launch adds the LDS that Triton's metadata asks for."""
        code = texts[self.CODE]
        written = _METADATA.search(code)
        counts = {key: int(value) for key, value in _COUNT.findall(written[1] if written else "")}
        spilled = counts.get("vgpr_spill_count")
        return Resources(
            warps=metadata["num_warps"],
            shared=metadata["shared"] + counts.get("group_segment_fixed_size", 0),
            registers=counts.get("vgpr_count"),
            spills=None if spilled is None else spilled * _REGISTER_BYTES,
            accumulators=counts.get("agpr_count"),
            scalars=counts.get("sgpr_count"),
            matrix=_MATRIX.search(code) is not None,
        )

    def blocks(self, kernel: Resources) -> int | None:
        """Return how many blocks of the kernel a compute unit holds at a time; None if its registers are unknown."""
        if kernel.registers is None:
            return None
        fitting = self._waves(kernel) * self.simds // kernel.warps
        limit = self.most_blocks if kernel.warps > 1 else fitting
        shared = rounded_up(kernel.shared, self.shared_unit)
        return min(fitting, limit, self.shared_bytes // shared if shared else fitting)

    def _waves(self, kernel: Resources) -> int:
        """Return how many waves of a kernel a SIMD holds by their registers."""
        allocated = rounded_up(max(1, kernel.registers or 0), self.register_unit)
        has_many = self.lanes == 64 and (kernel.scalars or 0) > _SCALARS
        return min(_WAVES_BEYOND if has_many else self.waves, self.registers // allocated)

    def misfit(self, kernel: Resources) -> str | None:
        """Return a sentence why no such GPU can launch a kernel that it can compile; None if it can."""
        return self.too_large(kernel)  # check: amd-kernel-fits

    def wrong_grid(self, grid: Sequence[int], kernel: Resources) -> str | None:
        """Return a sentence why no such GPU can launch a grid of the kernel; None if it can."""
        limit = _MOST_THREADS_OF_AXIS // (kernel.warps * self.lanes)
        if grid[0] > limit:
            # check: amd-grid-fits
            return f"the grid has {grid[0]} programs along x, and there can be at most {limit} of {kernel.warps} warps"
        return None


AMD = (
    AmdTarget("gfx942", "AMD Instinct MI300X", 64, 64 << 10, 64 << 10, 512, 4, 8, 512, 8, 16),
    AmdTarget("gfx950", "AMD Instinct MI355X", 64, 160 << 10, 160 << 10, 1280, 4, 8, 512, 8, 16),
    AmdTarget("gfx1100", "AMD Radeon RX 7900 XTX", 32, 64 << 10, 128 << 10, 512, 4, 16, 1536, 24, 32),
)
"""All of AMD's targets; two compute units of gfx1100 share what a block is given, and count as one."""
