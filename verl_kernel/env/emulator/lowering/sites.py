# SPDX-License-Identifier: Apache-2.0
"""Instructions that access memory; each has words in which native code counts."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.emulator.ptx.program import Instruction

BUFFER, ROOM, SHADOW, ACCESSES, SECTORS, UNWRITTEN, ROW, MISSED = range(8)
"""Words of a site: start of the buffer that it accessed last, how many offsets fit into that buffer, the difference
from there to its shadow; how many lanes accessed, how many sectors of 32 bytes that took, how many lanes read bytes
that were never written; the buffer's row in the table; how many of a load's sectors the first-level cache did not
have."""
LEFT, PASSES, SAMPLES = ROOM, SECTORS, MISSED
"""Words of a site of shared memory: how many accesses until the next sample, passes over the banks in all samples, and
how many samples there were."""
WORDS = 8
"""How many words a site has."""


@dataclass(frozen=True)
class Site:
    """An instruction that accesses memory."""

    item: Instruction
    kind: str
    """`global`, `shared` or `local`, and the kind of access: `global load`."""
    bytes: int
    """Bytes that a lane accesses."""


class Sites:
    """The sites of a kernel."""

    def __init__(self) -> None:
        self.all: list[Site] = []

    def add(self, item: Instruction, kind: str, size: int) -> int:
        """Add a site; returns the number of its first word."""
        self.all.append(Site(item, kind, size))
        return (len(self.all) - 1) * WORDS
