# SPDX-License-Identifier: Apache-2.0
"""Lowers integer arithmetic and logic (PTX ISA, "Integer Arithmetic", "Logic and Shift")."""

from __future__ import annotations

from verl_kernel.env.emulator.flow.graph import CARRY
from verl_kernel.env.emulator.lowering.body import Body
from verl_kernel.env.emulator.lowering.floats import float_arithmetic
from verl_kernel.env.emulator.lowering.opcodes import SHORTS, Modifiers, opcode
from verl_kernel.env.emulator.lowering.writer import FLOATS, WIDE, ValueForm, mangled
from verl_kernel.env.emulator.ptx.program import BITS, Immediate

# Shifts, bit fields, selections and counts of bits (PTX ISA, "Logic and Shift", "Integer Arithmetic", "prmt").


@opcode("shl", "shr")
def shift(body: Body, modifiers: Modifiers) -> None:
    """Lower shifts; a shift by at least the width leaves only copies of the sign, or zeros."""
    kind, form = modifiers.type(), body.form()
    bits = BITS[kind]
    value, amount = body.read(body.item.operands[1], bits, form), body.read(body.item.operands[2], 32, form)
    is_arithmetic = body.item.root == "shr" and is_signed(kind)
    code = "shl" if body.item.root == "shl" else "ashr" if is_arithmetic else "lshr"
    # PTX ISA, "shl": amounts beyond the width count as the width. In LLVM they are undefined.
    limit = form.const(32, bits - 1)
    clamped = body.overloaded("umin", form.ints(32), amount, limit)
    shifted = body.op(f"{code} {form.ints(bits)} {value}, {body.resized(clamped, 32, bits, form)}")
    if not is_arithmetic and not isinstance(body.item.operands[2], Immediate):
        too_far = body.op(f"icmp ugt {form.ints(32)} {amount}, {limit}")
        shifted = body.op(
            f"select {form.ints(1)} {too_far}, {form.ints(bits)} {form.const(bits, 0)}, {form.ints(bits)} {shifted}"
        )
    elif isinstance(body.item.operands[2], Immediate) and body.literal(body.item.operands[2].text, 32) >= bits:
        shifted = shifted if is_arithmetic else form.const(bits, 0)
    body.write(body.item.operands[0], shifted, bits, form)


@opcode("shf")
def funnel_shift(body: Body, modifiers: Modifiers) -> None:
    """Lower a shift of two joined registers; `wrap` takes the amount modulo 32, `clamp` limits it to 32."""
    direction, overflow, form = modifiers.need("l", "r"), modifiers.need("wrap", "clamp"), body.form()
    modifiers.need("b32")
    low, high, amount = (body.read(item, 32, form) for item in body.item.operands[1:4])
    name = "fshl" if direction == "l" else "fshr"
    value = body.overloaded(name, form.ints(32), high, low, amount)
    # LLVM's funnel shifts wrap, so an amount of 32 needs a case of its own.
    if overflow == "clamp":
        is_far = body.op(f"icmp uge {form.ints(32)} {amount}, {form.const(32, 32)}")
        all_of = low if direction == "l" else high
        value = body.op(f"select {form.ints(1)} {is_far}, {form.ints(32)} {all_of}, {form.ints(32)} {value}")
    body.write(body.item.operands[0], value, 32, form)


@opcode("bfe")
def extract_bits(body: Body, modifiers: Modifiers) -> None:
    """Lower the extraction of a bit field with constant position and length."""
    kind, form = modifiers.type(), body.form()
    bits = BITS[kind]
    position, length = (_constant(body, number) for number in (2, 3))
    # PTX ISA, "bfe": a field ends at the top bit.
    length = min(length, bits - position)
    if position >= bits or length <= 0:
        raise body.item.unknown("its field is empty")
    value = body.read(body.item.operands[1], bits, form)
    value = body.op(f"shl {form.ints(bits)} {value}, {form.const(bits, bits - position - length)}")
    code = "ashr" if is_signed(kind) else "lshr"
    body.write(
        body.item.operands[0],
        body.op(f"{code} {form.ints(bits)} {value}, {form.const(bits, bits - length)}"),
        bits,
        form,
    )


