# SPDX-License-Identifier: Apache-2.0
"""Finds repetitions in a block: the same instructions on other registers, as unrolled loops have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verl_kernel.env.emulator.flow.graph import CARRY, BasicBlock, Graph, ends_block, is_lane_dependent
from verl_kernel.env.emulator.ptx.program import (
    BITS,
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    OperandGroup,
    Pair,
    Register,
)

# Uniform registers, which hold the same value in all lanes of a warp, and whether lanes may diverge.


# Results of these may differ between lanes where operands do not.
_BY_LANE = frozenset(
    "shfl ldmatrix stmatrix mma atom redux vote activemask match movmatrix addc subc madc call".split()
)
_BRANCHES = frozenset({"bra", "ret", "exit"})
"""Opcodes at which lanes may diverge if they have a guard."""


@dataclass(frozen=True)
class Lanes:
    """What the lanes of a warp have in common."""

    uniform: frozenset[str]
    """Registers that hold one value for the whole warp."""
    may_diverge: bool
    """Whether part of a warp's lanes may take some branch."""


def lanes(graph: Graph) -> Lanes:
    """Analyse first as if lanes never diverged, and again if a branch shows that they may."""
    uniform = _uniform(graph, may_diverge=False)
    if not _has_divergent_branch(graph, uniform):
        return Lanes(frozenset(uniform), may_diverge=False)
    return Lanes(frozenset(_uniform(graph, may_diverge=True)), may_diverge=True)


def _has_divergent_branch(graph: Graph, uniform: set[str]) -> bool:
    return any(
        item.root in _BRANCHES and item.guard is not None and item.guard.name not in uniform
        for item in graph.program.instructions
    )


def _uniform(graph: Graph, *, may_diverge: bool) -> set[str]:
    """Start with all registers and remove those that depend on the lane, until nothing changes.

    Where lanes may diverge, a register with several writers may hold the value of one writer in some lanes only.
    """
    instructions = graph.program.instructions
    counts = Counter(name for names in graph.writes for name in names)
    # Optimistic, as `normal`: a loop's counter is uniform unless something makes it differ.
    uniform = {name for name in graph.program.registers if not may_diverge or counts[name] <= 1} - {CARRY}
    changed = True
    while changed:
        changed = False
        for item, reads, writes in zip(instructions, graph.reads, graph.writes, strict=True):
            if not uniform.isdisjoint(writes) and (_is_by_lane(item, may_diverge) or not uniform.issuperset(reads)):
                uniform.difference_update(writes)
                changed = True
    return uniform


def _is_by_lane(item: Instruction, may_diverge: bool) -> bool:
    """Whether an instruction may give lanes different results from equal operands."""
    parts = item.opcode.split(".")
    if item.root in _BY_LANE or "cc" in parts or is_lane_dependent(item):
        return True
    if item.root == "ld":
        # Each lane has local memory of its own. Lanes that have diverged load at different times.
        return "local" in parts or ("param" not in parts and may_diverge)
    return may_diverge and item.guard is not None


# Below, straight code is made fast enough; where lanes may diverge, loops run up to 1.8 times as long
# (docs/notes/emulator.md, "Time to make code").
MANY = 1500
"""A kernel of at least this many instructions gets its repetitions as loops; those on 64 bits per lane count twice."""
# Longest period, fewest rounds, and fewest instructions that a loop must spare: short ones cost more
# in pointers to registers than they spare in code.
_MOST_AT_ONCE, _LEAST_ROUNDS, _LEAST_SAVED = 32, 4, 8
_CALCULATES = frozenset(
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt div ex2 fma lg2 lop3 mad max min mov mul neg not or "
    "popc prmt rcp rem rsqrt selp setp shf shfl shl shr sin sqrt sub tanh testp xor".split()
)
"""Opcodes that only compute registers from registers."""


@dataclass(frozen=True)
class Repeat:
    """From `start` on, the same `period` instructions occur `rounds` times."""

    start: int
    period: int
    rounds: int

    @property
    def end(self) -> int:
        """Return the index of the instruction after the repetition."""
        return self.start + self.period * self.rounds


