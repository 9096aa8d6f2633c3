# SPDX-License-Identifier: Apache-2.0
"""A kernel's PTX as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from verl_kernel.env.executor.errors import NotKnown

BITS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32,
    "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64,
    "b128": 128, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16,
}  # fmt: skip
"""Width of each type, in bits."""


@dataclass(frozen=True)
class Register:
    """A register, by its name; names are unique in a kernel, whatever scope declared them."""

    name: str


@dataclass(frozen=True)
class Special:
    """A register that the machine sets, as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A literal as it is written, as `-1`, `0x10`, `0f3F800000` or `true`."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, or a label."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`."""

    base: Register | Constant | Symbol
    offset: int


@dataclass(frozen=True)
class Group:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`value|predicate`."""

    first: Register
    second: Register


@dataclass(frozen=True)
class Not:
    """`!predicate`."""

    register: Register


@dataclass(frozen=True)
class Unused:
    """`_`, a result that nobody wants."""


Operand: TypeAlias = "Register | Special | Constant | Symbol | Address | Group | Pair | Not | Unused"


@dataclass(frozen=True)
class Place:
    """A line of the source, by the number of its file."""

    file: int
    line: int
    text: str = field(default="", compare=False)
    """As it is written: with the column, and where the function was called that it is in."""


@dataclass(eq=False)
class Instruction:
    """One instruction."""

    opcode: str
    """With all modifiers."""
    operands: tuple[Operand, ...]
    guard: Register | None
    """The predicate before it."""
    is_negated: bool
    """Whether it runs where the guard is false."""
    place: Place | None
    text: str
    """As it is written, for messages."""

    @cached_property
    def root(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the root, in order."""
        return tuple(self.opcode.split(".")[1:])

    def unknown(self, why: str = "") -> NotKnown:
        """An exception that quotes the instruction."""
        return NotKnown(f"the executor does not know `{self.text}`" + (f": {why}" if why else ""))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, with its place in the block of parameters."""

    name: str
    type: str
    offset: int
    bytes: int


@dataclass(eq=False)
class Program:
    """One kernel."""

    name: str
    parameters: list[Parameter]
    registers: dict[str, str]
    """Type of each register."""
    instructions: list[Instruction]
    labels: dict[str, int]
    """Number of the instruction that follows each label."""
    shared: dict[str, int]
    """Offset of each variable in shared memory; what the launch adds begins at `shared_bytes`."""
    shared_bytes: int
    local: dict[str, int]
    """Offset of each variable in a lane's local memory."""
    local_bytes: int
    constants: dict[str, bytes]
    """Tables that the kernel reads."""
    files: dict[int, str] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    """Names of what a function gives back."""

    @property
    def parameter_bytes(self) -> int:
        """Length of the block of parameters."""
        return max((item.offset + item.bytes for item in self.parameters), default=0)
