# SPDX-License-Identifier: Apache-2.0
"""Inlines functions at their calls, so that a kernel has one body.

A call passes values in variables of the parameter space; each piece of such a variable becomes a register.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.ptx.program import (
    BITS,
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    OperandGroup,
    Pair,
    PtxProgram,
    Register,
    Symbol,
)

_MAX_DEPTH = 64
"""Nested calls beyond this many are taken for recursion, which inlining cannot end."""
_PRINTS, _STOPS = "vprintf", "__assertfail"
"""Functions of the driver: printed text is dropped, and a failed assertion stops the launch."""


def inlined(entry: PtxProgram, functions: Mapping[str, PtxProgram]) -> PtxProgram:
    """Return the kernel with all functions that it calls inlined (raises NotKnown for a missing function)."""
    if not any(item.root == "call" for item in entry.instructions):
        return entry
    program = replace(entry, instructions=[], labels={}, registers=dict(entry.registers), local=dict(entry.local))
    _Inliner(program, functions).add(entry, "", {}, 0)
    return program


class _Inliner:
    """Appends bodies to one program; names of each body are made unique."""

    def __init__(self, program: PtxProgram, functions: Mapping[str, PtxProgram]) -> None:
        self._program, self._functions = program, functions
        self._kernel_parameters = {item.name for item in program.parameters}
        self._count = 0

    def add(self, body: PtxProgram, prefix: str, variables: Mapping[str, str], depth: int) -> None:
        """Append a body.

        Args:
            body: the body of the kernel or of a function.
            prefix: prefix of the body's names.
            variables: the caller's variable for each parameter and result of the body.
            depth: how many nested calls lead to the body.
        """
        if depth > _MAX_DEPTH:
            raise NotKnown("the emulator does not know functions that call themselves")
        if prefix:
            self._program.registers |= {prefix + name: kind for name, kind in body.registers.items()}
            # No access of a lane is aligned to more than 16 bytes.
            start = -(-self._program.local_bytes // 16) * 16
            self._program.local |= {prefix + name: start + offset for name, offset in body.local.items()}
            self._program.local_bytes = start + body.local_bytes
        # Labels keep their instructions: numbers in the program are others than those in the body.
        marks: dict[int, list[str]] = {}
        for name, index in body.labels.items():
            marks.setdefault(index, []).append(prefix + name)
        for index, item in enumerate(body.instructions):
            self._mark(marks.get(index, ()))
            self._add_instruction(_Names(body, prefix, variables, self._program), item, depth)
        self._mark([*marks.get(len(body.instructions), ()), *([f"{prefix}end"] if prefix else ())])

    def _mark(self, names: list[str] | tuple[()]) -> None:
        self._program.labels |= dict.fromkeys(names, len(self._program.instructions))

    def _add_instruction(self, names: _Names, item: Instruction, depth: int) -> None:
        if item.root == "call":
            self._call(names, item, depth)
        elif item.root in ("ret", "exit") and names.prefix:
            self._put(names, item, "bra", (Symbol(f"{names.prefix}end"),))
        elif item.opcode.startswith(("st.param", "ld.param")):
            self._hand_over(names, item)
        else:
            self._put(names, item, item.opcode, tuple(map(names.operand, item.operands)))

    def _put(self, names: _Names, item: Instruction, opcode: str, operands: tuple[Operand, ...]) -> None:
        guard = Register(names.prefix + item.guard.name) if item.guard else None
        self._program.instructions.append(
            Instruction(opcode, operands, guard, item.is_negated, item.source_line, item.text)
        )

    def _call(self, names: _Names, item: Instruction, depth: int) -> None:
        operands = list(item.operands)
        results = operands.pop(0) if isinstance(operands[0], OperandGroup) else OperandGroup(())
        target = operands.pop(0)
        arguments = operands.pop(0) if operands else OperandGroup(())
        if (
            not isinstance(target, Symbol)
            or not isinstance(results, OperandGroup)
            or not isinstance(arguments, OperandGroup)
        ):
            raise item.unknown("it names no function")
        # Both are declared in each module that asserts or prints, and the driver of a GPU defines them.
        if target.name == _STOPS:
            self._put(names, item, "trap", ())
        elif target.name == _PRINTS:
            for result in results.items:
                self._put(names, item, "mov.b32", (self._piece(names.variable(result, item), 0, 32), Immediate("0")))
        else:
            function = self._functions.get(target.name)
            if function is None or item.guard:
                raise item.unknown("there is no such function, or the call stands under a guard")
            self._count += 1
            # Values are handed over by position: arguments first, then results.
            formal = [*(parameter.name for parameter in function.parameters), *function.results]
            actual = [names.variable(operand, item) for operand in (*arguments.items, *results.items)]
            # No name of PTX has a colon, so a prefix with one makes names that no body has.
            self.add(function, f"{self._count}:", dict(zip(formal, actual, strict=True)), depth + 1)

    def _hand_over(self, names: _Names, item: Instruction) -> None:
        """Convert a store to, or a load from, a variable of the parameter space to moves of registers."""
        is_store = item.root == "st"
        address, values = item.operands if is_store else item.operands[::-1]
        base = address.base if isinstance(address, Address) else None
        # The kernel's own parameters are in memory: only those of calls become registers.
        if not isinstance(address, Address) or not isinstance(base, Symbol) or base.name in self._kernel_parameters:
            self._put(names, item, item.opcode, tuple(map(names.operand, item.operands)))
            return
        kind = item.modifiers[-1]
        bits, variable = BITS[kind], names.variable(base, item)
        for index, value in enumerate(values.items if isinstance(values, OperandGroup) else (values,)):
            piece = self._piece(variable, address.offset + index * bits // 8, bits)
            pair = (piece, names.operand(value)) if is_store else (names.operand(value), piece)
            self._put(names, item, f"mov.b{bits}", pair)

    def _piece(self, variable: str, offset: int, bits: int) -> Register:
        # Stores and loads of a variable are taken to agree in offset and width, as LLVM writes both.
        name = f"{variable}+{offset}.{bits}"
        self._program.registers[name] = f"b{bits}"
        return Register(name)


class _Names:
    """Maps names of a body to names of the program."""

    def __init__(self, body: PtxProgram, prefix: str, variables: Mapping[str, str], program: PtxProgram) -> None:
        self.prefix, self._body, self._variables, self._program = prefix, body, variables, program

    def variable(self, operand: Operand, item: Instruction) -> str:
        """Return the name of a variable of the parameter space."""
        if not isinstance(operand, Symbol):
            raise item.unknown("a variable is expected")
        return self._variables.get(operand.name, f"{self.prefix}{operand.name}")

    def operand(self, operand: Operand) -> Operand:
        """Return an operand with its new names."""
        if isinstance(operand, Register):
            return Register(self.prefix + operand.name)
        if isinstance(operand, Not):
            return Not(Register(self.prefix + operand.register.name))
        if isinstance(operand, Pair):
            return Pair(Register(self.prefix + operand.first.name), Register(self.prefix + operand.second.name))
        if isinstance(operand, OperandGroup):
            return OperandGroup(tuple(map(self.operand, operand.items)))
        if isinstance(operand, Address):
            base = self.operand(operand.base)
            assert isinstance(base, Register | Immediate | Symbol)
            return Address(base, operand.offset)
        if isinstance(operand, Symbol) and (operand.name in self._body.labels or operand.name in self._body.local):
            return Symbol(self.prefix + operand.name)
        return operand
