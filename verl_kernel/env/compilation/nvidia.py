# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's GPUs: the resources of a multiprocessor, and what their assembler says of a kernel.

The figures are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
Guide. Registers are allocated to warps in units of 256, each quarter of a multiprocessor has a quarter of them, and
shared memory comes in units of 128 bytes plus 1 kB for every block: the rules of NVIDIA's occupancy calculator
(`cuda_occupancy.h`) for compute capability 8.0 and later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.target import Target, first_number, rounded_up
from verl_kernel.env.compilation.transposing import staging

_REGISTERS, _REGISTER_UNIT, _QUARTERS = 65536, 256, 4
_SHARED_UNIT, _SYSTEM_BYTES = 128, 1024
_CLUSTER_SIZES = (1, 2, 4, 8, 16)
_TENSOR_COLUMNS = 512
_GRID = (2**31 - 1, 65535, 65535)

_USED, _SPILLED = re.compile(r"Used (\d+) registers"), re.compile(r"(\d+) bytes spill stores")
_MATRIX = re.compile(r"\b(?:mma\.sync|wmma\.mma|wgmma\.mma_async|tcgen05\.mma)")


@dataclass(frozen=True)
class NvidiaTarget(Target):
    """A compute capability."""

    BACKEND, CODE, TOOLS = "cuda", "ptx", "ptxas"

    shared_bytes: int
    """Shared memory of a multiprocessor."""
    warps: int
    """The most warps on a multiprocessor."""
    most_blocks: int
    """The most blocks on a multiprocessor."""

    @property
    def architecture(self) -> int:
        """Return the number in the name: 90 for `sm_90`."""
        return int(self.name.removeprefix("sm_"))

    def resources(self, metadata: Mapping[str, Any], texts: Mapping[str, str], log: str) -> Resources:
        """Read registers and spills from the assembler's log, and all else from Triton's metadata and texts."""
        staged = staging(texts["ttgir"])
        return Resources(
            warps=metadata["num_warps"],
            shared=metadata["shared"],
            registers=first_number(_USED, log),
            spills=first_number(_SPILLED, log),
            ctas=metadata.get("num_ctas", 1),
            tensor_columns=metadata.get("tmem_size") or 0,
            scratch=metadata.get("global_scratch_size") or 0,
            matrix=_MATRIX.search(texts[self.CODE]) is not None,
            staged=staged.size,
            transposing=staged.cycles,
        )

    def blocks(self, kernel: Resources) -> int | None:
        """Return how many blocks of the kernel a multiprocessor holds at a time; None if its registers are unknown."""
        if kernel.registers is None:
            return None
        per_warp = rounded_up(max(1, kernel.registers) * self.lanes, _REGISTER_UNIT)
        if per_warp * rounded_up(kernel.warps, _QUARTERS) > _REGISTERS:
            return 0  # the hardware checks a block as if all quarters held as many of its warps
        shared = rounded_up(kernel.shared + _SYSTEM_BYTES, _SHARED_UNIT)
        by_registers = _REGISTERS // _QUARTERS // per_warp * _QUARTERS // kernel.warps
        return min(self.most_blocks, self.warps // kernel.warps, by_registers, self.shared_bytes // shared)

    def misfit(self, kernel: Resources) -> str | None:
        """Return a sentence why no such GPU can launch a kernel that it can compile; None if it can."""
        if (reason := self.too_large(kernel)) is not None:
            return reason
        if kernel.ctas not in _CLUSTER_SIZES:
            # check: nvidia-cluster-fits
            return f"num_ctas is {kernel.ctas}; a cluster has {', '.join(map(str, _CLUSTER_SIZES))} blocks"
        if kernel.tensor_columns > _TENSOR_COLUMNS:
            # check: nvidia-tensor-memory-fits
            return f"it needs {kernel.tensor_columns} columns of tensor memory, and there are {_TENSOR_COLUMNS}"
        if self.blocks(kernel) == 0:
            threads = kernel.warps * self.lanes
            # check: nvidia-registers-fit
            return f"{kernel.registers} registers in each of {threads} threads are more than a multiprocessor has"
        return None

    def wrong_grid(self, grid: Sequence[int], kernel: Resources) -> str | None:
        """Return a sentence why no GPU can launch a grid; None if it can."""
        for axis, size, limit in zip("xyz", grid, _GRID, strict=False):
            if size > limit:
                # check: nvidia-grid-fits
                return f"the grid has {size} programs along {axis}, and there can be at most {limit}"
        return None


def _target(name: str, gpu: str, shared_kb: int, warps: int, most_blocks: int) -> NvidiaTarget:
    """Make a target; for each block the system takes 1 kB of the shared memory."""
    return NvidiaTarget(name, f"NVIDIA {gpu}", 32, (shared_kb - 1) << 10, shared_kb << 10, warps, most_blocks)


NVIDIA = (
    _target("sm_80", "A100", 164, 64, 32),
    _target("sm_86", "A40", 100, 48, 16),
    _target("sm_89", "L40S", 100, 48, 24),
    _target("sm_90", "H100", 228, 64, 32),
    _target("sm_100", "B200", 228, 64, 32),
    _target("sm_120", "GeForce RTX 5090", 100, 48, 24),
)
"""All of NVIDIA's targets."""
