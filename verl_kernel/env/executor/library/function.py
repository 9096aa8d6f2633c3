# SPDX-License-Identifier: Apache-2.0
"""A function of the library while it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key, Writer, lane_list, symbol

MASK = f"<{LANES} x i1>"
POINTERS = f"<{LANES} x ptr>"


class Function(Writer):
    """Instructions of one function."""

    def text(self, result: str, key: Key, arguments: Sequence[str]) -> str:
        """The whole function."""
        head = f"define {result} @{symbol(key)}({', '.join(arguments)}) nounwind {{\nentry:"
        declared = [*self.calls.values(), *self.intrinsics.values()]
        return "\n".join([head, *self.lines, "}", *sorted(declared), ""])

    def context(self, word: int, kind: str = "ptr") -> str:
        """A word of the launch's context."""
        return self.op(f"load {kind}, ptr {self.word('%ctx', word)}")

    def site(self, word: int, kind: str = "i64") -> str:
        """A word of the site."""
        return self.op(f"load {kind}, ptr {self.word('%site', word)}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """Go to one of two blocks."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def mask(self, bits: str) -> str:
        """A truth value a lane, from an integer."""
        return self.op(f"bitcast i32 {bits} to {MASK}")

    def fault(self, kind: int, lanes: str, address: str) -> None:
        """Note a fault of some lanes, if there is none yet."""
        arguments = (f"i32 {kind}", f"i32 {lanes}", f"{WIDE.ints(64)} {address}", "ptr %ctx", "ptr %site")
        self.do(self.call("void", ("fault",), *arguments))

    def each_lane(self, bits: str, begin: str, body: Callable[[str], None]) -> None:
        """Run code for every lane of a mask, in order; it begins in the block named and goes on after `lanes_done`."""
        self.do("br label %lane")
        self.label("lane")
        lane = self.op(f"phi i32 [ 0, %{begin} ], [ %next_lane, %lane_end ]")
        chosen = self.op(f"trunc i32 {self.op(f'lshr i32 {bits}, {lane}')} to i1")
        self.branch(chosen, "lane_body", "lane_end")
        self.label("lane_body")
        body(lane)
        self.do("br label %lane_end")
        self.label("lane_end")
        self.do(f"%next_lane = add i32 {lane}, 1")
        self.branch(self.op(f"icmp ult i32 %next_lane, {LANES}"), "lane", "lanes_done")
        self.label("lanes_done")


def stride(size: int, bits: int) -> str:
    """Offsets of lanes that access one after the other, so many bytes each."""
    return lane_list(lambda lane: lane * size, bits)


def filled(text: str, values: Mapping[str, int]) -> str:
    """A text with numbers where it has `@NAME@`."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
