# SPDX-License-Identifier: Apache-2.0
"""Data types for a kernel's PTX."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from verl_kernel.env.emulator.errors import NotKnown

# Packed types count whole: `f16x2` is one register of 32 bits.
BITS = {
    "pred": 1,
    **dict.fromkeys("b8 u8 s8 e4m3 e5m2".split(), 8),
    **dict.fromkeys("b16 u16 s16 f16 bf16 e4m3x2 e5m2x2".split(), 16),
    **dict.fromkeys("b32 u32 s32 f32 tf32 f16x2 bf16x2 s16x2 u16x2".split(), 32),
    **dict.fromkeys("b64 u64 s64 f64".split(), 64),
    "b128": 128,
}
"""Width of each type, in bits."""
STORES = ("st", "stmatrix")
"""Opcodes that store the registers of their second operand at the address in the first."""


@dataclass(frozen=True)
class Register:
    """A register, by its name; names are unique in a kernel, also those declared in different scopes."""

    name: str


@dataclass(frozen=True)
class Special:
    """A register that the hardware sets, such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal as it is written, such as `-1`, `0x10`, `0f3F800000` or `true`."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, or a label."""

    name: str


@dataclass(frozen=True)
class Address:
    """An address, `[base + offset]`."""

    base: Register | Immediate | Symbol
    offset: int


@dataclass(frozen=True)
class OperandGroup:
    """A group of operands, `{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """Two results, `value|predicate`."""

    first: Register
    second: Register


@dataclass(frozen=True)
class Not:
    """A negated predicate, `!predicate`."""

    register: Register


@dataclass(frozen=True)
class Unused:
    """An unused result, `_`."""


Operand: TypeAlias = "Register | Special | Immediate | Symbol | Address | OperandGroup | Pair | Not | Unused"


@dataclass(frozen=True)
class SourceLine:
    """A line of the source, with the number of its file."""

    file: int
    line: int
    text: str = field(default="", compare=False)
    """The directive as written: with the column and, for an inlined function, the line of its call."""


@dataclass(eq=False)
class Instruction:
    """An instruction of a kernel."""

    opcode: str
    """The opcode with all modifiers."""
    operands: tuple[Operand, ...]
    guard: Register | None
    """The predicate before the opcode."""
    is_negated: bool
    """Whether it is executed where the guard is false."""
    source_line: SourceLine | None
    text: str
    """The instruction as it is written, for messages."""

    @cached_property
    def root(self) -> str:
        """Return the opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        """Return the modifiers in order."""
        return tuple(self.opcode.split(".")[1:])

    def unknown(self, why: str = "") -> NotKnown:
        """Return an exception that quotes the instruction."""
        return NotKnown(f"the emulator does not know `{self.text}`" + (f": {why}" if why else ""))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, with its offset in the block of parameters."""

    name: str
    type: str
    offset: int
    bytes: int


@dataclass(eq=False)
class PtxProgram:
    """A kernel, or a function before it is inlined."""

    name: str
    parameters: list[Parameter]
    registers: dict[str, str]
    """Type of each register."""
    instructions: list[Instruction]
    labels: dict[str, int]
    """Number of the instruction that follows each label."""
    shared: dict[str, int]
    """Offset of each variable in shared memory; memory that the launch adds begins at `shared_bytes`."""
    shared_bytes: int
    local: dict[str, int]
    """Offset of each variable in a lane's local memory."""
    local_bytes: int
    constants: dict[str, bytes]
    """Constant tables that the kernel reads."""
    files: dict[int, str] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    """Names of a function's results."""

    @property
    def parameter_bytes(self) -> int:
        """Return the length of the block of parameters."""
        return max((item.offset + item.bytes for item in self.parameters), default=0)
