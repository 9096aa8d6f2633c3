# SPDX-License-Identifier: Apache-2.0
"""Lowers moves, parameters and exchanges between lanes."""

from __future__ import annotations

from verl_kernel.env.emulator.library.exchanges import RESULT
from verl_kernel.env.emulator.lowering.body import Body, record_fence
from verl_kernel.env.emulator.lowering.integers import is_signed
from verl_kernel.env.emulator.lowering.opcodes import Modifiers, opcode
from verl_kernel.env.emulator.lowering.writer import LANES, SCALAR, WIDE, ValueForm
from verl_kernel.env.emulator.ptx.program import BITS, Address, OperandGroup, Pair, Register, Unused


@opcode("mov")
def move(body: Body, modifiers: Modifiers) -> None:
    """Lower a copy; a group of registers is joined or split, its first register being the lowest bits."""
    bits, form = BITS[modifiers.type()], body.form()
    target, source = body.item.operands
    if isinstance(target, OperandGroup):
        _take_apart(body, target, body.read(source, bits, form), bits, form)
    elif isinstance(source, OperandGroup):
        body.write(target, _joined(body, source, bits, form), bits, form)
    else:
        body.write(target, body.read(source, bits, form), bits, form)


def _take_apart(body: Body, target: OperandGroup, value: str, bits: int, form: ValueForm) -> None:
    part = bits // len(target.items)
    for index, item in enumerate(target.items):
        if isinstance(item, Unused):
            continue
        shifted = value
        if index:
            shifted = body.op(f"lshr {form.ints(bits)} {value}, {form.const(bits, index * part)}")
        body.write(item, body.resized(shifted, bits, part, form), part, form)


def _joined(body: Body, source: OperandGroup, bits: int, form: ValueForm) -> str:
    part = bits // len(source.items)
    # The first register holds the lowest bits.
    value = body.resized(body.read(source.items[0], part, form), part, bits, form)
    for index, item in enumerate(source.items[1:], 1):
        piece = body.resized(body.read(item, part, form), part, bits, form)
        piece = body.op(f"shl {form.ints(bits)} {piece}, {form.const(bits, index * part)}")
        value = body.op(f"or {form.ints(bits)} {value}, {piece}")
    return value


@opcode("cvta")
def convert_address(body: Body, modifiers: Modifiers) -> None:
    """Convert an address between its space and generic; only generic addresses of global memory can then be used."""
    modifiers.take("to")
    # Shared memory has addresses of 32 bits here: generic ones of it have no meaning.
    modifiers.need("global", "local", "const")
    modifiers.need("u64")
    form = body.form()
    body.write(body.item.operands[0], body.read(body.item.operands[1], 64, form), 64, form)


def load_parameter(body: Body, kind: str) -> None:
    """Lower `ld.param`, which reads the block of parameters that all lanes share."""
    target, source = body.item.operands
    targets = target.items if isinstance(target, OperandGroup) else (target,)
    if not isinstance(source, Address) or body.item.guard:
        raise body.item.unknown("parameters are read at an address, always")
    if isinstance(source.base, Register) and source.base.name not in body.lanes.uniform:
        raise body.item.unknown("lanes read several parameters")
    begin = body.op(f"add i64 {body.read(source.base, 64, SCALAR)}, {source.offset}")
    last = body.program.parameter_bytes - BITS[kind] // 8 * len(targets)
    begin = body.overloaded("umin", "i64", begin, str(max(0, last)))  # no kernel of the compiler reads beyond
    for index, item in enumerate(targets):
        offset = body.op(f"add i64 {begin}, {index * BITS[kind] // 8}")
        pointer = body.op(f"getelementptr i8, ptr %params, i64 {offset}")
        value, bits = body.op(f"load i{BITS[kind]}, ptr {pointer}, align 1"), BITS[kind]
        width = max(bits, body.width(item.name)) if isinstance(item, Register) else bits
        if kind.startswith("s") and width > bits:  # PTX ISA, "Operand Size Exceeding Instruction-Type Size"
            value, bits = body.op(f"sext i{bits} {value} to i{width}"), width
        body.write(item, value, bits, SCALAR)


@opcode("shfl")
def shuffle(body: Body, modifiers: Modifiers) -> None:
    """Lower `shfl.sync` (PTX ISA): constant sources become a vector shuffle, others a call of the library."""
    modifiers.need("sync")
    mode = modifiers.need("up", "down", "bfly", "idx")
    modifiers.need("b32")
    converged(body, 4)
    target, source, amount, clamp = body.item.operands[:4]
    value = body.read(source, 32, WIDE)
    results = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    constants = (body.constant(amount), body.constant(clamp))
    if constants[0] is not None and constants[1] is not None:
        sources = [
            _source_lane(lane, mode, body.literal(constants[0].text, 32), body.literal(constants[1].text, 32))
            for lane in range(LANES)
        ]
        shuffled = body.shuffle(
            "i32", value, [lane if origin is None else origin for lane, origin in enumerate(sources)]
        )
        holds = "<" + ", ".join(f"i1 {'false' if origin is None else 'true'}" for origin in sources) + ">"
    else:
        words = WIDE.ints(32)
        arguments = [f"{words} {item}" for item in (value, body.read(amount, 32, WIDE), body.read(clamp, 32, WIDE))]
        exchanged = body.op(body.call(RESULT, ("exchange", mode), *arguments))
        shuffled = body.op(f"extractvalue {RESULT} {exchanged}, 0")
        holds = body.op(f"bitcast i32 {body.op(f'extractvalue {RESULT} {exchanged}, 1')} to {WIDE.ints(1)}")
    if results[1] is not None:
        body.write(results[1], holds, 1, WIDE)
    body.write(results[0], shuffled, 32, WIDE)


