# SPDX-License-Identifier: Apache-2.0
"""Which accesses of a launch come before which in every schedule: those that atomics put in order.

A program that looks at an atomic's result knows what every program did before its own atomics on that address (vector
clocks, Lamport 1978 and Mattern 1989; programs run one after another here, so a clock is the number of an access). An
atomic whose result is thrown away tells others, but learns nothing; a relaxed one does neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.devices.cpu.memory.access import Array

_SCATTERED = 64
"""Atomics on more addresses than this are kept as one block."""
_MOST_BYTES, _MOST_BLOCKS = 64 << 20, 4096
"""Beyond this much of bookkeeping every access counts as ordered: a launch may be too large to be checked for races."""


@dataclass(frozen=True)
class _Block:
    """An atomic on many addresses, and what its program knew."""

    addresses: Array
    known: Array

    def meets(self, addresses: Array) -> bool:
        return bool(np.isin(addresses, self.addresses).any())


class Order:
    """What the programs of one launch know of each other."""

    def __init__(self) -> None:
        self._told: dict[int, Array] = {}
        self._blocks: list[_Block] = []
        self._learnt: defaultdict[int, tuple[list[int], list[Array]]] = defaultdict(lambda: ([], []))
        """By program: accesses at which it learnt something, and from then on the latest known access of each other."""
        self._bytes = 0

    @property
    def is_lost(self) -> bool:
        """Whether there is too much to keep; then every access counts as ordered."""
        return self._bytes > _MOST_BYTES or len(self._blocks) > _MOST_BLOCKS

    def learn(self, program: int, number: int, addresses: Array) -> None:
        """Access `number` of a program looks at atomics on these addresses."""
        told = [self._told[address] for address in addresses.tolist() if address in self._told]
        told += [block.known for block in self._blocks if block.meets(addresses)]
        known = before = self._copy(program)
        for other in {id(item): item for item in told}.values():
            known = _joined(known, other)
        if told and not self.is_lost and not np.array_equal(known, before):
            numbers, states = self._learnt[program]
            numbers.append(number)
            states.append(known)
            self._bytes += known.nbytes

    def tell(self, program: int, number: int, addresses: Array) -> None:
        """Access `number` of a program lets others know by atomics on these addresses."""
        if self.is_lost:
            return
        known = self._copy(program)
        known[program] = number
        if addresses.size > _SCATTERED:
            self._blocks.append(_Block(addresses, known))
            self._bytes += known.nbytes
            return
        for address in addresses.tolist():
            before = self._told.get(address)
            self._told[address] = known if before is None else _joined(known, before)
            self._bytes += known.nbytes - (0 if before is None else before.nbytes)

    def known(self, program: int, number: int) -> Array | None:
        """By program, the latest access that comes before access `number` of `program` in any schedule.

        None if there is no order at all.
        """
        if program not in self._learnt:
            return None
        numbers, states = self._learnt[program]
        position = bisect_right(numbers, number)
        return states[position - 1] if position else None

    def _copy(self, program: int) -> Array:
        """What a program knows now, as a new array for programs up to itself."""
        if program in self._learnt:
            latest: Array = self._learnt[program][1][-1]
            return np.array(latest)
        return np.zeros(program + 1, dtype=np.int32)


def _joined(known: Array, other: Array) -> Array:
    """What either says, as a new array; programs run in order, so the other one is not longer."""
    joined: Array = known.copy()
    np.maximum(joined[: other.size], other, out=joined[: other.size])
    return joined
