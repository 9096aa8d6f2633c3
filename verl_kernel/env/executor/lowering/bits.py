# SPDX-License-Identifier: Apache-2.0
"""Shifts, fields, bytes and counts of bits (PTX ISA, "Logic and Shift", "Integer Arithmetic", "prmt")."""

from __future__ import annotations

from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.lowering.integers import is_signed
from verl_kernel.env.executor.lowering.modifiers import Modifiers
from verl_kernel.env.executor.lowering.opcodes import opcode
from verl_kernel.env.executor.lowering.writer import Form, mangled
from verl_kernel.env.executor.ptx.program import BITS, Constant


@opcode("shl", "shr")
def shift(body: Body, modifiers: Modifiers) -> None:
    """Shifts; by as many bits as there are or more, nothing but the sign is left."""
    kind, form = modifiers.type(), body.form()
    bits = BITS[kind]
    value, amount = body.read(body.item.operands[1], bits, form), body.read(body.item.operands[2], 32, form)
    is_arithmetic = body.item.root == "shr" and is_signed(kind)
    code = "shl" if body.item.root == "shl" else "ashr" if is_arithmetic else "lshr"
    limit = form.const(32, bits - 1)
    clamped = body.overloaded("umin", form.ints(32), amount, limit)
    shifted = body.op(f"{code} {form.ints(bits)} {value}, {body.resized(clamped, 32, bits, form)}")
    if not is_arithmetic and not isinstance(body.item.operands[2], Constant):
        too_far = body.op(f"icmp ugt {form.ints(32)} {amount}, {limit}")
        shifted = body.op(
            f"select {form.ints(1)} {too_far}, {form.ints(bits)} {form.const(bits, 0)}, {form.ints(bits)} {shifted}"
        )
    elif isinstance(body.item.operands[2], Constant) and body.literal(body.item.operands[2].text, 32) >= bits:
        shifted = shifted if is_arithmetic else form.const(bits, 0)
    body.write(body.item.operands[0], shifted, bits, form)


@opcode("shf")
def funnel_shift(body: Body, modifiers: Modifiers) -> None:
    """A shift of two registers joined; `wrap` takes the amount modulo 32, `clamp` at most 32."""
    way, how, form = modifiers.need("l", "r"), modifiers.need("wrap", "clamp"), body.form()
    modifiers.need("b32")
    low, high, amount = (body.read(item, 32, form) for item in body.item.operands[1:4])
    name = "fshl" if way == "l" else "fshr"
    value = body.overloaded(name, form.ints(32), high, low, amount)
    if how == "clamp":
        far = body.op(f"icmp uge {form.ints(32)} {amount}, {form.const(32, 32)}")
        all_of = low if way == "l" else high
        value = body.op(f"select {form.ints(1)} {far}, {form.ints(32)} {all_of}, {form.ints(32)} {value}")
    body.write(body.item.operands[0], value, 32, form)


@opcode("bfe")
def extract_bits(body: Body, modifiers: Modifiers) -> None:
    """A field of an integer, by constant place and length."""
    kind, form = modifiers.type(), body.form()
    bits = BITS[kind]
    place, length = (_constant(body, number) for number in (2, 3))
    length = min(length, bits - place)
    if place >= bits or length <= 0:
        raise body.item.unknown("its field is empty")
    value = body.read(body.item.operands[1], bits, form)
    value = body.op(f"shl {form.ints(bits)} {value}, {form.const(bits, bits - place - length)}")
    code = "ashr" if is_signed(kind) else "lshr"
    body.write(
        body.item.operands[0],
        body.op(f"{code} {form.ints(bits)} {value}, {form.const(bits, bits - length)}"),
        bits,
        form,
    )


@opcode("bfi")
def insert_bits(body: Body, modifiers: Modifiers) -> None:
    """A field put into another integer, by constant place and length."""
    form, bits = body.form(), BITS[modifiers.type()]
    place, length = (_constant(body, number) for number in (3, 4))
    mask = ((1 << length) - 1 << place) & (1 << bits) - 1
    field, base = (body.read(item, bits, form) for item in body.item.operands[1:3])
    numbers = form.ints(bits)
    field = body.op(f"shl {numbers} {field}, {form.const(bits, min(place, bits - 1))}")
    field = body.op(f"and {numbers} {field}, {form.const(bits, mask)}")
    base = body.op(f"and {numbers} {base}, {form.const(bits, ~mask)}")
    body.write(body.item.operands[0], body.op(f"or {numbers} {field}, {base}"), bits, form)


def _constant(body: Body, number: int) -> int:
    known = body.constant(body.item.operands[number])
    if known is None:
        raise body.item.unknown("place and length must be constants")
    return body.literal(known.text, 32)


