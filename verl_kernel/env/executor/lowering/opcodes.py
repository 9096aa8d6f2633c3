# SPDX-License-Identifier: Apache-2.0
"""What lowers each opcode, by its root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.ptx.program import BITS, Instruction

# The modifiers of an instruction, taken one by one, so that none is left without a meaning.


class Modifiers:
    """What follows an opcode's root."""

    def __init__(self, item: Instruction) -> None:
        self._item, self._left = item, list(item.modifiers)

    def take(self, *names: str) -> str | None:
        """The first of these that stands there, which is then taken; None if there is none."""
        for name in self._left:
            if name in names:
                self._left.remove(name)
                return name
        return None

    def has(self, name: str) -> bool:
        """Whether it stood there; it is taken."""
        return self.take(name) is not None

    def need(self, *names: str) -> str:
        """As `take` (raises NotKnown if there is none)."""
        found = self.take(*names)
        if found is None:
            raise self._item.unknown(f"it lacks one of {', '.join(names)}")
        return found

    def type(self) -> str:
        """The last type (raises NotKnown if there is none)."""
        for place in range(len(self._left) - 1, -1, -1):
            if self._left[place] in BITS:
                return self._left.pop(place)
        raise self._item.unknown("it has no type")

    def take_prefix(self, prefix: str) -> str | None:
        """As `take`, by how a name begins."""
        return self.take(*(name for name in self._left if name.startswith(prefix)))

    def close(self) -> None:
        """Say that all were meant to be taken (raises NotKnown if some are left)."""
        if self._left:
            raise self._item.unknown(f"nothing is known of `.{'.'.join(self._left)}`")


Lowering: TypeAlias = Callable[[Body, Modifiers], None]

OPCODES: dict[str, Lowering] = {}


def opcode(*roots: str) -> Callable[[Lowering], Lowering]:
    """Declare a function to lower instructions with these roots; it takes every modifier that it gives a meaning."""

    def declare(function: Lowering) -> Lowering:
        OPCODES.update(dict.fromkeys(roots, function))
        return function

    return declare


def lower(body: Body) -> None:
    """Lower the body's current instruction (raises NotKnown for an opcode or a modifier that nothing defines)."""
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
