# SPDX-License-Identifier: Apache-2.0
"""How many registers of a thread hold something at a time, before an assembler has chosen an order."""

from __future__ import annotations

import re

from verl_kernel.env.executor.flow.graph import Block, Graph
from verl_kernel.env.executor.flow.liveness import live
from verl_kernel.env.executor.ptx.program import Program

_BITS = re.compile(r"\d+$")


def pressure(program: Program) -> int:
    """Most registers of 32 bits that are still read, at any instruction."""
    graph = Graph(program)
    before = live(graph)
    words = {name: _words(kind) for name, kind in program.registers.items()}
    return max((_in_block(graph, block, before, words) for block in graph.blocks), default=0)


def _in_block(graph: Graph, block: Block, before: list[frozenset[str]], words: dict[str, int]) -> int:
    alive = set[str]().union(*(before[follower] for follower in block.successors))
    held = most = sum(words.get(name, 0) for name in alive)
    for place in range(block.end - 1, block.start - 1, -1):
        for name in set(graph.writes[place]) & alive:
            alive.remove(name)
            held -= words.get(name, 0)
        for name in set(graph.reads[place]) - alive:
            alive.add(name)
            held += words.get(name, 0)
        most = max(most, held)
    return most


def _words(kind: str) -> int:
    """Registers that one of a type takes; predicates have their own."""
    bits = _BITS.search(kind)
    return -(-int(bits[0]) // 32) if bits else 0
