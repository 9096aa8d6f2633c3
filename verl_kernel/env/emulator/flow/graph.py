# SPDX-License-Identifier: Apache-2.0
"""Divides a kernel into basic blocks, and lists the registers that each instruction reads and writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from verl_kernel.env.emulator.ptx.program import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    OperandGroup,
    Pair,
    PtxProgram,
    Register,
    Special,
)

# Opcodes whose first operand is read, not written.
_NO_RESULT = frozenset(
    "st stmatrix bra bar barrier ret exit red trap membar fence nanosleep prefetch discard cp griddepcontrol call"
    " brkpt".split()
)
# A barrier ends a block too: there a warp returns, and resumes when all have come (library/grid.py).
_ENDS = frozenset({"bra", "ret", "exit", "trap", "bar", "barrier"})
CARRY = "%carry"
"""The carry flag, which `.cc` instructions set and `addc`, `subc` and `madc` read."""


@dataclass(frozen=True)
class BasicBlock:
    """Instructions `start` to `end`; the only entry is the first one."""

    start: int
    end: int
    successors: tuple[int, ...]
    """Blocks that may follow; the number of blocks denotes the kernel's end."""


@dataclass(eq=False)
class Graph:
    """The control-flow graph of a kernel."""

    program: PtxProgram
    blocks: list[BasicBlock] = field(init=False)
    entries: dict[str, int] = field(init=False)
    """The block that begins at each label."""
    writes: list[tuple[str, ...]] = field(init=False)
    reads: list[tuple[str, ...]] = field(init=False)
    """Registers that each instruction reads."""

    def __post_init__(self) -> None:
        instructions = self.program.instructions
        self.writes = [tuple(written(item)) for item in instructions]
        self.reads = [tuple(read(item)) for item in instructions]
        # LLVM also writes labels that only line tables use: they must not cut blocks.
        branch_labels = {getattr(item.operands[0], "name", None) for item in instructions if item.root == "bra"}
        starts = {0, *(index for name, index in self.program.labels.items() if name in branch_labels)}
        starts |= {index + 1 for index, item in enumerate(instructions) if ends_block(item)}
        ordered = sorted(index for index in starts if index < len(instructions))
        numbers = {index: number for number, index in enumerate(ordered)}
        self.entries = {
            name: numbers.get(index, len(ordered))
            for name, index in self.program.labels.items()
            if index in numbers or index == len(instructions)
        }
        ends = [*ordered[1:], len(instructions)]
        self.blocks = [
            BasicBlock(start, end, self._successors(number, instructions[end - 1]))
            for number, (start, end) in enumerate(zip(ordered, ends, strict=True))
        ]

    def target(self, branch: Instruction) -> int:
        """Return the block that a branch goes to (raises NotKnown if it names no label)."""
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
    """Whether a new block begins after an instruction."""
    # Lanes of a warp run together here, so a barrier of one warp is an instruction like others.
    return item.root in _ENDS and not item.opcode.startswith(("bar.warp", "barrier.warp"))


def written(item: Instruction) -> Iterator[str]:
    """Yield the registers that an instruction writes."""
    if ".cc" in item.opcode:
        yield CARRY
    if item.root not in _NO_RESULT and item.operands:
        yield from _registers(item.operands[0])


def read(item: Instruction) -> Iterator[str]:
    """Yield the registers that an instruction reads, its result included if a guard may leave it unchanged."""
    if item.root in ("addc", "subc", "madc"):
        yield CARRY
    first = 0 if item.root in _NO_RESULT else 1
    for operand in item.operands[first:]:
        yield from _registers(operand)
    if item.guard:
        yield item.guard.name
        yield from written(item)


def is_lane_dependent(item: Instruction) -> bool:
    """Whether an operand differs between lanes."""
    parts = [
        part
        for operand in item.operands
        for part in (operand.items if isinstance(operand, OperandGroup) else (operand,))
    ]
    return any(isinstance(operand, Special) and operand.name in ("%tid.x", "%laneid") for operand in parts)


def _registers(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, OperandGroup):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, Pair):
        yield from (operand.first.name, operand.second.name)
    elif isinstance(operand, Not):
        yield operand.register.name
    elif isinstance(operand, Address):
        yield from _registers(operand.base)


# Branches that decide whether an instruction is executed, or how often.


def controls(graph: Graph) -> list[tuple[Register, ...]]:
    """Return the guards of the branches on which each instruction's execution depends."""
    # Control dependence (Ferrante, Ottenstein and Warren, "The program dependence graph", 1987): what
    # postdominates a successor of a branch, but not the branch, is executed because of it.
    after = _postdominators(graph)
    guards: list[set[Register]] = [set() for _ in graph.blocks]
    for number, block in enumerate(graph.blocks):
        guard = graph.program.instructions[block.end - 1].guard
        if guard is None or len(block.successors) < 2:
            continue
        for controlled in frozenset().union(*(after[follower] for follower in block.successors)):
            # A loop's branch decides how often its own block is executed.
            if controlled < len(guards) and (controlled == number or controlled not in after[number]):
                guards[controlled].add(guard)
    return [tuple(guards[number]) for number, block in enumerate(graph.blocks) for _ in range(block.start, block.end)]


