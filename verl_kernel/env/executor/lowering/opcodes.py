# SPDX-License-Identifier: Apache-2.0
"""Registers the function that lowers each opcode, by the opcode's root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.ptx.program import BITS, Instruction

# The modifiers of an instruction are taken one by one, so that none is ignored.


class Modifiers:
    """The modifiers of an instruction that were not taken yet."""

    def __init__(self, item: Instruction) -> None:
        self._item, self._left = item, list(item.modifiers)

    def take(self, *names: str) -> str | None:
        """Take the first modifier that is one of these names; None if there is none."""
        for name in self._left:
            if name in names:
                self._left.remove(name)
                return name
        return None

    def has(self, name: str) -> bool:
        """Take a modifier; returns whether it was there."""
        return self.take(name) is not None

    def need(self, *names: str) -> str:
        """Take one of these names (raises NotKnown if none is there)."""
        found = self.take(*names)
        if found is None:
            raise self._item.unknown(f"it lacks one of {', '.join(names)}")
        return found

    def type(self) -> str:
        """Take the last type (raises NotKnown if there is none)."""
        for place in range(len(self._left) - 1, -1, -1):
            if self._left[place] in BITS:
                return self._left.pop(place)
        raise self._item.unknown("it has no type")

    def take_prefix(self, prefix: str) -> str | None:
        """Take a modifier by its prefix; None if there is none."""
        return self.take(*(name for name in self._left if name.startswith(prefix)))

    def close(self) -> None:
        """Check that all modifiers were taken (raises NotKnown if some are left)."""
        if self._left:
            raise self._item.unknown(f"nothing is known of `.{'.'.join(self._left)}`")


Lowering: TypeAlias = Callable[[Body, Modifiers], None]

OPCODES: dict[str, Lowering] = {}


def opcode(*roots: str) -> Callable[[Lowering], Lowering]:
    """Declare a function that lowers instructions with these roots; it must take every modifier that it handles."""

    def declare(function: Lowering) -> Lowering:
        OPCODES.update(dict.fromkeys(roots, function))
        return function

    return declare


def lower(body: Body) -> None:
    """Lower the body's current instruction (raises NotKnown for an opcode or a modifier without a definition)."""
    item = body.item
    lowering = OPCODES.get(item.root)
    if lowering is None:
        raise item.unknown()
    modifiers = Modifiers(item)
    try:
        lowering(body, modifiers)
    except (ValueError, IndexError, KeyError) as error:
        raise item.unknown("its operands or its type are none that it may have") from error
    modifiers.close()
