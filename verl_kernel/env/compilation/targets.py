# SPDX-License-Identifier: Apache-2.0
"""All GPUs that kernels are compiled for, and what compiling may take."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.compilation.amd import AMD
from verl_kernel.env.compilation.nvidia import NVIDIA
from verl_kernel.env.compilation.target import Target

COMPILE_S = 30.0
"""CPU time of an evaluation's compiling process for all launches and one target, and of each process that makes code
for the emulator."""
CODE_S = 120.0
"""CPU time of all processes that make one candidate's code for the emulator."""
MOST_CHOICES = 3
"""How often an autotuner is asked for another configuration if one does not fit a target."""

TARGETS: dict[str, Target] = {target.name: target for target in (*NVIDIA, *AMD)}
"""All targets, by name."""


def target_limits(names: Sequence[str]) -> list[str]:
    """Return parts of a sentence that name targets, with what a block can have there."""
    return [TARGETS[name].limits for name in names]
