# SPDX-License-Identifier: Apache-2.0
"""Places in the code that access memory, each with words of its own that the code counts in."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.executor.ptx.program import Instruction

BUFFER, ROOM, SHADOW, ACCESSES, SECTORS, UNWRITTEN, ROW, MISSED = range(8)
"""Words of a site: start of the buffer that it met last, how many offsets fit into it, what leads from there to
its shadow; how many lanes accessed, how many sectors of 32 bytes that took, how many lanes read bytes nobody wrote; the
buffer's row in the table; how many of a load's sectors the first-level cache had not."""
LEFT, PASSES, SAMPLES = ROOM, SECTORS, MISSED
"""Of a site of shared memory: how many accesses until one is looked at, passes over the banks of those that were, and
how many they were."""
WORDS = 8


@dataclass(frozen=True)
class Site:
    """One of them."""

    item: Instruction
    kind: str
    """`global`, `shared` or `local`, and whether it loads, stores or does both: `global load`."""
    bytes: int
    """A lane accesses."""


class Sites:
    """All of a kernel's."""

    def __init__(self) -> None:
        self.all: list[Site] = []

    def add(self, item: Instruction, kind: str, size: int) -> int:
        """Add one; returns the number of its first word."""
        self.all.append(Site(item, kind, size))
        return (len(self.all) - 1) * WORDS
