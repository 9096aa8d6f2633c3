# SPDX-License-Identifier: Apache-2.0
"""How long a turn of a loop takes at least, because results wait for each other from turn to turn.

A value is there when those it is made of are, and the instruction's latency later; what barriers part waits for them.
Nothing else waits: instructions may be issued in any order, so this is a lower bound. Only innermost loops that do the
same in each turn count. Latencies are the shortest that micro-benchmarks of NVIDIA's GPUs publish, not measured here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from verl_kernel.env.executor.flow.graph import Graph
from verl_kernel.env.executor.flow.pieces import may_wait
from verl_kernel.env.executor.ptx.program import Instruction, Program
from verl_kernel.env.executor.work import costs

_EACH, _SPECIAL, _SHARED, _BARRIER, _PRODUCT = 4.0, 14.0, 23.0, 20.0, 16.0
"""Cycles: of an instruction, of a special function besides, of what goes through shared memory or between lanes, of a
barrier, of a product of matrices."""
Way = Literal["", "meets", "stores", "loads"]
_ROUND = 3
"""Turns that are looked at after as many others."""
_STORED, _SHOWN = "%stored", "%shown"
"""When what was put into shared memory is there, and when other warps see it."""


@dataclass(frozen=True)
class Chain:
    """A loop."""

    block: int
    """Of instructions, by number: the one it begins with."""
    cycles: float
    """Of a turn, at least."""


def chains(program: Program) -> list[Chain]:
    """The loops of a kernel."""
    graph = Graph(program)
    found = [Chain(first, _cycles(graph, first, last)) for first, last in _loops(graph)]
    return [chain for chain in found if chain.cycles]


def _loops(graph: Graph) -> Iterator[tuple[int, int]]:
    """First and last block of each loop whose turns are alike and wait for no other block."""
    ends = [graph.program.instructions[block.end - 1] for block in graph.blocks]
    jumps = {number: graph.target(item) for number, item in enumerate(ends) if item.root == "bra"}
    for last, first in jumps.items():
        inner = [target for number, target in jumps.items() if first <= number < last]
        if first <= last and all(target > last for target in inner) and not may_wait(graph, first, last):
            yield first, last


def _cycles(graph: Graph, first: int, last: int) -> float:
    places = range(graph.blocks[first].start, graph.blocks[last].end)
    turn = [
        (_way(item), graph.reads[place], graph.writes[place], _latency(item))
        for place, item in ((place, graph.program.instructions[place]) for place in places)
    ]
    there: dict[str, float] = defaultdict(float)
    for _ in range(_ROUND):
        _go_round(turn, there)
    before = dict(there)
    for _ in range(_ROUND):
        _go_round(turn, there)
    return max((time - before[name] for name, time in there.items()), default=0.0) / _ROUND


def _go_round(turn: list[tuple[Way, tuple[str, ...], tuple[str, ...], float]], there: dict[str, float]) -> None:
    """Move on when each register is there by one turn."""
    for way, reads, writes, latency in turn:
        time = max((there[name] for name in reads), default=0.0)
        if way == "meets":
            there[_SHOWN] = max(there[_SHOWN], there[_STORED]) + _BARRIER
        elif way == "stores":
            there[_STORED] = max(there[_STORED], time)
        elif way == "loads":
            time = max(time, there[_SHOWN])
        for name in writes:
            there[name] = time + latency


def _way(item: Instruction) -> Way:
    """What an instruction has to do with what other warps do in a block."""
    if item.root in ("bar", "barrier"):
        return "meets"
    if "shared" not in item.modifiers and item.root != "ldmatrix":
        return ""
    if item.root == "cp":
        return ""
    return "stores" if item.root == "st" else "loads"


def _latency(item: Instruction) -> float:
    if item.root in ("ld", "atom", "ldmatrix", "shfl", "redux", "vote", "match"):
        return 0.0 if "param" in item.modifiers[:1] else _SHARED
    if item.root == "mma":
        return _PRODUCT
    units = costs.cost(item).units
    if units[costs.SPECIAL]:  # of the instructions around it some work side by side
        return _SPECIAL + _EACH / 2 * units[costs.ISSUE]
    return _EACH if units[costs.ISSUE] else 0.0
