# SPDX-License-Identifier: Apache-2.0
"""Registers that hold the same literal all the time."""

from __future__ import annotations

from collections import Counter

from verl_kernel.env.executor.flow.graph import Graph
from verl_kernel.env.executor.ptx.program import Constant, Register


def constants(graph: Graph) -> dict[str, Constant]:
    """The literal of each register that one instruction writes, a move of it."""
    counts = Counter(name for names in graph.writes for name in names)
    return {
        item.operands[0].name: item.operands[1]
        for item in graph.program.instructions
        if item.root == "mov" and not item.guard
        and isinstance(item.operands[0], Register) and isinstance(item.operands[1], Constant)
        and counts[item.operands[0].name] == 1
    }  # fmt: skip
