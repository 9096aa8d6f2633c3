# SPDX-License-Identifier: Apache-2.0
"""How many blocks of a compiled kernel a multiprocessor holds at a time, and which launches it refuses.

Registers are handed out to warps in units of 256, warps of a block in fours, shared memory in units of 128 bytes
with 1 kB more for every block: the rules of NVIDIA's occupancy calculator for compute capability 8.0 and later.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.compilation.outcome import Resources
from verl_kernel.env.compilation.targets import Target

_REGISTERS, _REGISTER_UNIT, _WARP_UNIT = 65536, 256, 4
_SHARED_UNIT, _SYSTEM_BYTES = 128, 1024
_WARP = 32
_BLOCK_THREADS = 1024
_CLUSTER_SIZES = (1, 2, 4, 8, 16)
_TENSOR_COLUMNS = 512
_GRID = (2**31 - 1, 65535, 65535)


def blocks_per_sm(kernel: Resources, target: Target) -> int | None:
    """Blocks of the kernel on one multiprocessor at a time; None where its registers are not known."""
    if kernel.registers is None:
        return None
    warps = _up(kernel.warps, _WARP_UNIT)
    per_warp = _up(max(1, kernel.registers) * _WARP, _REGISTER_UNIT)
    shared = _up(kernel.shared + _SYSTEM_BYTES, _SHARED_UNIT)
    by_registers = _REGISTERS // per_warp // warps
    return min(target.blocks, target.warps // kernel.warps, by_registers, target.shared_bytes // shared)


def misfit(kernel: Resources, target: Target) -> str | None:
    """Why no GPU of the target can launch a kernel that it can compile, in a sentence; None if it can."""
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
    """Why no GPU can launch a grid, in a sentence; None if it can."""
    for axis, size, most in zip("xyz", grid, _GRID, strict=False):
        if size > most:
            return f"the grid has {size} programs along {axis}, and there can be at most {most}"
    return None


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
