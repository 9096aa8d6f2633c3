# SPDX-License-Identifier: Apache-2.0
"""Registers the function that lowers each opcode, by the opcode's root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from verl_kernel.env.emulator.lowering.body import Body
from verl_kernel.env.emulator.ptx.program import BITS, Instruction

SHORTS = ("s16x2", "u16x2")
"""Types of two integers of 16 bits."""


class Modifiers:
    """The modifiers of an instruction that were not taken yet, so that none is ignored."""

    def __init__(self, item: Instruction) -> None:
        self._item, self._remaining = item, list(item.modifiers)

    def take(self, *names: str) -> str | None:
        """Take the first modifier that is one of these names; None if there is none."""
        for name in self._remaining:
            if name in names:
                self._remaining.remove(name)
                return name
        return None

    def has(self, name: str) -> bool:
        """Take a modifier; returns whether it was there."""
        return self.take(name) is not None

    def need(self, *names: str) -> str:
        """Take one of these names (raises NotKnown if none is there)."""
        modifier = self.take(*names)
        if modifier is None:
            raise self._item.unknown(f"it lacks one of {', '.join(names)}")
        return modifier

    def type(self) -> str:
        """Take the last type (raises NotKnown if there is none)."""
        for index in range(len(self._remaining) - 1, -1, -1):
            if self._remaining[index] in SHORTS and self._item.root not in ("add", "min", "max"):
                raise self._item.unknown("pairs of integers have sums and extremes only")
            if self._remaining[index] in BITS:
                return self._remaining.pop(index)
        raise self._item.unknown("it has no type")

    def take_prefix(self, prefix: str) -> str | None:
        """Take a modifier by its prefix; None if there is none."""
        return self.take(*(name for name in self._remaining if name.startswith(prefix)))

    def close(self) -> None:
        """Check that all modifiers were taken (raises NotKnown if some are left)."""
        if self._remaining:
            raise self._item.unknown(f"nothing is known of `.{'.'.join(self._remaining)}`")


Lowering: TypeAlias = Callable[[Body, Modifiers], None]
"""A function that lowers an instruction, and takes the modifiers that it handles."""

OPCODES: dict[str, Lowering] = {}
"""The function for each root of an opcode."""
_HOPPER = "that is Hopper's, and the emulator compiles for GPUs before it"
_CLUSTERS = "clusters of blocks are not executed"
NOT_EXECUTED = {
    "wgmma": f"four warps multiply matrices together; {_HOPPER}",
    "mbarrier": f"a barrier counts bytes of asynchronous copies; {_HOPPER}",
    "cp.async.bulk": f"a tile is copied at once (TMA); {_HOPPER}",
    "cp.reduce.async.bulk": f"a tile is added at once (TMA); {_HOPPER}",
    "cp.async.mbarrier": f"a barrier waits for copies; {_HOPPER}",
    "tensormap": f"the description of a tile (TMA) is changed; {_HOPPER}",
    "fence.proxy.tensormap::generic": f"the description of a tile (TMA) was changed; {_HOPPER}",
    "elect": f"one lane speaks for its warp (TMA); {_HOPPER}",
    "setmaxnreg": f"warps have parts of their own (warp specialisation); {_HOPPER}",
    "bar.arrive": "warps have parts of their own (warp specialisation), which are not executed",
    "barrier.cluster": _CLUSTERS,
    "mapa": _CLUSTERS,
    "getctarank": _CLUSTERS,
    "clusterlaunchcontrol": _CLUSTERS,
    "st.async": _CLUSTERS,
    "red.async": _CLUSTERS,
    "multimem": "several GPUs are not executed",
    "tcgen05": "tensor memory is Blackwell's, and the emulator compiles for GPUs before it",
    "match": "lanes with equal values find each other, which has no definition here",
}
"""By the beginning of an opcode that Triton's back end can write, or libraries, why there is no definition."""


_ROOTS = frozenset(begin.partition(".")[0] for begin in NOT_EXECUTED)


def check(item: Instruction) -> None:
    """Refuse an instruction of the table (raises NotKnown, with its reason)."""
    if item.root in _ROOTS:
        for begin, why in NOT_EXECUTED.items():
            if f"{item.opcode}.".startswith(f"{begin}."):
                raise item.unknown(why)


def opcode(*roots: str) -> Callable[[Lowering], Lowering]:
    """Declare a function that lowers instructions with these roots; it must take every modifier that it handles."""

    def declare(function: Lowering) -> Lowering:
        OPCODES.update(dict.fromkeys(roots, function))
        return function

    return declare


def lower(body: Body) -> None:
    """Lower the body's current instruction (raises NotKnown for an opcode or a modifier without a definition)."""
    item = body.item
    check(item)
    lowering = OPCODES.get(item.root)
    if lowering is None:
        raise item.unknown()
    modifiers = Modifiers(item)
    try:
        lowering(body, modifiers)
    # Malformed PTX is refused like unknown PTX: it may come from inline assembly of a candidate.
    except (ValueError, IndexError, KeyError) as error:
        raise item.unknown("its operands or its type are none that it may have") from error
    # A modifier that no function has taken may change the result: refused, never ignored.
    modifiers.close()
