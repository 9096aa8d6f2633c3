# SPDX-License-Identifier: Apache-2.0
"""Basic blocks of a kernel, and which registers each instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from verl_kernel.env.executor.ptx.program import (
    Address,
    Group,
    Instruction,
    Not,
    Operand,
    Pair,
    Program,
    Register,
    Special,
)  # fmt: skip

_NO_RESULT = frozenset(
    "st bra bar barrier ret exit red trap membar fence nanosleep prefetch discard cp griddepcontrol call brkpt".split()
)
_ENDS = frozenset({"bra", "ret", "exit", "trap", "bar", "barrier"})
CARRY = "%carry"
"""The condition code, which `.cc` instructions set and `addc`, `subc` and `madc` read."""


@dataclass(frozen=True)
class Block:
    """Instructions `start` to `end`, entered at the first one only."""

    start: int
    end: int
    successors: tuple[int, ...]
    """Blocks that may follow; the number of blocks stands for the kernel's end."""


@dataclass(eq=False)
class Graph:
    """A kernel's blocks."""

    program: Program
    blocks: list[Block] = field(init=False)
    entries: dict[str, int] = field(init=False)
    """Block that each label begins."""
    writes: list[tuple[str, ...]] = field(init=False)
    reads: list[tuple[str, ...]] = field(init=False)
    """Registers of each instruction."""

    def __post_init__(self) -> None:
        instructions = self.program.instructions
        self.writes = [tuple(written(item)) for item in instructions]
        self.reads = [tuple(read(item)) for item in instructions]
        named = {getattr(item.operands[0], "name", None) for item in instructions if item.root == "bra"}
        starts = {0, *(place for name, place in self.program.labels.items() if name in named)}
        starts |= {place + 1 for place, item in enumerate(instructions) if ends_block(item)}
        ordered = sorted(place for place in starts if place < len(instructions))
        numbers = {place: number for number, place in enumerate(ordered)}
        self.entries = {
            name: numbers.get(place, len(ordered))
            for name, place in self.program.labels.items()
            if place in numbers or place == len(instructions)
        }
        ends = [*ordered[1:], len(instructions)]
        self.blocks = [
            Block(start, end, self._successors(number, instructions[end - 1]))
            for number, (start, end) in enumerate(zip(ordered, ends, strict=True))
        ]

    def target(self, branch: Instruction) -> int:
        """Block that a branch goes to (raises NotKnown where it names no label)."""
        name = getattr(branch.operands[0], "name", None)
        if name not in self.entries:
            raise branch.unknown("it names no label of this kernel")
        return self.entries[name]

    def _successors(self, number: int, last: Instruction) -> tuple[int, ...]:
        following = (number + 1,)
        if last.root == "bra":
            return (self.target(last), *(following if last.guard else ()))
        if last.root in ("ret", "exit", "trap"):
            return following if last.guard else ()
        return following


def ends_block(item: Instruction) -> bool:
    """Whether what follows an instruction is entered by itself."""
    return item.root in _ENDS and not item.opcode.startswith(("bar.warp", "barrier.warp"))


def written(item: Instruction) -> Iterator[str]:
    """Registers that an instruction writes."""
    if ".cc" in item.opcode:
        yield CARRY
    if item.root not in _NO_RESULT and item.operands:
        yield from _registers(item.operands[0])


def read(item: Instruction) -> Iterator[str]:
    """Registers that it reads; where a guard may leave a result as it was, that one is read as well."""
    if item.root in ("addc", "subc", "madc"):
        yield CARRY
    first = 0 if item.root in _NO_RESULT else 1
    for operand in item.operands[first:]:
        yield from _registers(operand)
    if item.guard:
        yield item.guard.name
        yield from written(item)


def is_lane_dependent(item: Instruction) -> bool:
    """Whether an operand is another one in each lane."""
    parts = [part for one in item.operands for part in (one.items if isinstance(one, Group) else (one,))]
    return any(isinstance(one, Special) and one.name in ("%tid.x", "%laneid") for one in parts)


def _registers(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Group):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, Pair):
        yield from (operand.first.name, operand.second.name)
    elif isinstance(operand, Not):
        yield operand.register.name
    elif isinstance(operand, Address):
        yield from _registers(operand.base)
