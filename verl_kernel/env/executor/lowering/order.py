# SPDX-License-Identifier: Apache-2.0
"""Which instructions may put accesses of several blocks in order (PTX ISA, "Memory Consistency Model")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_kernel.env.executor.flow.graph import Graph
from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.writer import WIDE
from verl_kernel.env.executor.ptx.program import Instruction

if TYPE_CHECKING:
    from verl_kernel.env.executor.lowering.body import Body

_STRONG = ("relaxed", "acquire", "release", "acq_rel", "volatile")
_FENCES = ("membar", "fence")


class Order:
    """What a kernel's atomics, strong loads and stores, and fences may do."""

    def __init__(self, graph: Graph) -> None:
        items = graph.program.instructions
        self._read: dict[str, list[Instruction]] = {}
        for item, names in zip(items, graph.reads, strict=True):
            for name in names:
                self._read.setdefault(name, []).append(item)
        self._writes = dict(zip(map(id, items), graph.writes, strict=True))
        self._has_fences = any(_is_fence(item) for item in items)
        self.learns = any(self._learns(item) for item in items)
        """Whether a block may find out what another one has done: if not, none is ever after another."""

    def _learns(self, item: Instruction) -> bool:
        return bool(self._reading(item) & context.ACQUIRES) or (self._has_fences and bool(self._reading(item)))

    def _reading(self, item: Instruction) -> int:
        """Marks of what it finds out; nothing if its result is thrown away."""
        if not is_strong(item) or item.root not in ("atom", "ld"):
            return 0
        if not any(other is not item for name in self._writes[id(item)] for other in self._read.get(name, ())):
            return 0
        acquires = {"acquire", "acq_rel"} & set(item.modifiers)
        return context.READS | (context.ACQUIRES if acquires else 0)

    def marks(self, item: Instruction) -> tuple[int, int]:
        """Marks of what it finds out, and of what it tells; 0 for nothing, or if no block learns."""
        if not self.learns or not is_strong(item):
            return 0, 0
        reading = self._reading(item)
        if not self._has_fences and not reading & context.ACQUIRES:
            reading = 0
        if item.root == "ld":
            return reading, 0
        writing = context.WRITES | (context.REPLACES if item.root == "st" else 0)
        return reading, writing | (context.RELEASES if {"release", "acq_rel"} & set(item.modifiers) else 0)


def is_strong(item: Instruction) -> bool:
    """Whether it is an atomic, or a load or store of global memory that may meet those of other blocks (not weak)."""
    if "global" not in item.modifiers or "cta" in item.modifiers:
        return False
    return item.root in ("atom", "red") or (item.root in ("ld", "st") and bool(set(_STRONG) & set(item.modifiers)))


def is_of_block(item: Instruction) -> bool:
    """Whether it is an atomic on global memory that is none for other blocks."""
    return item.root in ("atom", "red") and {"global", "cta"} <= {*item.modifiers}


def _is_fence(item: Instruction) -> bool:
    return item.root in _FENCES and "cta" not in item.modifiers and "proxy" not in item.modifiers


def tell(body: Body, marks: int, address: str, lanes: str) -> None:
    """Call what keeps account of it, where races are watched."""
    if marks:
        site = body.site("order", 0)
        body.do(
            body.call("void", ("order", marks), f"{WIDE.ints(64)} {address}", f"i32 {lanes}", "ptr %ctx", f"ptr {site}")
        )


def tell_fence(body: Body) -> None:
    """As `tell`, of a fence."""
    if body.order.learns and _is_fence(body.item):
        tell(body, context.FENCES, "zeroinitializer", body.condition_bits())