@opcode("bfi")
def insert_bits(body: Body, modifiers: Modifiers) -> None:
    """Lower the insertion of a bit field with constant position and length."""
    form, bits = body.form(), BITS[modifiers.type()]
    position, length = (_constant(body, number) for number in (3, 4))
    mask = ((1 << length) - 1 << position) & (1 << bits) - 1
    field, base = (body.read(item, bits, form) for item in body.item.operands[1:3])
    numbers = form.ints(bits)
    field = body.op(f"shl {numbers} {field}, {form.const(bits, min(position, bits - 1))}")
    field = body.op(f"and {numbers} {field}, {form.const(bits, mask)}")
    base = body.op(f"and {numbers} {base}, {form.const(bits, ~mask)}")
    body.write(body.item.operands[0], body.op(f"or {numbers} {field}, {base}"), bits, form)


def _constant(body: Body, number: int) -> int:
    constant = body.constant(body.item.operands[number])
    if constant is None:
        raise body.item.unknown("place and length must be constants")
    return body.literal(constant.text, 32)


@opcode("prmt")
def permute_bytes(body: Body, modifiers: Modifiers) -> None:
    """Select four of eight bytes; a selector's top bit replicates the sign of the byte."""
    modifiers.need("b32")
    form = body.form()
    words = [body.read(item, 32, form) for item in body.item.operands[1:3]]
    selector = body.constant(body.item.operands[3])
    # A constant selector is a constant shuffle of bytes.
    if selector is not None:
        value = _chosen_bytes(body, words, body.literal(selector.text, 32), form)
    else:
        words.append(body.read(body.item.operands[3], 32, form))
        value = body.op(
            body.call(form.ints(32), ("permute", form.lanes), *(f"{form.ints(32)} {word}" for word in words))
        )
    body.write(body.item.operands[0], value, 32, form)