def _source_lane(lane: int, mode: str, amount: int, clamp: int) -> int | None:
    """Return the lane whose value a lane gets; None if the lane keeps its own value."""
    # PTX ISA, "shfl": the operand holds a segment mask in bits 8 to 12 and a clamp in bits 0 to 4.
    segment, limit, amount = clamp >> 8 & 31, clamp & 31, amount & 31
    highest, lowest = lane & segment | limit & ~segment, lane & segment
    origin = {
        "bfly": lane ^ amount,
        "up": lane - amount,
        "down": lane + amount,
        "idx": lowest | amount & ~segment & 31,
    }[mode]
    return origin if (origin >= highest if mode == "up" else origin <= highest) else None


def converged(body: Body, mask: int | None = None) -> None:
    """Record a fault if running lanes are inactive: the instruction exchanges values between all lanes.

    Raises:
        NotKnown: the instruction has a guard, or its operand `mask` does not name all lanes.
    """
    if body.item.guard:
        raise body.item.unknown("a guard before what all lanes do together")
    if mask is not None:
        lanes = body.constant(body.item.operands[mask])
        # Lanes that a mask leaves out would have to be kept apart.
        if lanes is None or body.literal(lanes.text, 32) & 0xFFFFFFFF != 0xFFFFFFFF:
            raise body.item.unknown("its mask must name all lanes")
    if body.lanes.may_diverge:
        arguments = [f"i32 {body.active_bits()}", f"i32 {alive(body)}", "ptr %ctx", f"ptr {body.site('warp', 0)}"]
        body.do(body.call("void", ("converged",), *arguments))


def alive(body: Body) -> str:
    """Return the lanes that have not ended, as an integer."""
    return body.op("load i32, ptr %alive") if body.lanes.may_diverge else "-1"


@opcode("vote")
def vote(body: Body, modifiers: Modifiers) -> None:
    """Lower a vote of the lanes."""
    modifiers.need("sync")
    mode = modifiers.need("ballot", "any", "all", "uni")
    modifiers.need("b32" if mode == "ballot" else "pred")
    converged(body, 2)
    # Lanes that have ended do not vote.
    present = body.active_bits()
    ballot = body.bits(body.read(body.item.operands[1], 1, WIDE))
    ballot = body.op(f"and i32 {ballot}, {present}")
    if mode == "ballot":
        body.write(body.item.operands[0], body.splat("i32", ballot), 32, WIDE)
        return
    any_true = body.op(f"icmp ne i32 {ballot}, 0")
    all_true = body.op(f"icmp eq i32 {ballot}, {present}")
    holds = any_true if mode == "any" else all_true
    if mode == "uni":
        holds = body.op(f"or i1 {all_true}, {body.op(f'xor i1 {any_true}, true')}")
    body.write(body.item.operands[0], body.splat("i1", holds), 1, WIDE)


@opcode("redux")
def reduce(body: Body, modifiers: Modifiers) -> None:
    """Lower a reduction over all lanes."""
    modifiers.need("sync")
    mode, kind = modifiers.need("add", "min", "max", "and", "or", "xor"), modifiers.need("s32", "u32", "b32")
    converged(body, 2)
    name = ("s" if is_signed(kind) else "u") + mode if mode in ("min", "max") else mode
    value = body.read(body.item.operands[1], 32, WIDE)
    if body.lanes.may_diverge:  # ended lanes contribute the neutral element
        none = {"and": -1, "umin": -1, "smin": (1 << 31) - 1, "smax": 1 << 31}.get(name, 0)
        words = WIDE.ints(32)
        value = body.op(f"select {WIDE.ints(1)} {body.active()}, {words} {value}, {words} {WIDE.const(32, none)}")
    total = body.intrinsic(f"vector.reduce.{name}.v{LANES}i32", "i32", (WIDE.ints(32), value))
    body.write(body.item.operands[0], body.splat("i32", total), 32, WIDE)


@opcode("bar", "barrier")
def synchronize_warp(body: Body, modifiers: Modifiers) -> None:
    """Lower `bar.warp.sync`; barriers of the block end a block of instructions (`control`)."""
    modifiers.need("warp")
    modifiers.need("sync")
    converged(body, 0)


@opcode("activemask")
def active_mask(body: Body, modifiers: Modifiers) -> None:
    """Return the active lanes."""
    modifiers.need("b32")
    body.write(body.item.operands[0], body.splat("i32", body.active_bits()), 32, WIDE)


@opcode("createpolicy")
def cache_policy(body: Body, modifiers: Modifiers) -> None:
    """Lower a cache hint, which changes no value."""
    modifiers.need("fractional")
    while modifiers.take_prefix("L2::"):
        pass
    modifiers.need("b64")
    body.write(body.item.operands[0], SCALAR.const(64, 0), 64, SCALAR)


_HINTS = {
    "membar": "cta gl sys level proxy alias",
    "fence": "sc acq_rel acquire release cta cluster gpu sys proxy alias async global shared",
    "prefetch": "global local const param tensormap L1 L2 L2::evict_last L2::evict_normal",
    "discard": "global L2",
    "griddepcontrol": "launch_dependents wait",
    "nanosleep": "u32",
    "applypriority": "global L2::evict_normal",
}
"""Opcodes that change no value, with the modifiers that they may have."""


@opcode(*_HINTS)
def hint(body: Body, modifiers: Modifiers) -> None:
    """Lower fences, which need no code as memory is never out of order here, and hints for caches."""
    for name in _HINTS[body.item.root].split():
        modifiers.take(name)
    record_fence(body)