def repeats(graph: Graph, lanes: Lanes, normal: frozenset[str]) -> list[list[Repeat]]:
    """Find the repetitions of each block; a kernel of few instructions has none."""
    instructions = graph.program.instructions
    # A vector of 64 bits per lane takes twice the host's registers, and as much more code.
    weight = sum(1 + _is_long(graph, lanes, index) for index in range(len(instructions)))
    if weight < MANY:
        return [[] for _ in graph.blocks]
    kind_numbers: dict[Any, int] = {}
    kinds = [_kind(item, graph, lanes, normal) for item in instructions]
    # Equal numbers may share the code of a loop.
    numbers = [None if kind is None else kind_numbers.setdefault(kind, len(kind_numbers)) for kind in kinds]
    return [list(_repeats(block, numbers)) for block in graph.blocks]


def _is_long(graph: Graph, lanes: Lanes, index: int) -> bool:
    return any(
        BITS.get(graph.program.registers.get(name, ""), 0) == 64 and name not in lanes.uniform
        for name in graph.writes[index]
    )


def _repeats(block: BasicBlock, numbers: list[int | None]) -> Iterator[Repeat]:
    index = block.start
    while index < block.end:
        first, limit = numbers[index], min(_MOST_AT_ONCE, block.end - index)
        periods = [period for period in range(1, limit) if numbers[index + period] == first is not None]
        best = max(
            (Repeat(index, period, _rounds(numbers, index, block.end, period)) for period in periods),
            key=lambda item: item.period * (item.rounds - 1),
            default=Repeat(index, 1, 1),
        )
        if best.rounds >= _LEAST_ROUNDS and best.period * (best.rounds - 1) >= _LEAST_SAVED:
            yield best
            index = best.end
        else:
            index += 1


def _rounds(numbers: list[int | None], start: int, end: int, period: int) -> int:
    """Count how often the `period` instructions occur one after the other."""
    if None in numbers[start : start + period]:
        return 0
    last = start + period
    while last < end and numbers[last] == numbers[last - period]:
        last += 1
    return (last - start) // period


def _kind(item: Instruction, graph: Graph, lanes: Lanes, normal: frozenset[str]) -> tuple[Any, ...] | None:
    """Return a key that is equal if two instructions differ only in register names; None if it must not be repeated."""
    # A guard, or the carry flag, would make rounds depend on more than their registers.
    if item.root not in _CALCULATES or item.guard or ".cc" in item.opcode:
        return None
    names: dict[str, int] = {}
    is_flushed = ".ftz" in item.opcode

    def shape(operand: Operand) -> Any:
        if isinstance(operand, Register):
            kind = graph.program.registers.get(operand.name)
            # Both change the code that is made: a scalar for a vector, and a flush that is left out.
            is_uniform, is_normal = operand.name in lanes.uniform, is_flushed and operand.name in normal
            # By order of occurrence: two instructions are alike if they use registers in the same pattern.
            return names.setdefault(operand.name, len(names)), kind, is_uniform, is_normal
        if isinstance(operand, OperandGroup):
            return tuple(shape(member) for member in operand.items)
        if isinstance(operand, Pair):
            return shape(operand.first), shape(operand.second)
        if isinstance(operand, Not):
            return "!", shape(operand.register)
        return operand.text if isinstance(operand, Immediate) else operand

    return (item.opcode, *(shape(operand) for operand in item.operands))


# Cuts long blocks into pieces, with the registers that outlive each, and finds the blocks at which a warp resumes.
#
# The time to generate code grows faster than a block's length, so no piece is longer than `LONGEST` instructions.
# Registers that outlive a piece are kept in memory, so blocks are cut where few are live. A repetition is one piece.


LONGEST = 96
# Such loads are how a kernel asks what other blocks have done.
_ORDERED_LOADS = ("volatile", "acquire", "relaxed")


@dataclass(frozen=True)
class Piece:
    """A piece of a block: the instructions `start` to `end`."""

    start: int
    end: int
    after: frozenset[str]
    """Registers that are read after the piece."""
    saved: dict[int, frozenset[str]]
    """Registers that each instruction leaves for use after the piece."""
    repeat: Repeat | None = None


def pieces(graph: Graph, live_in: list[frozenset[str]], repeats: list[list[Repeat]]) -> list[list[Piece]]:
    """Cut each block into pieces, given the live registers and the repetitions of each block."""
    return [list(_pieces(graph, *both, live_in)) for both in zip(graph.blocks, repeats, strict=True)]


