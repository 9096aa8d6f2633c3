# SPDX-License-Identifier: Apache-2.0
"""Joins atomics of neighbouring elements: code for an H100 has one of 16 bytes where code for older GPUs has several.

A lane that adds to consecutive floating-point numbers does so by one instruction from compute capability 9.0 on (PTX
ISA, "atom", `.v2`, `.v4` and `.v8`), which Triton writes there. What is executed here is code for 8.9, whose
instructions request each sector of the second level again.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.flow.graph import written
from verl_kernel.env.emulator.lowering.function import Module
from verl_kernel.env.emulator.ptx.program import BITS, Address, Immediate, Instruction, Operand, PtxProgram
from verl_kernel.env.emulator.reuse_distance import Use

_VECTOR, _SECTOR = 16, 32
_FAR = 16
"""Instructions through which an address is followed."""
_INTEGERS = ("s32", "u32", "s64", "u64", "b32", "b64")
_FLOATS = ("f32", "f16", "bf16", "f16x2", "bf16x2")
_FOLLOWING: weakref.WeakKeyDictionary[PtxProgram, tuple[int, ...]] = weakref.WeakKeyDictionary()
"""What `_following` returned for each program."""


def joined(count: LaunchCount) -> LaunchCount:
    """Return the count of a launch whose atomics on neighbouring elements request their sectors once."""
    if count.program not in _FOLLOWING:
        _FOLLOWING[count.program] = tuple(_following(count.program, count.module))
    sites, reads, writes = list(count.sites), list(count.reads), list(count.writes)
    for number in _FOLLOWING[count.program]:
        site, sites[number] = sites[number], replace(sites[number], sectors=0, missed=0)
        for uses in (reads, writes):
            uses[site.row] = _less(uses[site.row], site.sectors * _SECTOR)
    return with_uses(replace(count, sites=sites), reads, writes) if _FOLLOWING[count.program] else count


def _less(use: Use, again: int) -> Use:
    total = max(use.extent and min(use.own, use.extent), use.total - again)
    return replace(use, total=total, own=min(use.own, total))


def _following(program: PtxProgram, module: Module) -> Iterator[int]:
    """Yield the sites of atomics that a vector with an earlier one covers."""
    numbers = {id(site.item): number for number, site in enumerate(module.sites) if site.kind == "global atomic"}
    sums = _Sums(program)
    for start, end in module.blocks:
        key: object = None
        begin, reached = 0, 0
        for item in program.instructions[start:end]:
            if id(item) not in numbers or (size := _size(item)) is None:
                continue
            address = sums.of(next(operand for operand in item.operands if isinstance(operand, Address)))
            same, offset = (item.opcode, item.guard, item.is_negated, address.terms), address.constant
            if same == key and offset == reached and offset + size - begin <= _VECTOR:
                yield numbers[id(item)]
            else:
                key, begin = same, offset
            reached = offset + size


def _size(item: Instruction) -> int | None:
    """Return the bytes to which an atomic adds; None if it adds no floating-point number, or several."""
    kind = item.modifiers[-1]
    is_alone = not any(part.startswith("v") for part in item.modifiers)
    return BITS[kind] // 8 if "add" in item.modifiers and kind in _FLOATS and is_alone else None


@dataclass(frozen=True)
class _Sum:
    """A number as multiples of registers and a constant."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    def __add__(self, other: _Sum) -> _Sum:
        factors = Counter(dict(self.terms))
        factors.update(dict(other.terms))
        return _Sum(tuple(sorted(factors.items())), self.constant + other.constant)

    def times(self, factor: int) -> _Sum:
        """Return a multiple."""
        return _Sum(tuple((name, factor * count) for name, count in self.terms), self.constant * factor)


class _Sums:
    """The registers of a program as sums of those that no addition defines."""

    def __init__(self, program: PtxProgram) -> None:
        self._definitions: dict[str, list[Instruction]] = {}
        for item in program.instructions:
            for name in written(item):
                self._definitions.setdefault(name, []).append(item)

    def of(self, operand: Operand, depth: int = 0) -> _Sum:
        """Return an operand as a sum, in which what was computed too many instructions ago counts as given."""
        if isinstance(operand, Address):
            return self.of(operand.base, depth) + _Sum((), operand.offset)
        if isinstance(operand, Immediate):
            return _Sum((), int(operand.text, 0))
        name = getattr(operand, "name", "")
        items = self._definitions.get(name, [])
        return self._defined(items[0], name, depth + 1) if len(items) == 1 and depth < _FAR else _Sum(((name, 1),))

    def _defined(self, item: Instruction, name: str, depth: int) -> _Sum:
        first, *others = item.operands[1:]
        factor = int(others[0].text, 0) if others and isinstance(others[0], Immediate) else None
        if item.guard is not None or item.modifiers[-1] not in _INTEGERS:
            return _Sum(((name, 1),))
        if item.root == "add":
            return self.of(first, depth) + self.of(others[0], depth)
        if item.root in ("mul", "shl") and factor is not None and "hi" not in item.modifiers:
            return self.of(first, depth).times(1 << factor if item.root == "shl" else factor)
        # Bits that are set in a multiple of 16 bytes: if the register had them already, the atomics meet in one place.
        if item.root == "or" and factor is not None:
            return _Sum(((f"{getattr(first, 'name', '')} |", 1),), factor)
        return _Sum(((name, 1),))


def with_uses(count: LaunchCount, reads: Sequence[Use], writes: Sequence[Use]) -> LaunchCount:
    """Return a count with other traffic; repeated reads at far distances are scaled like all repeated reads."""
    total, before = (sum(use.total for use in uses) for uses in ((*reads, *writes), (*count.reads, *count.writes)))
    repeated, repeated_before = (sum(use.own - use.once for use in uses) for uses in (reads, count.reads))
    # The heaviest block's traffic is scaled like the launch's: blocks are not counted again.
    scale, far_scale = total / max(1, before), min(1.0, repeated / max(1, repeated_before))
    return replace(
        count, reads=list(reads), writes=list(writes), heaviest_bytes=ceil(count.heaviest_bytes * scale),
        rereads=tuple((distance, round(size * far_scale)) for distance, size in count.rereads),
        returns=tuple((distance, round(size * far_scale)) for distance, size in count.returns),
    )  # fmt: skip
