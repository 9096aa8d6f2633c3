# SPDX-License-Identifier: Apache-2.0
"""What a compiled kernel uses, in words for terminals and pages."""

from __future__ import annotations

from verl_kernel.env import CompiledKernel

_MATRIX = {None: [], True: ["matrix instructions"], False: ["no matrix instructions"]}


def resources(kernel: CompiledKernel) -> str:
    """Return what is known of a kernel's registers, memory, matrix instructions and occupancy."""
    parts = (
        (kernel.registers, "registers"),
        (kernel.accumulators, "of them AGPRs"),
        (kernel.scalars, "SGPRs"),
        (kernel.spills, "bytes spilled"),
        (kernel.shared, "bytes shared"),
        (kernel.warps, "warps"),
        (kernel.blocks_per_sm, "blocks an SM" if kernel.scalars is None else "blocks a compute unit"),
    )
    stated = [f"{count} {what}" for count, what in parts if count is not None]
    return ", ".join([*stated, *_MATRIX[kernel.matrix]])
