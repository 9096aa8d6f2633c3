# SPDX-License-Identifier: Apache-2.0
"""Reads and writes PTX's registers in the function that is being generated."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from verl_kernel.env.emulator.flow.graph import CARRY, Graph, constants, holds_no_subnormal, normal
from verl_kernel.env.emulator.flow.repeats import Lanes
from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.lowering.sites import Sites
from verl_kernel.env.emulator.lowering.writer import FLOATS, LANES, SCALAR, WIDE, ValueForm, Writer
from verl_kernel.env.emulator.ptx.program import (
    BITS,
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    OperandGroup,
    Pair,
    PtxProgram,
    Register,
    Special,
    Symbol,
    Unused,
)


def bits_of(text: str, bits: int) -> int:
    """Return the bits of a literal in a register of `bits` bits."""
    if text in ("true", "false"):
        return int(text == "true")
    kind, digits = text[:2].lower(), text.rstrip("U")
    if kind == "0f":
        value = int(text[2:], 16)
        return _float_bits(struct.unpack("<f", struct.pack("<I", value))[0], 64) if bits == 64 else value
    if kind == "0d":
        return _float_bits(struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0], bits)
    if kind != "0x" and set(text) & set(".eE"):
        return _float_bits(float(text), bits)
    # PTX ISA, "Integer Constants": a leading 0 begins an octal number, as in C.
    is_octal = text.startswith("0") and kind != "0x"
    return int(digits, 8 if is_octal else 0)


def _float_bits(value: float, bits: int) -> int:
    """Return the bits of a floating-point literal, which is a float64 that is rounded where it is used."""
    # Python's floats are float64: struct rounds once.
    kind, whole = ("<d", "<Q") if bits == 64 else ("<f", "<I")
    return int(struct.unpack(whole, struct.pack(kind, value))[0])


# The frame outlives the call of the function: what a warp needs to resume lies here.
ALIVE, LANE_RANKS, FIRST = 0, 64, 192
"""Offsets: lanes that have not ended, the block that each lane waits for, the first register."""


class Frame:
    """Offsets of registers in a warp's frame."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self._used = FIRST
        self._lent: dict[str, tuple[int, int]] = {}
        self._free: dict[tuple[int, int], list[int]] = {}

    def add(self, registers: Iterable[tuple[str, int, bool]]) -> None:
        """Give registers permanent offsets; each is given as name, bits, and whether all lanes share it."""
        for name, bits, is_uniform in registers:
            if name not in self.offsets:
                self.offsets[name] = self._allocate(*_shape(bits, is_uniform))

    def lend(self, registers: Iterable[tuple[str, int, bool]]) -> None:
        """Give offsets until `take_back` to registers that have none."""
        for name, bits, is_uniform in registers:
            if name not in self.offsets:
                shape = self._lent[name] = _shape(bits, is_uniform)
                free = self._free.get(shape)
                self.offsets[name] = free.pop() if free else self._allocate(*shape)

    def take_back(self, still: frozenset[str] = frozenset()) -> None:
        """Free the offsets that were lent to registers which are no longer read."""
        self.free(sorted(self._lent.keys() - still))

    def free(self, names: Iterable[str]) -> None:
        """Free the lent offsets of some registers."""
        for name in [name for name in names if name in self._lent]:
            self._free.setdefault(self._lent.pop(name), []).append(self.offsets.pop(name))

    def _allocate(self, size: int, step: int) -> int:
        start = -(-self._used // step) * step
        self._used = start + size
        return start

    @property
    def bytes(self) -> int:
        """Return the frame's length, a multiple of 64."""
        return -(-self._used // 64) * 64


def _shape(bits: int, is_uniform: bool) -> tuple[int, int]:
    """Return the bytes that a register takes in the frame, and its alignment."""
    size = max(8, bits) // 8
    # A vector is aligned to 64 bytes, the host's widest load; a scalar takes a word.
    return (8, 8) if is_uniform and size <= 8 else (size, 16) if is_uniform else (size * 32, 64)


# Instructions that may order accesses of several blocks (PTX ISA, "Memory Consistency Model").


_STRONG = ("relaxed", "acquire", "release", "acq_rel", "volatile")
"""Modifiers of strong loads and stores."""
_FENCES = ("membar", "fence")
"""Opcodes of fences."""


class MemoryOrder:
    """How a kernel's atomics, strong loads and stores, and fences order accesses of several blocks."""

    def __init__(self, graph: Graph) -> None:
        items = graph.program.instructions
        self._read: dict[str, list[Instruction]] = {}
        for item, names in zip(items, graph.reads, strict=True):
            for name in names:
                self._read.setdefault(name, []).append(item)
        self._writes = dict(zip(map(id, items), graph.writes, strict=True))
        # PTX ISA, "Memory Consistency Model": a relaxed access orders others only together with a fence.
        self._has_fences = any(_is_fence(item) for item in items)
        self.has_cross_block_sync = any(self._synchronizes(item) for item in items)
        """Whether blocks may synchronise, as one sees what another has done; if not, nothing orders blocks."""

    def _synchronizes(self, item: Instruction) -> bool:
        return bool(self._reading(item) & context.ACQUIRES) or (self._has_fences and bool(self._reading(item)))

    def _reading(self, item: Instruction) -> int:
        """Return the marks of what an instruction reads of other blocks; 0 if its result is not used."""
        if not is_strong(item) or item.root not in ("atom", "ld"):
            return 0
        # A result that no instruction reads cannot order anything.
        if not any(reader is not item for name in self._writes[id(item)] for reader in self._read.get(name, ())):
            return 0
        acquires = {"acquire", "acq_rel"} & set(item.modifiers)
        return context.READS | (context.ACQUIRES if acquires else 0)

    def marks(self, item: Instruction) -> tuple[int, int]:
        """Return the marks of what an instruction reads and publishes; both are 0 if blocks do not synchronise."""
        if not self.has_cross_block_sync or not is_strong(item):
            return 0, 0
        reading = self._reading(item)
        # A relaxed read acquires only by a later fence, and there is none.
        if not self._has_fences and not reading & context.ACQUIRES:
            reading = 0
        if item.root == "ld":
            return reading, 0
        writing = context.WRITES | (context.REPLACES if item.root == "st" else 0)
        return reading, writing | (context.RELEASES if {"release", "acq_rel"} & set(item.modifiers) else 0)


def is_strong(item: Instruction) -> bool:
    """Whether it is an atomic, or a strong load or store of global memory, with a scope beyond the block."""
    # Shared memory, and scope cta, order nothing between blocks.
    if "global" not in item.modifiers or "cta" in item.modifiers:
        return False
    return item.root in ("atom", "red") or (item.root in ("ld", "st") and bool(set(_STRONG) & set(item.modifiers)))


def is_block_atomic(item: Instruction) -> bool:
    """Whether it is an atomic on global memory that is atomic for its block only."""
    return item.root in ("atom", "red") and {"global", "cta"} <= {*item.modifiers}


def _is_fence(item: Instruction) -> bool:
    return item.root in _FENCES and "cta" not in item.modifiers and "proxy" not in item.modifiers


def record_event(body: Body, marks: int, address: str, lanes: str) -> None:
    """Call the library's function that records an event, if races are watched."""
    if marks:
        site = body.site("order", 0)
        body.do(
            body.call("void", ("order", marks), f"{WIDE.ints(64)} {address}", f"i32 {lanes}", "ptr %ctx", f"ptr {site}")
        )


def record_fence(body: Body) -> None:
    """Record a fence as an event, if races are watched."""
    if body.order.has_cross_block_sync and _is_fence(body.item):
        record_event(body, context.FENCES, "zeroinitializer", body.condition_bits())


SPECIALS = {
    **{f"%{name}.{axis}": f"%{name}_{axis}" for name in ("ctaid", "nctaid") for axis in "xyz"},
    "%warpid": "%warpid",
    **dict.fromkeys(("%tid.y", "%tid.z"), "0"),
    **dict.fromkeys(("%ntid.y", "%ntid.z"), "1"),
}
"""The value of each special register in the function; those that depend on the lane are `%tid_x` and `%laneid`."""


class Body(Writer):
    """The function of one kernel while it is generated.

    Args:
        program, graph, lanes: the kernel and its analysis.
        warps: warps of a block.
        crossing: registers that outlive a block.
        frame: the frame for registers that outlive a piece of code.
    """

    def __init__(self, graph: Graph, lanes: Lanes, warps: int, crossing: frozenset[str], frame: Frame) -> None:
        super().__init__()
        self.graph, self.lanes, self.warps = graph, lanes, warps
        self.program: PtxProgram = graph.program
        self.sites, self.order = Sites(), MemoryOrder(graph)
        self.item: Instruction
        self.frame, self.crossing = frame, crossing
        self.normal, self._constants = normal(graph), constants(graph)
        self._values: dict[str, str] = {}
        # Read once in a piece of code: within it the active lanes stay the same.
        self._active: str | None = None
        self._floats: dict[tuple[str, str], str] = {}
        self._saved: frozenset[str] = frozenset()
        self.pointers: Mapping[str, str] = {}  # of registers that a loop keeps elsewhere in each round
        self.masked = crossing  # where lanes may diverge, inactive lanes keep these registers unchanged

    def begin(self, label: str) -> None:
        """Begin a piece of code: registers must be loaded from memory again."""
        self.label(label)
        self._values.clear()
        self._active = None

    def enter(self, index: int, saved: frozenset[str]) -> None:
        """Make an instruction the current one; those of its results that are in `saved` are written to memory."""
        self.item, self._saved = self.program.instructions[index], saved

    def forget(self) -> None:
        """Forget the values of registers, so that they are loaded from memory again."""
        self._values.clear()

    # the form in which an instruction is computed: one value for the warp if its result is uniform
    def form(self) -> ValueForm:
        """Return `SCALAR` if all that the instruction writes is uniform, else `WIDE`."""
        names = [name for operand in self.item.operands[:1] for name in _names(operand)]
        return SCALAR if names and all(name in self.lanes.uniform for name in names) else WIDE

    def pointer(self, name: str) -> str:
        """Return a pointer to the memory of a register."""
        if name in self.pointers:
            return self.pointers[name]
        offset = self.frame.offsets.get(name)
        return variable(name) if offset is None else self.op(f"getelementptr i8, ptr %frame, i64 {offset}")

    def alignment(self, name: str) -> int:
        """Return the alignment of a register's memory."""
        return 8 if name in self.lanes.uniform else 64

    def register_type(self, name: str) -> str:
        """Return LLVM's type of a register."""
        return self.register_form(name).ints(self.width(name))

    def register_form(self, name: str) -> ValueForm:
        """Return the form of a register, which is `SCALAR` if it is uniform."""
        return SCALAR if name in self.lanes.uniform else WIDE

    def width(self, name: str) -> int:
        """Return the bits of a register."""
        return 32 if name == CARRY else BITS[self.program.registers[name]]

    def shapes(self, names: Iterable[str]) -> Iterator[tuple[str, int, bool]]:
        """Return registers with their bits, and whether each is uniform."""
        return ((name, self.width(name), name in self.lanes.uniform) for name in sorted(names))

    def read(self, operand: Operand, bits: int, form: ValueForm) -> str:
        """Read an operand as an integer of `bits` bits."""
        if isinstance(operand, Register):
            return self._register(operand.name, bits, form)
        if isinstance(operand, Not):
            value = self._register(operand.register.name, bits, form)
            return self.op(f"xor {form.ints(bits)} {value}, {form.const(bits, -1)}")
        if isinstance(operand, Special):
            return self._special(operand, bits, form)
        if isinstance(operand, Immediate):
            return form.const(bits, self.literal(operand.text, bits))
        if isinstance(operand, Symbol):
            return self._symbol(operand.name, bits, form)
        raise self.item.unknown("an operand of another kind is expected")

    def read_float(self, operand: Operand, kind: str, form: ValueForm) -> str:
        """Read an operand as a float of one of the kinds of `FLOATS`."""
        value = self.as_float(self.read(operand, BITS[kind], form), kind, form)
        if kind == "f32" and holds_no_subnormal(operand, self.normal):
            self.flushed.add(value)
        return value

    def as_float(self, value: str, kind: str, form: ValueForm) -> str:
        """Convert bits to a float."""
        # What was a float before needs no cast back.
        if (value, kind) in self._floats:
            return self._floats[value, kind]
        return self.op(f"bitcast {form.ints(BITS[kind])} {value} to {form.type(FLOATS[kind])}")

    def as_bits(self, value: str, kind: str, form: ValueForm) -> str:
        """Convert a float to its bits."""
        bits = self.op(f"bitcast {form.type(FLOATS[kind])} {value} to {form.ints(BITS[kind])}")
        self._floats[bits, kind] = value
        return bits

    def write_float(self, operand: Operand, value: str, kind: str, form: ValueForm) -> None:
        """Write a float to a register."""
        self.write(operand, self.as_bits(value, kind, form), BITS[kind], form)

    def write(self, operand: Operand, value: str, bits: int, form: ValueForm) -> None:
        """Write an integer to a register, in the lanes that execute the instruction."""
        if isinstance(operand, Unused):
            return
        if not isinstance(operand, Register):
            raise self.item.unknown("its result is no register")
        self.put(operand.name, value, bits, form)

    def put(self, name: str, value: str, bits: int, form: ValueForm) -> None:
        """Write an integer to a register given by name, in the lanes that execute the instruction."""
        width, own_form = self.width(name), self.register_form(name)
        value = self.resized(value, bits, width, form)
        if own_form is WIDE and form is SCALAR:
            value = self.splat(f"i{width}", value)
        # All lanes hold the same: lane 0 has it even where others are inactive.
        elif own_form is SCALAR and form is WIDE:
            value = self.op(f"extractelement {WIDE.ints(width)} {value}, i32 0")
        self._store(name, value, own_form)

    def _store(self, name: str, value: str, own_form: ValueForm) -> None:
        kind = self.register_type(name)
        if self.item.guard:
            value = self.op(
                f"select {own_form.ints(1)} {self._guard(own_form)}, {kind} {value}, {kind} {self.register_value(name)}"
            )
        # A literal vector gets a name: `Writer.call` takes what follows the last blank for the argument.
        elif value.startswith("<"):
            value = self.op(f"bitcast {kind} {value} to {kind}")
        self._values[name] = value
        if name in self._saved:
            self._save(name, value, own_form)

    def _save(self, name: str, value: str, own_form: ValueForm) -> None:
        """Write a register to memory; inactive lanes keep their values."""
        kind = self.register_type(name)
        # Lanes that wait elsewhere still need what the register held.
        if self.lanes.may_diverge and own_form is WIDE and name in self.masked:
            old = self._loaded(name)
            value = self.op(f"select {own_form.ints(1)} {self.active()}, {kind} {value}, {kind} {old}")
        self.do(f"store {kind} {value}, ptr {self.pointer(name)}, align {self.alignment(name)}")

    def register_value(self, name: str) -> str:
        """Return a register's value in its own form; it is undefined in inactive lanes."""
        if name not in self._values:
            self._values[name] = self._loaded(name)
        return self._values[name]

    def _loaded(self, name: str) -> str:
        return self.op(f"load {self.register_type(name)}, ptr {self.pointer(name)}, align {self.alignment(name)}")

    def _guard(self, form: ValueForm) -> str:
        """Return the guard of the current instruction."""
        assert self.item.guard is not None
        holds = self.read(self.item.guard, 1, form)
        return self.op(f"xor {form.ints(1)} {holds}, {form.const(1, 1)}") if self.item.is_negated else holds

    def condition(self, form: ValueForm) -> str:
        """Return which lanes execute the instruction: active lanes whose guard holds."""
        if self.item.guard is None:
            return self.active() if form is WIDE else "true"
        holds = self._guard(form)
        if form is SCALAR or not self.lanes.may_diverge:
            return holds
        return self.op(f"and {WIDE.ints(1)} {self.active()}, {holds}")

    def active(self) -> str:
        """Return the active lanes, which are those that execute this block."""
        if not self.lanes.may_diverge:
            return WIDE.const(1, 1)
        if self._active is None:
            self._active = self.op(f"bitcast i32 {self.active_bits()} to {WIDE.ints(1)}")
        return self._active

    def active_bits(self) -> str:
        """Return the active lanes as an integer."""
        return self.op("load i32, ptr %active") if self.lanes.may_diverge else "-1"

    def condition_bits(self) -> str:
        """Return the lanes that execute the instruction, as an integer."""
        if self.item.guard is None:
            return self.active_bits()
        return self.bits(self.condition(WIDE))

    def address(self, operand: Operand, bits: int) -> str:
        """Read an address operand, one address per lane."""
        if not isinstance(operand, Address):
            raise self.item.unknown("an address is expected")
        is_shared = isinstance(operand.base, Register) and operand.base.name in self.lanes.uniform
        form = SCALAR if is_shared or not isinstance(operand.base, Register) else WIDE
        value = self.read(operand.base, bits, form)
        if operand.offset:
            value = self.op(f"add {form.ints(bits)} {value}, {form.const(bits, operand.offset)}")
        return value if form is WIDE else self.splat(f"i{bits}", value)

    def site(self, kind: str, size: int) -> str:
        """Add an access to the kernel's sites; returns a pointer to its counters."""
        return self.op(f"getelementptr i64, ptr %sites, i64 {self.sites.add(self.item, kind, size)}")

    def constant(self, operand: Operand) -> Immediate | None:
        """Return the literal that an operand always holds; None if there is none."""
        if isinstance(operand, Register):
            return self._constants.get(operand.name)
        return operand if isinstance(operand, Immediate) else None

    def literal(self, text: str, bits: int) -> int:
        """Return the bits of a literal."""
        return bits_of(text, bits)

    def _symbol(self, name: str, bits: int, form: ValueForm) -> str:
        """Return the address of a variable, table or parameter in its space (raises NotKnown if there is none)."""
        if name in self.program.constants:
            value = self.resized(self.op(f'ptrtoint ptr @"{name}" to i64'), 64, bits, SCALAR)
            return value if form is SCALAR else self.splat(f"i{bits}", value)
        parameters = {item.name: item.offset for item in self.program.parameters}
        for offsets in (self.program.shared, self.program.local, parameters):
            if name in offsets:
                return form.const(bits, offsets[name])
        raise self.item.unknown(f"nothing is named {name}")

    def _register(self, name: str, bits: int, form: ValueForm) -> str:
        own_form, width = self.register_form(name), self.width(name)
        value = self.resized(self.register_value(name), width, bits, own_form)
        if own_form is form:
            return value
        if own_form is SCALAR:
            return self.splat(f"i{bits}", value)
        return self.op(f"extractelement {WIDE.ints(bits)} {value}, i32 0")

    def _special(self, operand: Special, bits: int, form: ValueForm) -> str:
        # Blocks of Triton have one dimension, so x alone numbers the threads.
        if operand.name in ("%tid.x", "%laneid"):
            name = "%tid_x" if operand.name == "%tid.x" else "%laneid"
            value = self.resized(name, 32, bits, WIDE)
            return value if form is WIDE else self.op(f"extractelement {WIDE.ints(bits)} {value}, i32 0")
        if operand.name == "%ntid.x":
            return form.const(bits, LANES * self.warps)
        if operand.name not in SPECIALS:
            raise self.item.unknown(f"{operand.name} depends on the machine")
        name = SPECIALS[operand.name]
        value = self.resized(name, 32, bits, SCALAR) if name.startswith("%") else name
        return value if form is SCALAR else self.splat(f"i{bits}", value)


def variable(name: str) -> str:
    """Return the variable of a register that is not in the frame."""
    return f'%"R.{name}"'


def _names(operand: Operand) -> list[str]:
    """Return the registers of an operand."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Pair):
        return [operand.first.name, operand.second.name]
    if isinstance(operand, OperandGroup):
        return [name for item in operand.items for name in _names(item)]
    return []
