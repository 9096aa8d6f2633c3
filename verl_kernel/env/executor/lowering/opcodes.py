# SPDX-License-Identifier: Apache-2.0
"""What lowers each opcode, by its root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.lowering.modifiers import Modifiers

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
