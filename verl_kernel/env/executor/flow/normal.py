# SPDX-License-Identifier: Apache-2.0
"""Which registers never hold a subnormal float32, so that `.ftz` has nothing to change in them."""

from __future__ import annotations

from collections.abc import Set

from verl_kernel.env.executor.flow.graph import Graph
from verl_kernel.env.executor.ptx.program import Constant, Instruction, Operand, Register

_FLUSHES = frozenset("add sub mul fma min max abs neg ex2".split())


def normal(graph: Graph) -> frozenset[str]:
    """Start with all registers and take away what something else may write to, until nothing changes."""
    known = {name for name, kind in graph.program.registers.items() if kind in ("b32", "f32")}
    changed = True
    while changed:
        changed = False
        for item, names in zip(graph.program.instructions, graph.writes, strict=True):
            if not known.isdisjoint(names) and not _is_normal(item, known):
                known.difference_update(names)
                changed = True
    return frozenset(known)


def _is_normal(item: Instruction, known: Set[str]) -> bool:
    """Whether an instruction writes no subnormal, given the registers that hold none."""
    parts = item.opcode.split(".")
    if item.root in _FLUSHES:
        return parts[-1] == "f32" and "ftz" in parts
    if item.root == "mov" and len(item.operands) == 2:
        return holds_no_subnormal(item.operands[1], known)
    if item.root == "selp" and parts[-1] in ("f32", "b32"):
        return all(holds_no_subnormal(operand, known) for operand in item.operands[1:3])
    return item.root == "cvt" and parts[-2] == "f32" and parts[-1] in ("s32", "u32")


def holds_no_subnormal(operand: Operand, known: Set[str]) -> bool:
    """Whether an operand is a constant or a register without subnormals."""
    if isinstance(operand, Constant) and operand.text[:2] in ("0f", "0F"):
        bits = int(operand.text[2:], 16)
        return bool(bits >> 23 & 255) or not bits & 0x7FFFFFFF
    return isinstance(operand, Register) and operand.name in known
