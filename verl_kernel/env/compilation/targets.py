# SPDX-License-Identifier: Apache-2.0
"""GPUs that kernels are compiled for, and the resources of one of their multiprocessors.

The figures are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
Guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.env.compilation.outcome import Resources

COMPILE_S = 30.0
"""CPU time of an evaluation's compiling process for all launches, and of each process that makes code for the
executor."""
CODE_S = 120.0
"""CPU time of all processes that make one candidate's code for the executor."""
MOST_CHOICES = 3
"""How often an autotuner is asked for another configuration if one does not fit the target."""


@dataclass(frozen=True)
class Target:
    """A kind of GPU, by its compute capability."""

    name: str
    """The name, as in `kernelgym.compile_for`."""
    block_shared_bytes: int
    """The most shared memory of one block."""
    shared_bytes: int
    """Shared memory of a multiprocessor."""
    warps: int
    """The most warps on a multiprocessor."""
    blocks: int
    """The most blocks on a multiprocessor."""
    has_clusters: bool
    """Whether blocks can be launched in clusters (`num_ctas`)."""

    @property
    def capability(self) -> int:
        """Return the number in the name: 90 for `sm_90`."""
        return int(self.name.removeprefix("sm_"))


def _target(name: str, shared_kb: int, warps: int, blocks: int, has_clusters: bool = False) -> Target:
    return Target(name, (shared_kb - 1) << 10, shared_kb << 10, warps, blocks, has_clusters)


TARGETS = {
    target.name: target
    for target in (
        _target("sm_80", 164, 64, 32),
        _target("sm_86", 100, 48, 16),
        _target("sm_89", 100, 48, 24),
        _target("sm_90", 228, 64, 32, has_clusters=True),
        _target("sm_100", 228, 64, 32, has_clusters=True),
        _target("sm_120", 100, 48, 24, has_clusters=True),
    )
}
"""All targets, by name. For each block the system takes 1 kB of the shared memory."""


# Computes how many blocks of a compiled kernel a multiprocessor holds at a time, and which launches it refuses.
#
# Registers are allocated to warps in units of 256, warps of a block in fours, shared memory in units of 128 bytes
# plus 1 kB for every block: the rules of NVIDIA's occupancy calculator for compute capability 8.0 and later.


_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 65536, 256, 4
_SHARED_UNIT, _SYSTEM_BYTES = 128, 1024
_WARP = 32
_BLOCK_THREADS = 1024
_CLUSTER_SIZES = (1, 2, 4, 8, 16)
_TENSOR_COLUMNS = 512
_GRID = (2**31 - 1, 65535, 65535)


def blocks_per_sm(kernel: Resources, target: Target) -> int | None:
    """Return how many blocks of the kernel fit on one multiprocessor; None if its registers are not known."""
    if kernel.registers is None:
        return None
    warps = _up(kernel.warps, _WARP_UNIT)
    per_warp = _up(max(1, kernel.registers) * _WARP, _REGISTER_UNIT)
    shared = _up(kernel.shared + _SYSTEM_BYTES, _SHARED_UNIT)
    by_registers = _REGISTERS // per_warp // warps
    return min(target.blocks, target.warps // kernel.warps, by_registers, target.shared_bytes // shared)


def misfit(kernel: Resources, target: Target) -> str | None:
    """Return a sentence why no GPU of the target can launch a kernel that it can compile; None if it can."""
    threads = kernel.warps * _WARP
    if threads > _BLOCK_THREADS:
        return f"{kernel.warps} warps are {threads} threads in a block, and a block holds at most {_BLOCK_THREADS}"
    if kernel.shared > target.block_shared_bytes:
        return f"it needs {kernel.shared} bytes of shared memory, and a block has at most {target.block_shared_bytes}"
    if kernel.ctas not in _CLUSTER_SIZES:
        return f"num_ctas is {kernel.ctas}; a cluster has {', '.join(map(str, _CLUSTER_SIZES))} blocks"
    if kernel.tensor_columns > _TENSOR_COLUMNS:
        return f"it needs {kernel.tensor_columns} columns of tensor memory, and there are {_TENSOR_COLUMNS}"
    if blocks_per_sm(kernel, target) == 0:
        return f"{kernel.registers} registers in each of {threads} threads are more than a multiprocessor has"
    return None


def wrong_grid(grid: Sequence[int]) -> str | None:
    """Return a sentence why no GPU can launch a grid; None if it can."""
    for axis, size, most in zip("xyz", grid, _GRID, strict=False):
        if size > most:
            return f"the grid has {size} programs along {axis}, and there can be at most {most}"
    return None


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
