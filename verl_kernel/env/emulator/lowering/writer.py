# SPDX-License-Identifier: Apache-2.0
"""Writes LLVM IR as text; values are one per warp or one per lane."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Key: TypeAlias = "tuple[str | int | bool, ...]"
"""Names a function of the library: what it does and for which types."""
LANES = 32
"""Lanes of a warp."""
FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
"""LLVM's names of PTX's types of floats."""
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
"""How names of intrinsics spell them."""


@dataclass(frozen=True)
class ValueForm:
    """How many values an LLVM value holds: a vector of `lanes` values, or one value if `lanes` is 0."""

    lanes: int

    def type(self, element: str) -> str:
        """Return LLVM's type for values of an element type."""
        return f"<{self.lanes} x {element}>" if self.lanes else element

    def ints(self, bits: int) -> str:
        """Return the type of integers."""
        return self.type(f"i{bits}")

    def const(self, bits: int, value: int) -> str:
        """Return a constant with the same integer in each lane."""
        # LLVM takes integers as signed, and one bit as a truth value.
        return self._each(f"i{bits}", str(_signed(value, bits)) if bits > 1 else ("true" if value & 1 else "false"))

    def real(self, element: str, value: float) -> str:
        """Return a constant with the same float in each lane."""
        return self._each(element, real(element, value))

    def _each(self, element: str, text: str) -> str:
        return f"splat ({element} {text})" if self.lanes else text


SCALAR, WIDE = ValueForm(0), ValueForm(LANES)
"""One value for the warp, and one for each lane."""


def real(element: str, value: float) -> str:
    """Return LLVM's spelling of a float or double constant, rounded to its type."""
    if element == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Writer:
    """Collects the instructions of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.intrinsics: dict[str, str] = {}
        """Declarations of the LLVM intrinsics that were called, by name."""
        self.calls: dict[Key, str] = {}
        """Declarations of the library's functions that were called."""
        self.flushed: set[str] = set()
        """Names of floats that are known not to be subnormal."""
        self._splats: dict[tuple[str, str, int], str] = {}
        self._count = 0

    def op(self, code: str) -> str:
        """Add an instruction; returns the name of its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {code}")
        return name

    def do(self, code: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {code}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        # A value of another block may not be defined on every way to this one.
        self._splats.clear()

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call one of LLVM's functions with typed arguments; the name includes the types that overload it."""
        return self.op(self.called(name, result, arguments))

    def overloaded(self, name: str, kind: str, *arguments: str) -> str:
        """Call one of LLVM's functions whose arguments and result are all of one type."""
        return self.intrinsic(f"{name}.{mangled(kind)}", kind, *((kind, argument) for argument in arguments))

    def called(self, name: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Return such a call, for a function whose result is written otherwise."""
        self.intrinsics[name] = f"declare {result} @llvm.{name}({', '.join(kind for kind, _ in arguments)})"
        return f"call {result} @llvm.{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"

    def call(self, result: str, key: Key, *arguments: str) -> str:
        """Return a call of a function of the library; each argument begins with its type."""
        types = ", ".join(
            # The type stands before the value, which contains blanks only if it is a splat.
            argument.rpartition(" ")[0] if not argument.endswith(")") else argument.partition(" splat")[0]
            for argument in arguments
        )
        self.calls[key] = f"declare {result} @{symbol(key)}({types})"
        return f"call {result} @{symbol(key)}({', '.join(arguments)})"

    def splat(self, element: str, value: str, lanes: int = LANES) -> str:
        """Return a vector that holds a scalar in each lane."""
        kind = f"<{lanes} x {element}>"
        # Literals are spread by LLVM.
        if not value.startswith("%"):
            return f"splat ({element} {value})"
        if (element, value, lanes) not in self._splats:
            first = self.op(f"insertelement {kind} poison, {element} {value}, i32 0")
            spread = self.op(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
            self._splats[element, value, lanes] = spread
        return self._splats[element, value, lanes]

    def shuffle(
        self, element: str, source: str, indices: Iterable[int], lanes: int = LANES, second: str = "poison"
    ) -> str:
        """Select elements of one or two vectors by constant indices."""
        kind, picked = f"<{lanes} x {element}>", list(indices)
        mask = ", ".join(f"i32 {index}" for index in picked)
        return self.op(f"shufflevector {kind} {source}, {kind} {second}, <{len(picked)} x i32> <{mask}>")

    def resized(self, value: str, bits: int, width: int, form: ValueForm) -> str:
        """Truncate an integer, or extend it with zeros."""
        if bits == width:
            return value
        how = "zext" if width > bits else "trunc"
        return self.op(f"{how} {form.ints(bits)} {value} to {form.ints(width)}")

    def bits(self, mask: str, lanes: int = LANES) -> str:
        """Convert a vector of truth values to an integer; lane 0 is the lowest bit."""
        return self.op(f"bitcast <{lanes} x i1> {mask} to i{lanes}")

    def add_to(self, pointer: str, amount: str) -> None:
        """Add to a 64-bit counter in memory."""
        old = self.op(f"load i64, ptr {pointer}")
        self.do(f"store i64 {self.op(f'add i64 {old}, {amount}')}, ptr {pointer}")

    def word(self, base: str, number: int) -> str:
        """Return the address of a 64-bit word of a structure."""
        return self.op(f"getelementptr i64, ptr {base}, i64 {number}")


def symbol(key: Key) -> str:
    """Return the name of a library function in LLVM IR; the prefix avoids names of the C library."""
    return "vk_" + "_".join(map(str, key))


def mangled(kind: str) -> str:
    """Return a type as it is written in names of intrinsics: `v32f32` for `<32 x float>`."""
    if kind.startswith("<"):
        lanes, _, element = kind.strip("<>").partition(" x ")
        return f"v{lanes}{_SUFFIX.get(element, element)}"
    return _SUFFIX.get(kind, kind)


def lane_list(value_of: Callable[[int], int], bits: int = 32, lanes: int = LANES) -> str:
    """Return a constant vector with the value of a function for each lane."""
    return "<" + ", ".join(f"i{bits} {value_of(lane)}" for lane in range(lanes)) + ">"


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