def _pieces(graph: Graph, block: BasicBlock, repeats: list[Repeat], live_in: list[frozenset[str]]) -> Iterator[Piece]:
    after = frozenset().union(*(live_in[follower] for follower in block.successors))
    counts = [len(names) for names in _live(graph, block, after)][::-1]
    ends = sorted({*_cuts(block, repeats, counts), block.end})
    live_after = {block.end: after}
    index = block.end
    for names in _live(graph, block, after):
        index -= 1
        if index in ends:
            live_after[index] = frozenset(names)
    repeats_by_start = {item.start: item for item in repeats}
    for start, end in zip([block.start, *ends], ends, strict=False):
        yield Piece(
            start, end, live_after[end], _last_writes(graph, start, end, live_after[end]), repeats_by_start.get(start)
        )


def _live(graph: Graph, block: BasicBlock, after: frozenset[str]) -> Iterator[set[str]]:
    """Yield the registers that are live before each instruction of a block, from the last one to the first."""
    names = set(after)
    for index in range(block.end - 1, block.start - 1, -1):
        names.difference_update(graph.writes[index])
        names.update(graph.reads[index])
        yield names


def _cuts(block: BasicBlock, repeats: list[Repeat], counts: list[int]) -> Iterator[int]:
    """Yield the instructions at which a block is cut: around repetitions, else where few registers are live."""
    start = block.start
    for repeat in (*repeats, Repeat(block.end, 0, 0)):
        while repeat.start - start > LONGEST:
            # Among the last half, so that pieces are not needlessly short.
            window = range(start + LONGEST // 2, start + LONGEST)
            start = min(window, key=lambda index: counts[index - block.start])
            yield start
        if block.start < repeat.start < block.end:
            yield repeat.start
        start = repeat.end
        if start < block.end:
            yield start


def _last_writes(graph: Graph, start: int, end: int, after: frozenset[str]) -> dict[int, frozenset[str]]:
    """Return the last write of each register that is read later."""
    pending, saved = set(after), {}
    for index in range(end - 1, start - 1, -1):
        if names := pending.intersection(graph.writes[index]):
            saved[index] = frozenset(names)
            pending -= names
    return saved


def resumed(graph: Graph) -> frozenset[int]:
    """Return the blocks at which a warp resumes after returning: after barriers, and at loops in which it may wait."""
    resume_blocks = set()
    for number, block in enumerate(graph.blocks):
        last = graph.program.instructions[block.end - 1]
        if last.root in ("bar", "barrier") and ends_block(last):
            resume_blocks.add(number + 1)
        # A warp that waits in a loop returns now and then, so that the one it waits for can run.
        if last.root == "bra" and graph.target(last) <= number and may_wait(graph, graph.target(last), number):
            resume_blocks.add(graph.target(last))
    return frozenset(resume_blocks)


def may_wait(graph: Graph, first: int, last: int) -> bool:
    """Whether a loop from one block to another reads memory that other warps may change."""
    items = graph.program.instructions[graph.blocks[first].start : graph.blocks[last].end]
    return any(map(_may_read_others, items))


def _may_read_others(item: Instruction) -> bool:
    """Whether an instruction reads memory that other warps may change meanwhile."""
    return item.root == "atom" or (item.root == "ld" and any(word in item.modifiers for word in _ORDERED_LOADS))


_LONGEST_POLL = 40
"""Instructions of a loop that only polls, at most; those of Triton have about twenty."""


def polls(graph: Graph) -> frozenset[int]:
    """Return the blocks of loops that read the same addresses until another block has changed them.

    How often they do is decided by the order in which blocks run here, and says nothing about a GPU.
    """
    polling: set[int] = set()
    for last, block in enumerate(graph.blocks):
        item = graph.program.instructions[block.end - 1]
        if item.root == "bra" and graph.target(item) <= last and _polls(graph, graph.target(item), last):
            polling.update(range(graph.target(item), last + 1))
    return frozenset(polling)


def _polls(graph: Graph, first: int, last: int) -> bool:
    indices = range(graph.blocks[first].start, graph.blocks[last].end)
    if len(indices) > _LONGEST_POLL or not may_wait(graph, first, last):
        return False
    # A loop that moves its address reads data; one that does not can only wait for others.
    changed = {name for index in indices for name in graph.writes[index]}
    accesses = [item for item in graph.program.instructions[indices.start : indices.stop] if "global" in item.modifiers]
    addresses = [operand for item in accesses for operand in item.operands if isinstance(operand, Address)]
    return all(map(_may_read_others, accesses)) and not any(
        getattr(address.base, "name", None) in changed for address in addresses
    )