def _chosen_bytes(body: Body, words: list[str], selector: int, form: ValueForm) -> str:
    """Select bytes by a constant selector: a shuffle of bytes and of their signs."""
    lanes, spread = max(1, form.lanes), [selector >> 4 * index & 8 for index in range(4)]
    kind = f"<{4 * lanes} x i8>"
    sources = [body.op(f"bitcast {form.ints(32)} {word} to {kind}") for word in words]

    def shuffled(selected: list[int]) -> str:
        indices = [lane * 4 + index % 4 + 4 * lanes * (index // 4) for lane in range(lanes) for index in selected]
        return body.shuffle("i8", sources[0], indices, 4 * lanes, sources[1])

    value = shuffled([selector >> 4 * index & 7 for index in range(4)])
    if any(spread):
        signs = body.op(f"ashr {kind} {value}, splat (i8 7)")
        mixed = [index + 4 * lanes * bool(spread[index % 4]) for index in range(4 * lanes)]
        value = body.shuffle("i8", value, mixed, 4 * lanes, signs)
    return body.op(f"bitcast {kind} {value} to {form.ints(32)}")


@opcode("lop3")
def logic_of_three(body: Body, modifiers: Modifiers) -> None:
    """Lower any function of three bits, given by its table."""
    modifiers.need("b32")
    form, table = body.form(), _constant(body, 4)
    operands = [body.read(item, 32, form) for item in body.item.operands[1:4]]
    body.write(body.item.operands[0], _by_table(body, operands, table, form), 32, form)


def _by_table(body: Body, operands: list[str], table: int, form: ValueForm) -> str:
    """Compute a function of bits; the first operand selects the upper or the lower half of its table."""
    if table in (0, (1 << (1 << len(operands))) - 1):
        return form.const(32, -1 if table else 0)
    words, half = form.ints(32), 1 << len(operands) - 1
    low, high = table & (1 << half) - 1, table >> half
    first, remaining = operands[0], operands[1:]
    # The function does not depend on this operand.
    if low == high:
        return _by_table(body, remaining, low, form)
    no = _by_table(body, remaining, low, form)
    # Its halves are complements: the operand only inverts.
    if low ^ high == (1 << half) - 1:
        return body.op(f"xor {words} {first}, {no}")
    differs = body.op(f"and {words} {first}, {_by_table(body, remaining, low ^ high, form)}")
    return body.op(f"xor {words} {no}, {differs}")


@opcode("clz", "popc", "brev")
def count_bits(body: Body, modifiers: Modifiers) -> None:
    """Lower population counts, counts of leading zeros, and reversal of bits."""
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
    """Find the highest bit that differs from the sign, or -1; with `shiftamt` its distance from the top."""
    kind, form, is_amount = modifiers.type(), body.form(), modifiers.has("shiftamt")
    bits = BITS[kind]
    value, numbers = body.read(body.item.operands[1], bits, form), form.ints(bits)
    # A negative number becomes its complement, whose leading zeros are the bits equal to the sign.
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


PACKED = ("f16x2", "bf16x2")
"""Types of two halves."""


def is_float(kind: str) -> bool:
    """Whether a type holds floats."""
    return kind in FLOATS or kind in PACKED


def is_signed(kind: str) -> bool:
    """Whether a type's integers are signed."""
    return kind.startswith("s")


@opcode("add", "sub", "mul")
def arithmetic(body: Body, modifiers: Modifiers) -> None:
    """Lower `add`, `sub`, `mul` of integers or floats."""
    kind = modifiers.type()
    if is_float(kind):
        float_arithmetic(body, modifiers, kind)
    elif kind in SHORTS:
        _pairs(body, kind)
    elif body.item.root == "mul":
        _multiply(body, modifiers, kind)
    elif modifiers.has("cc"):
        _with_carry(body, kind, modifiers)
    elif kind == "s32" and modifiers.has("sat"):
        lhs, rhs = (body.read(item, 32, WIDE) for item in body.item.operands[1:])
        body.write(body.item.operands[0], body.overloaded(f"s{body.item.root}.sat", WIDE.ints(32), lhs, rhs), 32, WIDE)
    else:
        _binary(body, body.item.root, BITS[kind])


@opcode("addc", "subc")
def with_carry(body: Body, modifiers: Modifiers) -> None:
    """Lower additions that read the carry flag."""
    kind = modifiers.type()
    modifiers.take("cc")
    _with_carry(body, kind, modifiers)


def _with_carry(body: Body, kind: str, modifiers: Modifiers) -> None:
    """Lower `add.cc`, `sub.cc`, `addc`, `subc` of 32 or 64 bits."""
    bits, root = BITS[kind], body.item.root
    lhs, rhs = (body.read(item, bits, WIDE) for item in body.item.operands[1:])
    value = _carried(body, root.rstrip("c"), lhs, rhs, bits, reads=root.endswith("c"))
    body.write(body.item.operands[0], value, bits, WIDE)


def _carried(body: Body, code: str, lhs: str, rhs: str, bits: int, *, reads: bool) -> str:
    """Compute a sum or a difference, with the carry flag if `reads`; sets the flag for `.cc`."""
    numbers, bit = WIDE.ints(bits), WIDE.ints(1)
    carry = body.resized(body.register_value(CARRY), 32, bits, WIDE) if reads else None

    def overflows(before: str, after: str, addend: str) -> str:
        first, second = (after, addend) if code == "add" else (before, addend)
        return body.op(f"icmp ult {numbers} {first}, {second}")

    value = body.op(f"{code} {numbers} {lhs}, {rhs}")
    out = overflows(lhs, value, rhs)
    if carry is not None:
        before, value = value, body.op(f"{code} {numbers} {value}, {carry}")
        # Either addition may overflow, but not both.
        out = body.op(f"or {bit} {out}, {overflows(before, value, carry)}")
    if ".cc" in body.item.opcode:
        body.put(CARRY, body.op(f"zext {bit} {out} to {WIDE.ints(32)}"), 32, WIDE)
    return value


def _pairs(body: Body, kind: str) -> None:
    """Lower a sum or an extreme of pairs of 16-bit integers."""
    form, root = body.form(), body.item.root
    words, pairs = form.ints(32), f"<{2 * max(1, form.lanes)} x i16>"
    lhs, rhs = (
        body.op(f"bitcast {words} {body.read(operand, 32, form)} to {pairs}") for operand in body.item.operands[1:]
    )
    if root == "add":
        value = body.op(f"add {pairs} {lhs}, {rhs}")
    else:
        value = body.overloaded(f"{kind[0]}{root}", pairs, lhs, rhs)
    body.write(body.item.operands[0], body.op(f"bitcast {pairs} {value} to {words}"), 32, form)


def _binary(body: Body, code: str, bits: int) -> None:
    form = body.form()
    lhs, rhs = (body.read(item, bits, form) for item in body.item.operands[1:])
    body.write(body.item.operands[0], body.op(f"{code} {form.ints(bits)} {lhs}, {rhs}"), bits, form)


@opcode("and", "or", "xor")
def logic(body: Body, modifiers: Modifiers) -> None:
    """Lower bitwise logic."""
    _binary(body, body.item.root, BITS[modifiers.type()])


@opcode("not")
def complement(body: Body, modifiers: Modifiers) -> None:
    """Lower the bitwise complement."""
    bits, form = BITS[modifiers.type()], body.form()
    value = body.read(body.item.operands[1], bits, form)
    body.write(body.item.operands[0], body.op(f"xor {form.ints(bits)} {value}, {form.const(bits, -1)}"), bits, form)


@opcode("cnot")
def logical_complement(body: Body, modifiers: Modifiers) -> None:
    """Lower `cnot`: 1 if the operand is 0, else 0."""
    bits, form = BITS[modifiers.type()], body.form()
    value = body.read(body.item.operands[1], bits, form)
    is_zero = body.op(f"icmp eq {form.ints(bits)} {value}, {form.const(bits, 0)}")
    body.write(body.item.operands[0], body.op(f"zext {form.ints(1)} {is_zero} to {form.ints(bits)}"), bits, form)


def product(body: Body, kind: str, form: ValueForm) -> str:
    """Compute the full product of the first two operands, with twice their width."""
    bits, extend = BITS[kind], "sext" if is_signed(kind) else "zext"
    lhs, rhs = (
        body.op(f"{extend} {form.ints(bits)} {body.read(item, bits, form)} to {form.ints(2 * bits)}")
        for item in body.item.operands[1:3]
    )
    return body.op(f"mul {form.ints(2 * bits)} {lhs}, {rhs}")


def _multiply(body: Body, modifiers: Modifiers, kind: str) -> None:
    part, bits, form = modifiers.need("lo", "hi", "wide"), BITS[kind], body.form()
    if part == "lo":
        _binary(body, "mul", bits)
    else:
        body.write(body.item.operands[0], *_product_part(body, product(body, kind, form), part, bits, form), form)


def _product_part(body: Body, whole: str, part: str, bits: int, form: ValueForm) -> tuple[str, int]:
    """Select a part of a product; returns it with its width."""
    if part == "wide":
        return whole, 2 * bits
    if part == "hi":
        whole = body.op(f"lshr {form.ints(2 * bits)} {whole}, {form.const(2 * bits, bits)}")
    return body.resized(whole, 2 * bits, bits, form), bits


@opcode("mad", "madc")
def multiply_add(body: Body, modifiers: Modifiers) -> None:
    """Add a part of a product and an addend, with the carry flag if the opcode says so."""
    kind, has_carry = modifiers.type(), modifiers.has("cc")
    part, bits = modifiers.need("lo", "hi", "wide"), BITS[kind]
    is_plain = not has_carry and body.item.root == "mad"
    form = body.form() if is_plain else WIDE
    value, bits = _product_part(body, product(body, kind, form), part, bits, form)
    addend = body.read(body.item.operands[3], bits, form)
    if is_plain:
        body.write(body.item.operands[0], body.op(f"add {form.ints(bits)} {value}, {addend}"), bits, form)
        return
    value = _carried(body, "add", value, addend, bits, reads=body.item.root == "madc")
    body.write(body.item.operands[0], value, bits, form)


@opcode("dp4a")
def dot_of_bytes(body: Body, modifiers: Modifiers) -> None:
    """Add the products of four pairs of bytes to the last operand."""
    kinds = [modifiers.need("s32", "u32") for _ in range(2)]
    words, total = WIDE.ints(32), body.read(body.item.operands[3], 32, WIDE)
    packed = [body.read(item, 32, WIDE) for item in body.item.operands[1:3]]
    for byte in range(4):
        lhs, rhs = (_byte(body, value, byte, is_signed(kind)) for value, kind in zip(packed, kinds, strict=True))
        total = body.op(f"add {words} {total}, {body.op(f'mul {words} {lhs}, {rhs}')}")
    body.write(body.item.operands[0], total, 32, WIDE)


def _byte(body: Body, value: str, byte: int, signed: bool) -> str:
    """Return one byte of each lane's word, widened to a word."""
    words = WIDE.ints(32)
    first = body.op(f"shl {words} {value}, {WIDE.const(32, 24 - 8 * byte)}")
    return body.op(f"{'ashr' if signed else 'lshr'} {words} {first}, {WIDE.const(32, 24)}")


@opcode("sad")
def add_distance(body: Body, modifiers: Modifiers) -> None:
    """Add the distance of two integers to a third."""
    kind = modifiers.type()
    bits, form, prefix = BITS[kind], body.form(), "s" if is_signed(kind) else "u"
    numbers = form.ints(bits)
    lhs, rhs, addend = (body.read(item, bits, form) for item in body.item.operands[1:])
    high, low = (body.overloaded(f"{prefix}{name}", numbers, lhs, rhs) for name in ("max", "min"))
    distance = body.op(f"sub {numbers} {high}, {low}")
    body.write(body.item.operands[0], body.op(f"add {numbers} {addend}, {distance}"), bits, form)


@opcode("div", "rem")
def divide(body: Body, modifiers: Modifiers) -> None:
    """Lower a quotient or remainder. Division by zero is undefined on a GPU; here the divisor becomes 1."""
    kind = modifiers.type()
    if is_float(kind):
        if body.item.root == "rem":
            raise body.item.unknown()
        float_arithmetic(body, modifiers, kind)
        return
    bits, form = BITS[kind], body.form()
    lhs, rhs = (body.read(item, bits, form) for item in body.item.operands[1:])
    numbers = form.ints(bits)
    # A division by zero would end the host's process.
    is_unsafe = body.op(f"icmp eq {numbers} {rhs}, {form.const(bits, 0)}")
    if is_signed(kind):  # dividing the smallest integer by -1 traps on the host
        minus = body.op(f"icmp eq {numbers} {rhs}, {form.const(bits, -1)}")
        is_smallest = body.op(f"icmp eq {numbers} {lhs}, {form.const(bits, 1 << bits - 1)}")
        overflows = body.op(f"and {form.ints(1)} {minus}, {is_smallest}")
        is_unsafe = body.op(f"or {form.ints(1)} {is_unsafe}, {overflows}")
    rhs = body.op(f"select {form.ints(1)} {is_unsafe}, {numbers} {form.const(bits, 1)}, {numbers} {rhs}")
    code = ("s" if is_signed(kind) else "u") + body.item.root
    body.write(body.item.operands[0], body.op(f"{code} {numbers} {lhs}, {rhs}"), bits, form)


@opcode("min", "max")
def extreme(body: Body, modifiers: Modifiers) -> None:
    """Lower the minimum or the maximum."""
    kind = modifiers.type()
    if is_float(kind) or kind in SHORTS:
        float_arithmetic(body, modifiers, kind) if is_float(kind) else _pairs(body, kind)
        return
    bits, form = BITS[kind], body.form()
    lhs, rhs = (body.read(item, bits, form) for item in body.item.operands[1:])
    name = ("s" if is_signed(kind) else "u") + body.item.root
    body.write(body.item.operands[0], body.overloaded(name, form.ints(bits), lhs, rhs), bits, form)


@opcode("abs", "neg")
def sign(body: Body, modifiers: Modifiers) -> None:
    """Lower the magnitude or the negation."""
    kind = modifiers.type()
    if is_float(kind):
        float_arithmetic(body, modifiers, kind)
        return
    bits, form = BITS[kind], body.form()
    value, numbers = body.read(body.item.operands[1], bits, form), form.ints(bits)
    negative = body.op(f"sub {numbers} {form.const(bits, 0)}, {value}")
    if body.item.root == "abs":
        below = body.op(f"icmp slt {numbers} {value}, {form.const(bits, 0)}")
        negative = body.op(f"select {form.ints(1)} {below}, {numbers} {negative}, {numbers} {value}")
    body.write(body.item.operands[0], negative, bits, form)
