# SPDX-License-Identifier: Apache-2.0
"""The modifiers of an instruction, taken one by one, so that none is left without a meaning."""

from __future__ import annotations

from verl_kernel.env.executor.ptx.program import BITS, Instruction


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