@opcode("prmt")
def permute_bytes(body: Body, modifiers: Modifiers) -> None:
    """Four bytes out of eight; a selector's top bit spreads the sign of the byte."""
    modifiers.need("b32")
    form = body.form()
    words = [body.read(item, 32, form) for item in body.item.operands[1:3]]
    known = body.constant(body.item.operands[3])
    if known is not None:
        value = _chosen_bytes(body, words, body.literal(known.text, 32), form)
    else:
        words.append(body.read(body.item.operands[3], 32, form))
        value = body.op(
            body.call(form.ints(32), ("permute", form.lanes), *(f"{form.ints(32)} {word}" for word in words))
        )
    body.write(body.item.operands[0], value, 32, form)


def _chosen_bytes(body: Body, words: list[str], selector: int, form: Form) -> str:
    """The same by a constant selector: a shuffle of bytes, the spread ones of which come from signs."""
    lanes, spread = max(1, form.lanes), [selector >> 4 * place & 8 for place in range(4)]
    kind = f"<{4 * lanes} x i8>"
    sources = [body.op(f"bitcast {form.ints(32)} {word} to {kind}") for word in words]

    def shuffled(wanted: list[int]) -> str:
        places = [lane * 4 + place % 4 + 4 * lanes * (place // 4) for lane in range(lanes) for place in wanted]
        return body.shuffle("i8", sources[0], places, 4 * lanes, sources[1])

    value = shuffled([selector >> 4 * place & 7 for place in range(4)])
    if any(spread):
        signs = body.op(f"ashr {kind} {value}, splat (i8 7)")
        mixed = [place + 4 * lanes * bool(spread[place % 4]) for place in range(4 * lanes)]
        value = body.shuffle("i8", value, mixed, 4 * lanes, signs)
    return body.op(f"bitcast {kind} {value} to {form.ints(32)}")


@opcode("lop3")
def logic_of_three(body: Body, modifiers: Modifiers) -> None:
    """Any function of three bits, by its table."""
    modifiers.need("b32")
    form, table = body.form(), _constant(body, 4)
    operands = [body.read(item, 32, form) for item in body.item.operands[1:4]]
    body.write(body.item.operands[0], _by_table(body, operands, table, form), 32, form)


def _by_table(body: Body, operands: list[str], table: int, form: Form) -> str:
    """A function of bits; the first operand chooses between the upper and the lower half of its table."""
    if table in (0, (1 << (1 << len(operands))) - 1):
        return form.const(32, -1 if table else 0)
    words, half = form.ints(32), 1 << len(operands) - 1
    low, high = table & (1 << half) - 1, table >> half
    first, rest = operands[0], operands[1:]
    if low == high:
        return _by_table(body, rest, low, form)
    no = _by_table(body, rest, low, form)
    if low ^ high == (1 << half) - 1:
        return body.op(f"xor {words} {first}, {no}")
    differs = body.op(f"and {words} {first}, {_by_table(body, rest, low ^ high, form)}")
    return body.op(f"xor {words} {no}, {differs}")


@opcode("clz", "popc", "brev")
def count_bits(body: Body, modifiers: Modifiers) -> None:
    """Leading zeros or ones of an integer, or its bits in the other order."""
    bits, form = BITS[modifiers.type()], body.form()
    value, numbers = body.read(body.item.operands[1], bits, form), form.ints(bits)
    if body.item.root == "clz":
        result = body.intrinsic(f"ctlz.{mangled(numbers)}", numbers, (numbers, value), ("i1", "false"))
    else:
        result = body.overloaded("ctpop" if body.item.root == "popc" else "bitreverse", numbers, value)
    width = bits if body.item.root == "brev" else 32
    body.write(body.item.operands[0], body.resized(result, bits, width, form), width, form)


@opcode("bfind")
def find_bit(body: Body, modifiers: Modifiers) -> None:
    """Place of the highest bit that differs from the sign, or -1; with `shiftamt` how far it is from the top."""
    kind, form, is_amount = modifiers.type(), body.form(), modifiers.has("shiftamt")
    bits = BITS[kind]
    value, numbers = body.read(body.item.operands[1], bits, form), form.ints(bits)
    if is_signed(kind):
        spread = body.op(f"ashr {numbers} {value}, {form.const(bits, bits - 1)}")
        value = body.op(f"xor {numbers} {value}, {spread}")
    zeros = body.resized(
        body.intrinsic(f"ctlz.{mangled(numbers)}", numbers, (numbers, value), ("i1", "false")), bits, 32, form
    )
    words = form.ints(32)
    if is_amount:
        none = body.op(f"icmp eq {words} {zeros}, {form.const(32, bits)}")
        result = body.op(f"select {form.ints(1)} {none}, {words} {form.const(32, -1)}, {words} {zeros}")
    else:
        result = body.op(f"sub {words} {form.const(32, bits - 1)}, {zeros}")
    body.write(body.item.operands[0], result, 32, form)
