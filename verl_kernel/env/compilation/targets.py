# SPDX-License-Identifier: Apache-2.0
"""GPUs that kernels are compiled for, and what one of their multiprocessors has room for.

The figures are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
Guide.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPILE_S = 30.0
"""Own time of an evaluation's compiling process, all launches together; of each that makes code for the executor."""
CODE_S = 120.0
"""Own time of all processes that make one candidate's code for the executor."""
MOST_CHOICES = 3
"""How often an autotuner is asked for another configuration because one does not fit the target."""


@dataclass(frozen=True)
class Target:
    """A kind of GPU, by its compute capability."""

    name: str
    """As in `kernelgym.compile_for`."""
    block_shared_bytes: int
    """Most shared memory of one block."""
    shared_bytes: int
    """Shared memory of a multiprocessor."""
    warps: int
    """Most warps on a multiprocessor."""
    blocks: int
    """Most blocks on a multiprocessor."""
    has_clusters: bool
    """Whether blocks can be launched in clusters (`num_ctas`)."""

    @property
    def capability(self) -> int:
        """The number in the name: 90 for `sm_90`."""
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
"""By name. One kB of the shared memory is the system's, for every block."""
