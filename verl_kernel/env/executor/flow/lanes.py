# SPDX-License-Identifier: Apache-2.0
"""Which registers hold the same in all lanes of a warp, and whether lanes may part."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from verl_kernel.env.executor.flow.graph import CARRY, Graph, is_lane_dependent
from verl_kernel.env.executor.ptx.program import Instruction

_BY_LANE = frozenset("shfl ldmatrix mma atom redux vote activemask match movmatrix addc subc madc call".split())
_BRANCHES = frozenset({"bra", "ret", "exit"})


@dataclass(frozen=True)
class Lanes:
    """What lanes share."""

    uniform: frozenset[str]
    """Registers that hold one value for the whole warp."""
    may_part: bool
    """Whether some branch may be taken by a part of a warp's lanes."""


def lanes(graph: Graph) -> Lanes:
    """Find it out: first as if lanes never parted, and again where a branch shows that they may."""
    uniform = _uniform(graph, may_part=False)
    if not _parts(graph, uniform):
        return Lanes(frozenset(uniform), may_part=False)
    return Lanes(frozenset(_uniform(graph, may_part=True)), may_part=True)


def _parts(graph: Graph, uniform: set[str]) -> bool:
    return any(
        item.root in _BRANCHES and item.guard is not None and item.guard.name not in uniform
        for item in graph.program.instructions
    )


def _uniform(graph: Graph, *, may_part: bool) -> set[str]:
    """Start with all registers and take away what depends on the lane, until nothing changes.

    Where lanes may part, a register that is written in several places may hold what one of them wrote for some lanes.
    """
    instructions = graph.program.instructions
    counts = Counter(name for names in graph.writes for name in names)
    uniform = {name for name in graph.program.registers if not may_part or counts[name] <= 1} - {CARRY}
    changed = True
    while changed:
        changed = False
        for item, reads, writes in zip(instructions, graph.reads, graph.writes, strict=True):
            if not uniform.isdisjoint(writes) and (_is_by_lane(item, may_part) or not uniform.issuperset(reads)):
                uniform.difference_update(writes)
                changed = True
    return uniform


def _is_by_lane(item: Instruction, may_part: bool) -> bool:
    """Whether lanes get results of their own from equal operands."""
    parts = item.opcode.split(".")
    if item.root in _BY_LANE or "cc" in parts or is_lane_dependent(item):
        return True
    if item.root == "ld":
        return "local" in parts or ("param" not in parts and may_part)
    return may_part and item.guard is not None