def _postdominators(graph: Graph) -> list[frozenset[int]]:
    """Return the blocks, itself included, that every way from each block to the end passes; the end as last entry."""
    end = len(graph.blocks)
    every = frozenset(range(end + 1))
    # Begin with all and remove: the greatest solution, which loops do not make smaller.
    postdominators = [*[every] * end, frozenset({end})]
    changed = True
    while changed:
        changed = False
        # Facts flow backwards, so the last block first needs the fewest rounds.
        for number in range(end - 1, -1, -1):
            followers = graph.blocks[number].successors or (end,)
            passed = frozenset({number}) | every.intersection(*(postdominators[follower] for follower in followers))
            changed |= passed != postdominators[number]
            postdominators[number] = passed
    return postdominators


def constants(graph: Graph) -> dict[str, Immediate]:
    """Return the literal of each register whose only writer is a move of a literal."""
    counts = Counter(name for names in graph.writes for name in names)
    return {
        item.operands[0].name: item.operands[1]
        for item in graph.program.instructions
        if item.root == "mov"
        and not item.guard
        and isinstance(item.operands[0], Register)
        and isinstance(item.operands[1], Immediate)
        and counts[item.operands[0].name] == 1
    }


# Registers that never hold a subnormal float32, so that `.ftz` changes nothing in them.


_FLUSHES = frozenset("add sub mul fma min max abs neg ex2".split())
"""Opcodes whose result is never subnormal where they have `.ftz`."""


def normal(graph: Graph) -> frozenset[str]:
    """Return these registers: start with all, and remove those that may get a subnormal, until nothing changes."""
    # Optimistic: registers that only feed each other in a loop are normal unless something else feeds them.
    normals = {name for name, kind in graph.program.registers.items() if kind in ("b32", "f32")}
    changed = True
    while changed:
        changed = False
        for item, names in zip(graph.program.instructions, graph.writes, strict=True):
            if not normals.isdisjoint(names) and not _is_normal(item, normals):
                normals.difference_update(names)
                changed = True
    return frozenset(normals)


def _is_normal(item: Instruction, normals: Set[str]) -> bool:
    """Whether an instruction writes no subnormals, given the registers that hold none."""
    parts = item.opcode.split(".")
    if item.root in _FLUSHES:
        return parts[-1] == "f32" and "ftz" in parts
    if item.root == "mov" and len(item.operands) == 2:
        return holds_no_subnormal(item.operands[1], normals)
    if item.root == "selp" and parts[-1] in ("f32", "b32"):
        return all(holds_no_subnormal(operand, normals) for operand in item.operands[1:3])
    # An integer is zero or at least 1.
    return item.root == "cvt" and parts[-2] == "f32" and parts[-1] in ("s32", "u32")


def holds_no_subnormal(operand: Operand, normals: Set[str]) -> bool:
    """Whether an operand is a normal constant or a register without subnormals."""
    if isinstance(operand, Immediate) and operand.text[:2] in ("0f", "0F"):
        bits = int(operand.text[2:], 16)
        # Subnormal: the exponent is zero and the mantissa is not.
        return bool(bits >> 23 & 255) or not bits & 0x7FFFFFFF
    return isinstance(operand, Register) and operand.name in normals


# Live registers: those whose value at the start of a block is still read.


def live(graph: Graph) -> list[frozenset[str]]:
    """Return the live registers of each block, and of the kernel's end as the last entry."""
    exposed, killed = zip(
        *(_uses_and_definitions(graph, block.start, block.end) for block in graph.blocks), strict=True
    )
    # The usual backward analysis: live before a block is what it reads first, and what it leaves alone
    # of what is live after it.
    live_in: list[frozenset[str]] = [frozenset()] * (len(graph.blocks) + 1)
    changed = True
    while changed:
        changed = False
        for number in range(len(graph.blocks) - 1, -1, -1):
            after = frozenset().union(*(live_in[follower] for follower in graph.blocks[number].successors))
            before = exposed[number] | (after - killed[number])
            changed |= before != live_in[number]
            live_in[number] = before
    return live_in


def _uses_and_definitions(graph: Graph, start: int, end: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers that a block reads before it writes them, and those that it writes."""
    exposed: set[str] = set()
    killed: set[str] = set()
    for index in range(start, end):
        exposed.update(name for name in graph.reads[index] if name not in killed)
        killed.update(graph.writes[index])
    return frozenset(exposed), frozenset(killed)


# Register pressure of a thread, before an assembler has chosen an order of instructions.


_BITS = re.compile(r"\d+$")


def pressure(program: PtxProgram) -> int:
    """Return the largest number of live 32-bit registers at any instruction."""
    return max(pressures(Graph(program)), default=0)


def pressures(graph: Graph) -> list[int]:
    """Return the same for each block."""
    before = live(graph)
    words = {name: _words(kind) for name, kind in graph.program.registers.items()}
    return [_block_pressure(graph, block, before, words) for block in graph.blocks]


def _block_pressure(graph: Graph, block: BasicBlock, before: list[frozenset[str]], words: dict[str, int]) -> int:
    alive = set[str]().union(*(before[follower] for follower in block.successors))
    live_words = peak = sum(words.get(name, 0) for name in alive)
    for index in range(block.end - 1, block.start - 1, -1):
        # Backwards: before an instruction its results are not live yet, and its operands are.
        for name in set(graph.writes[index]) & alive:
            alive.remove(name)
            live_words -= words.get(name, 0)
        for name in set(graph.reads[index]) - alive:
            alive.add(name)
            live_words += words.get(name, 0)
        peak = max(peak, live_words)
    return peak


def _words(kind: str) -> int:
    """Return how many 32-bit registers a value of a type takes; predicates have registers of another kind."""
    bits = _BITS.search(kind)
    return -(-int(bits[0]) // 32) if bits else 0
