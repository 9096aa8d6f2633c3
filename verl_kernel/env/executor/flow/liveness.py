# SPDX-License-Identifier: Apache-2.0
"""Which registers hold something at a block's start that is still read."""

from __future__ import annotations

from verl_kernel.env.executor.flow.graph import Graph


def live(graph: Graph) -> list[frozenset[str]]:
    """For each block, and the kernel's end as the last one, the registers that it or a later one reads first."""
    exposed, killed = zip(*(_block(graph, block.start, block.end) for block in graph.blocks), strict=True)
    found: list[frozenset[str]] = [frozenset()] * (len(graph.blocks) + 1)
    changed = True
    while changed:
        changed = False
        for number in range(len(graph.blocks) - 1, -1, -1):
            after = frozenset().union(*(found[follower] for follower in graph.blocks[number].successors))
            before = exposed[number] | (after - killed[number])
            changed |= before != found[number]
            found[number] = before
    return found


def _block(graph: Graph, start: int, end: int) -> tuple[frozenset[str], frozenset[str]]:
    """What a block reads before it writes, and what it surely writes."""
    exposed: set[str] = set()
    killed: set[str] = set()
    for place in range(start, end):
        exposed.update(name for name in graph.reads[place] if name not in killed)
        killed.update(graph.writes[place])
    return frozenset(exposed), frozenset(killed)
