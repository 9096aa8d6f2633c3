# SPDX-License-Identifier: Apache-2.0
"""Finds the origins of stored values: what a kernel computes, what it moves from a load, and what is constant.

The analysis is static: arithmetic that changes nothing, such as `x + 0.0`, counts as computing. A value is computed if
data select it, if it results from arithmetic on data, or if data determine the address of its store; conversions,
shuffles and packing only move. Data also select what branches on them decide: a counter of a loop that data end, a flag
that one of two branches sets. Values that depend only on the position, such as an index, are computed too. Loads from
shared or local memory may return anything that was stored there, and how much of it lies where is computed if data
determined the addresses, as in a histogram.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Literal

from verl_kernel.env.emulator.flow.graph import Graph, controls, read, written
from verl_kernel.env.emulator.ptx.program import (
    STORES,
    Address,
    Instruction,
    OperandGroup,
    PtxProgram,
    Register,
    Special,
)

Kind = Literal["computes", "moves", "constant"]
"""What a store stores: something computed, something loaded, or a constant."""
# Written by what replaces a store that is left out; nothing reads it.
_UNUSED = "%left_out"


Origin = int
"""Bits that tell the origin of a value; 0 for a constant of the launch."""
_LOADED = 1
"""Loaded from memory."""
_COMPUTED = 2
"""Computed by arithmetic on loaded values."""
_PLACED = 4
"""Derived from a special register such as the lane or the block."""
_DECIDED = 8
"""Written, or counted, where a branch on loaded values decides. As an address it shows no computing: else a copy in a
loop that data end would."""

# Opcodes whose result is loaded bits in another register or type. A comparison of data is one of them:
# it computes once something is selected by it. Logic on bits may take a number apart or put two together, and compute
# nothing: values tell (`copy_stores`).
_MOVING = frozenset("mov cvta cvt shfl prmt selp movmatrix setp".split())
_MEMORY = ("shared", "local")
"""Memory of a block or lane; of its contents only the union of what is stored there is known."""


# Found once a program: compiling, launching and ablations all ask for it.
_STORES: weakref.WeakKeyDictionary[PtxProgram, dict[int, Kind]] = weakref.WeakKeyDictionary()


def remember(program: PtxProgram, kinds: dict[int, Kind]) -> None:
    """Store what `stores` found for the same program in another process."""
    _STORES[program] = kinds


def stores(program: PtxProgram) -> dict[int, Kind]:
    """Classify each store or atomic to global memory, by the number of its instruction."""
    if program not in _STORES:
        _STORES[program] = _classified(program)
    return _STORES[program]


def _classified(program: PtxProgram) -> dict[int, Kind]:
    origins = _Origins(program)
    return {
        number: _kind(item, *origins.stored(item), origins.depends_on_data(number, item))
        for number, item in enumerate(program.instructions)
        if item.root in ("st", "red", "atom") and "global" in item.modifiers
    }


def depends_on_data(program: PtxProgram, number: int) -> bool:
    """Whether loaded values decide the address of an access, or whether it happens."""
    return _Origins(program).depends_on_data(number, program.instructions[number])


def without(program: PtxProgram, left_out: Collection[int]) -> PtxProgram:
    """Return the kernel without the stores whose instruction numbers are given; the load of an atomic remains."""
    stored = stores(program)
    instructions = [
        _without_store(item) if number in left_out and number in stored else item
        for number, item in enumerate(program.instructions)
    ]
    return replace(program, instructions=instructions, registers={**program.registers, _UNUSED: "b32"})


def _without_store(item: Instruction) -> Instruction:
    if item.root == "atom":
        # The kernel may read what an atomic returns.
        return replace(item, opcode=f"ld.global.b{item.opcode[-2:]}", operands=item.operands[:2])
    # An instruction replaces it, so that numbers of instructions and labels stay valid.
    return replace(item, opcode="mov.b32", operands=(Register(_UNUSED), Register(_UNUSED)))


def _kind(item: Instruction, address_origin: Origin, origin: Origin, depends_on_data: bool) -> Kind:
    # An atomic combines its operand with what others have stored there: that is arithmetic.
    is_sum = item.root in ("red", "atom") and "exch" not in item.modifiers
    if origin & (_COMPUTED | _DECIDED) or address_origin & _LOADED or (is_sum and origin):
        return "computes"
    if origin & _LOADED:
        return "moves"
    # Neither loaded nor constant: made of the position, as an index is. Where a constant is stored, data may decide.
    return "computes" if origin or depends_on_data else "constant"


class _Origins:
    """Origins of all registers and of a block's memory, computed by passes over the code until nothing changes."""

    def __init__(self, program: PtxProgram) -> None:
        self._origins: dict[str, Origin] = {}
        self._deciding = controls(Graph(program))
        writers = Counter(name for item in program.instructions for name in written(item))
        # Where a register has one writer, no branch decides which value it holds.
        self._joined = frozenset(name for name, count in writers.items() if count > 1)
        self._changed = True
        while self._changed:
            self._changed = False
            for number, item in enumerate(program.instructions):
                self._propagate(number, item)

    def stored(self, item: Instruction) -> tuple[Origin, Origin]:
        """Return the origins of a store's address and of the stored value."""
        address_index = 1 if item.root == "atom" else 0
        base = getattr(item.operands[address_index], "base", None)
        return self.of([base]), self.of(item.operands[address_index + 1 :])

    def depends_on_data(self, number: int, item: Instruction) -> bool:
        """Whether loaded values decide where, or whether, an instruction accesses memory."""
        addresses = [operand.base for operand in item.operands if isinstance(operand, Address)]
        deciding = [*addresses, *self._deciding[number], *([item.guard] if item.guard else [])]
        return bool(self.of(deciding) & (_LOADED | _COMPUTED | _DECIDED))

    def of(self, operands: Iterable[object]) -> Origin:
        """Return the union of the operands' origins."""
        union = 0
        for operand in operands:
            if isinstance(operand, OperandGroup):
                union |= self.of(operand.items)
            elif isinstance(operand, Special):
                union |= _PLACED
            elif isinstance(operand, Register):
                union |= self._origins.get(operand.name, 0)
        return union

    def _propagate(self, number: int, item: Instruction) -> None:
        memory = next((name for name in _MEMORY if name in item.modifiers), None)
        if memory and item.root in (*STORES, "red", "atom"):
            address_origin, value = self.stored(item)
            # Data that choose where to store compute: a histogram stores constants.
            self._add(memory, value | (_DECIDED if address_origin & _LOADED else 0))
        if item.root in (*STORES, "red") or (item.root == "cp" and memory):
            if memory and item.root == "cp":
                self._add(memory, _LOADED)
            return
        origin = self._result(item, memory)
        is_moved = origin & _LOADED  # a copy is one wherever it is made
        # A counter of a loop that data end, or a flag that one of two branches sets, is computed from data.
        is_decided = any(self.of([guard]) & (_LOADED | _DECIDED) for guard in self._deciding[number])
        for name in written(item):
            self._add(name, origin | (_DECIDED if is_decided and not is_moved and name in self._joined else 0))

    def _result(self, item: Instruction, memory: str | None) -> Origin:
        if item.root in ("ld", "ldmatrix", "atom"):
            # What was stored there may be anything that the kernel stores to this memory.
            space = memory or ("shared" if item.root == "ldmatrix" else None)
            if space:
                return self._origins.get(space, 0)
            # Parameters are the same for the whole launch.
            return 0 if "param" in item.modifiers else _LOADED
        origin = self.of(item.operands[1:]) | self.of([Register(name) for name in read(item)])
        # Selecting by data computes, as `max` of two loaded values does.
        chosen = self.of(item.operands[3:4]) if item.root == "selp" else self.of([item.guard])
        is_computed = item.root not in _MOVING or chosen & _LOADED
        return origin | _COMPUTED if is_computed and origin & _LOADED else origin

    def _add(self, name: str, origin: Origin) -> None:
        before = self._origins.get(name, 0)
        if before | origin != before:
            self._origins[name], self._changed = before | origin, True
