# SPDX-License-Identifier: Apache-2.0
"""Where long blocks are cut, which registers outlive a piece, and where a warp goes on after it returned.

Time to generate code grows faster than a block's length, so none is longer than `LONGEST` instructions. Registers that
outlive a piece pass through memory; blocks are cut where few do. A repetition is a piece by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_kernel.env.executor.flow.graph import Block, Graph, ends_block
from verl_kernel.env.executor.flow.repeats import Repeat

LONGEST = 96
_ORDERED_LOADS = ("volatile", "acquire", "relaxed")


@dataclass(frozen=True)
class Piece:
    """Instructions `start` to `end` of a block."""

    start: int
    end: int
    after: frozenset[str]
    """Registers that are read after it."""
    kept: dict[int, frozenset[str]]
    """Registers that each instruction leaves to what comes after the piece."""
    repeat: Repeat | None = None


def pieces(graph: Graph, living: list[frozenset[str]], repeats: list[list[Repeat]]) -> list[list[Piece]]:
    """The pieces of each block, given what is read from each block on, and what it repeats."""
    return [list(_pieces(graph, *both, living)) for both in zip(graph.blocks, repeats, strict=True)]


def _pieces(graph: Graph, block: Block, repeats: list[Repeat], living: list[frozenset[str]]) -> Iterator[Piece]:
    after = frozenset().union(*(living[follower] for follower in block.successors))
    counts = [len(names) for names in _live(graph, block, after)][::-1]
    ends = sorted({*_cuts(block, repeats, counts), block.end})
    known = {block.end: after}
    place = block.end
    for names in _live(graph, block, after):
        place -= 1
        if place in ends:
            known[place] = frozenset(names)
    begun = {item.start: item for item in repeats}
    for start, end in zip([block.start, *ends], ends, strict=False):
        yield Piece(start, end, known[end], _kept(graph, start, end, known[end]), begun.get(start))


def _live(graph: Graph, block: Block, after: frozenset[str]) -> Iterator[set[str]]:
    """Registers that are read from each instruction of a block on, from the last one to the first."""
    names = set(after)
    for place in range(block.end - 1, block.start - 1, -1):
        names.difference_update(graph.writes[place])
        names.update(graph.reads[place])
        yield names


def _cuts(block: Block, repeats: list[Repeat], counts: list[int]) -> Iterator[int]:
    """Instructions at which a block is cut: around what repeats, else where few registers are read on."""
    start = block.start
    for repeat in (*repeats, Repeat(block.end, 0, 0)):
        while repeat.start - start > LONGEST:
            window = range(start + LONGEST // 2, start + LONGEST)
            start = min(window, key=lambda place: counts[place - block.start])
            yield start
        if block.start < repeat.start < block.end:
            yield repeat.start
        start = repeat.end
        if start < block.end:
            yield start


def _kept(graph: Graph, start: int, end: int, after: frozenset[str]) -> dict[int, frozenset[str]]:
    """The last write of each register that is read later."""
    left, found = set(after), {}
    for place in range(end - 1, start - 1, -1):
        if names := left.intersection(graph.writes[place]):
            found[place] = frozenset(names)
            left -= names
    return found


def resumed(graph: Graph) -> frozenset[int]:
    """Blocks at which a warp goes on after it returned: behind barriers, and at loops in which it may wait."""
    found = set()
    for number, block in enumerate(graph.blocks):
        last = graph.program.instructions[block.end - 1]
        if last.root in ("bar", "barrier") and ends_block(last):
            found.add(number + 1)
        if last.root == "bra" and graph.target(last) <= number and may_wait(graph, graph.target(last), number):
            found.add(graph.target(last))
    return frozenset(found)


def may_wait(graph: Graph, first: int, last: int) -> bool:
    """Whether a loop from one block to another reads what other warps may change."""
    items = graph.program.instructions[graph.blocks[first].start : graph.blocks[last].end]
    return any(
        item.root == "atom" or (item.root == "ld" and any(word in item.modifiers for word in _ORDERED_LOADS))
        for item in items
    )
