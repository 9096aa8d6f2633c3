# SPDX-License-Identifier: Apache-2.0
"""Where a block repeats the same instructions on other registers, as unrolled loops do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verl_kernel.env.executor.flow.graph import Block, Graph
from verl_kernel.env.executor.flow.lanes import Lanes
from verl_kernel.env.executor.ptx.program import BITS, Constant, Group, Instruction, Not, Operand, Pair, Register

MANY = 1500
"""Instructions from which on a kernel's repetitions become loops; those on 64 bits a lane count twice."""
_MOST_AT_ONCE, _LEAST_ROUNDS, _LEAST_SAVED = 32, 4, 8
_CALCULATES = frozenset(
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt div ex2 fma lg2 lop3 mad max min mov mul neg not or "
    "popc prmt rcp rem rsqrt selp setp shf shfl shl shr sin sqrt sub tanh testp xor".split()
)
"""Opcodes that only make registers of registers."""


@dataclass(frozen=True)
class Repeat:
    """From `start` on, `rounds` times the same `period` instructions."""

    start: int
    period: int
    rounds: int

    @property
    def end(self) -> int:
        """The instruction after it."""
        return self.start + self.period * self.rounds


def repeats(graph: Graph, lanes: Lanes, normal: frozenset[str]) -> list[list[Repeat]]:
    """Those of each block: none in a kernel of few instructions."""
    instructions = graph.program.instructions
    weight = sum(1 + _is_long(graph, lanes, place) for place in range(len(instructions)))
    if weight < MANY:
        return [[] for _ in graph.blocks]
    known: dict[Any, int] = {}
    kinds = [_kind(item, graph, lanes, normal) for item in instructions]
    numbers = [None if kind is None else known.setdefault(kind, len(known)) for kind in kinds]
    return [list(_repeats(block, numbers)) for block in graph.blocks]


def _is_long(graph: Graph, lanes: Lanes, place: int) -> bool:
    return any(
        BITS.get(graph.program.registers.get(name, ""), 0) == 64 and name not in lanes.uniform
        for name in graph.writes[place]
    )


def _repeats(block: Block, numbers: list[int | None]) -> Iterator[Repeat]:
    place = block.start
    while place < block.end:
        first, most = numbers[place], min(_MOST_AT_ONCE, block.end - place)
        periods = [period for period in range(1, most) if numbers[place + period] == first is not None]
        found = max(
            (Repeat(place, period, _rounds(numbers, place, block.end, period)) for period in periods),
            key=lambda item: item.period * (item.rounds - 1),
            default=Repeat(place, 1, 1),
        )
        if found.rounds >= _LEAST_ROUNDS and found.period * (found.rounds - 1) >= _LEAST_SAVED:
            yield found
            place = found.end
        else:
            place += 1


def _rounds(numbers: list[int | None], start: int, end: int, period: int) -> int:
    """How often so many instructions come one after the other."""
    if None in numbers[start : start + period]:
        return 0
    last = start + period
    while last < end and numbers[last] == numbers[last - period]:
        last += 1
    return (last - start) // period


def _kind(item: Instruction, graph: Graph, lanes: Lanes, normal: frozenset[str]) -> tuple[Any, ...] | None:
    """What must be equal so that two instructions differ in their registers' names only; None for those left alone."""
    if item.root not in _CALCULATES or item.guard or ".cc" in item.opcode:
        return None
    names: dict[str, int] = {}
    is_flushed = ".ftz" in item.opcode

    def shape(operand: Operand) -> Any:
        if isinstance(operand, Register):
            kind = graph.program.registers.get(operand.name)
            is_uniform, is_normal = operand.name in lanes.uniform, is_flushed and operand.name in normal
            return names.setdefault(operand.name, len(names)), kind, is_uniform, is_normal
        if isinstance(operand, Group):
            return tuple(shape(one) for one in operand.items)
        if isinstance(operand, Pair):
            return shape(operand.first), shape(operand.second)
        if isinstance(operand, Not):
            return "!", shape(operand.register)
        return operand.text if isinstance(operand, Constant) else operand

    return (item.opcode, *(shape(operand) for operand in item.operands))
