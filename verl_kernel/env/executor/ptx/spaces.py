# SPDX-License-Identifier: Apache-2.0
"""Generic addresses that can only be of local memory, as a called function gets them of its caller's array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_kernel.env.executor.ptx.program import Address, Group, Instruction, Pair, Program, Register

_SPACES = frozenset({"global", "shared", "shared::cta", "local", "param", "const"})


def with_local(program: Program) -> Program:
    """The program with its space named in accesses that have none, where all that their address may hold is local."""
    known = _local(program)
    if known:
        program.instructions[:] = [_named(item, known) for item in program.instructions]
    return program


def _local(program: Program) -> set[str]:
    """Registers that hold generic addresses of local memory and nothing else."""
    other: set[str] = set()
    while True:
        known = _derived(program, other)
        found = {
            name for item in program.instructions if not _is_local(item, known) for name in _targets(item)
        } & known  # fmt: skip
        if not found:
            return known
        other |= found


def _derived(program: Program, other: set[str]) -> set[str]:
    """Registers that some instruction makes of such an address."""
    known: set[str] = set()
    while found := {
        name for item in program.instructions if _is_local(item, known) for name in _targets(item)
    } - known - other:  # fmt: skip
        known |= found
    return known


def _is_local(item: Instruction, known: set[str]) -> bool:
    if item.opcode == "cvta.local.u64":
        return True
    sources = [one.name for one in item.operands[1:] if isinstance(one, Register)]
    return item.root in ("mov", "add") and not item.guard and len(known.intersection(sources)) == 1


def _targets(item: Instruction) -> Iterator[str]:
    """Registers that an instruction writes."""
    for operand in item.operands[:1]:
        for one in operand.items if isinstance(operand, Group) else (operand,):
            parts = (one.first, one.second) if isinstance(one, Pair) else (one,)
            yield from (part.name for part in parts if isinstance(part, Register))


def _named(item: Instruction, known: set[str]) -> Instruction:
    address = next((one for one in item.operands if isinstance(one, Address)), None)
    if item.root not in ("ld", "st") or address is None or not _SPACES.isdisjoint(item.modifiers):
        return item
    if not isinstance(address.base, Register) or address.base.name not in known:
        return item
    return replace(item, opcode=".".join((item.root, "local", *item.modifiers)))
