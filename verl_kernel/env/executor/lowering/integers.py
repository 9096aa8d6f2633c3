# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic, logic, shifts and comparisons (PTX ISA, "Integer Arithmetic" and "Logic and Shift")."""

from __future__ import annotations

from verl_kernel.env.executor.flow.graph import CARRY
from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.lowering.floats import float_arithmetic, flush
from verl_kernel.env.executor.lowering.modifiers import Modifiers
from verl_kernel.env.executor.lowering.opcodes import opcode
from verl_kernel.env.executor.lowering.writer import FLOATS, WIDE, Form, mangled
from verl_kernel.env.executor.ptx.program import BITS, Constant, Pair

_PACKED = ("f16x2", "bf16x2")


def is_float(kind: str) -> bool:
    """Whether a type holds floats."""
    return kind in FLOATS or kind in _PACKED


def is_signed(kind: str) -> bool:
    """Whether a type's integers have a sign."""
    return kind.startswith("s")


@opcode("add", "sub", "mul")
def arithmetic(body: Body, modifiers: Modifiers) -> None:
    """`add`, `sub`, `mul` of integers or floats."""
    kind = modifiers.type()
    if is_float(kind):
        float_arithmetic(body, modifiers, kind)
    elif body.item.root == "mul":
        _multiply(body, modifiers, kind)
    elif modifiers.has("cc"):
        _with_carry(body, kind, modifiers)
    else:
        _binary(body, body.item.root, BITS[kind])


@opcode("addc", "subc")
def with_carry(body: Body, modifiers: Modifiers) -> None:
    """Additions that read the condition code."""
    kind = modifiers.type()
    modifiers.take("cc")
    _with_carry(body, kind, modifiers)


def _with_carry(body: Body, kind: str, modifiers: Modifiers) -> None:
    """`add.cc`, `sub.cc`, `addc`, `subc` of 32 or 64 bits: in one more bit than the result has."""
    bits, root = BITS[kind], body.item.root
    one = WIDE.int(bits + 1)
    left, right = (body.op(f"zext {WIDE.int(bits)} {body.read(item, bits, WIDE)} to {one}") for item in body.item.operands[1:])
    name = root.rstrip("c")
    value = body.op(f"{name} {one} {left}, {right}")
    if root.endswith("c"):
        carry = body.resized(body.op(f"load {WIDE.int(32)}, ptr {body.pointer(CARRY)}"), 32, bits + 1, WIDE)
        value = body.op(f"{name} {one} {value}, {carry}")
    _carry(body, value, bits)
    body.write(body.item.operands[0], body.resized(value, bits + 1, bits, WIDE), bits, WIDE)


def _carry(body: Body, value: str, bits: int) -> None:
    """Keep bit `bits` of a wider integer as the condition code."""
    if ".cc" not in body.item.opcode:
        return
    high = body.op(f"lshr {WIDE.int(bits + 1)} {value}, {WIDE.const(bits + 1, bits)}")
    body.put(CARRY, body.resized(high, bits + 1, 32, WIDE), 32, WIDE)


def _binary(body: Body, code: str, bits: int) -> None:
    form = body.form()
    left, right = (body.read(item, bits, form) for item in body.item.operands[1:])
    body.write(body.item.operands[0], body.op(f"{code} {form.int(bits)} {left}, {right}"), bits, form)


@opcode("and", "or", "xor")
def logic(body: Body, modifiers: Modifiers) -> None:
    """Logic, bit by bit."""
    _binary(body, body.item.root, BITS[modifiers.type()])


@opcode("not")
def complement(body: Body, modifiers: Modifiers) -> None:
    """Each bit's complement."""
    bits, form = BITS[modifiers.type()], body.form()
    value = body.read(body.item.operands[1], bits, form)
    body.write(body.item.operands[0], body.op(f"xor {form.int(bits)} {value}, {form.const(bits, -1)}"), bits, form)


@opcode("cnot")
def logical_complement(body: Body, modifiers: Modifiers) -> None:
    """1 where the operand is 0, else 0."""
    bits, form = BITS[modifiers.type()], body.form()
    value = body.read(body.item.operands[1], bits, form)
    is_zero = body.op(f"icmp eq {form.int(bits)} {value}, {form.const(bits, 0)}")
    body.write(body.item.operands[0], body.op(f"zext {form.int(1)} {is_zero} to {form.int(bits)}"), bits, form)


def product(body: Body, kind: str, form: Form) -> str:
    """The whole product of the first two operands, twice as long as they are."""
    bits, extend = BITS[kind], "sext" if is_signed(kind) else "zext"
    left, right = (
        body.op(f"{extend} {form.int(bits)} {body.read(item, bits, form)} to {form.int(2 * bits)}")
        for item in body.item.operands[1:3]
    )
    return body.op(f"mul {form.int(2 * bits)} {left}, {right}")


def _multiply(body: Body, modifiers: Modifiers, kind: str) -> None:
    part, bits, form = modifiers.need("lo", "hi", "wide"), BITS[kind], body.form()
    if part == "lo":
        _binary(body, "mul", bits)
    else:
        body.write(body.item.operands[0], *_part(body, product(body, kind, form), part, bits, form), form)


def _part(body: Body, whole: str, part: str, bits: int, form: Form) -> tuple[str, int]:
    """A part of a product, and its bits."""
    if part == "wide":
        return whole, 2 * bits
    if part == "hi":
        whole = body.op(f"lshr {form.int(2 * bits)} {whole}, {form.const(2 * bits, bits)}")
    return body.resized(whole, 2 * bits, bits, form), bits


@opcode("mad", "madc")
def multiply_add(body: Body, modifiers: Modifiers) -> None:
    """A part of a product and an addend, with the condition code where it is asked for."""
    kind, has_carry = modifiers.type(), modifiers.has("cc")
    part, bits = modifiers.need("lo", "hi", "wide"), BITS[kind]
    is_plain = not has_carry and body.item.root == "mad"
    form = body.form() if is_plain else WIDE
    value, bits = _part(body, product(body, kind, form), part, bits, form)
    addend = body.read(body.item.operands[3], bits, form)
    if is_plain:
        body.write(body.item.operands[0], body.op(f"add {form.int(bits)} {value}, {addend}"), bits, form)
        return
    one = bits + 1
    value, addend = body.resized(value, bits, one, form), body.resized(addend, bits, one, form)
    total = body.op(f"add {form.int(one)} {value}, {addend}")
    if body.item.root == "madc":
        carry = body.resized(body.op(f"load {WIDE.int(32)}, ptr {body.pointer(CARRY)}"), 32, one, WIDE)
        total = body.op(f"add {form.int(one)} {total}, {carry}")
    _carry(body, total, bits)
    body.write(body.item.operands[0], body.resized(total, one, bits, form), bits, form)


@opcode("div", "rem")
def divide(body: Body, modifiers: Modifiers) -> None:
    """Quotient or remainder. A division by zero has no defined result on a GPU; here it divides by 1."""
    kind = modifiers.type()
    if is_float(kind):
        if body.item.root == "rem":
            raise body.item.unknown()
        float_arithmetic(body, modifiers, kind)
        return
    bits, form = BITS[kind], body.form()
    left, right = (body.read(item, bits, form) for item in body.item.operands[1:])
    numbers = form.int(bits)
    bad = body.op(f"icmp eq {numbers} {right}, {form.const(bits, 0)}")
    if is_signed(kind):  # the smallest integer by -1 traps on the host
        minus = body.op(f"icmp eq {numbers} {right}, {form.const(bits, -1)}")
        least = body.op(f"icmp eq {numbers} {left}, {form.const(bits, 1 << bits - 1)}")
        both = body.op(f"and {form.int(1)} {minus}, {least}")
        bad = body.op(f"or {form.int(1)} {bad}, {both}")
    right = body.op(f"select {form.int(1)} {bad}, {numbers} {form.const(bits, 1)}, {numbers} {right}")
    code = ("s" if is_signed(kind) else "u") + body.item.root
    body.write(body.item.operands[0], body.op(f"{code} {numbers} {left}, {right}"), bits, form)


@opcode("min", "max")
def extreme(body: Body, modifiers: Modifiers) -> None:
    """The smaller or the larger one."""
    kind = modifiers.type()
    if is_float(kind):
        float_arithmetic(body, modifiers, kind)
        return
    bits, form = BITS[kind], body.form()
    left, right = (body.read(item, bits, form) for item in body.item.operands[1:])
    name = ("s" if is_signed(kind) else "u") + body.item.root
    body.write(body.item.operands[0], body.overloaded(name, form.int(bits), left, right), bits, form)


@opcode("abs", "neg")
def sign(body: Body, modifiers: Modifiers) -> None:
    """The magnitude or the negative."""
    kind = modifiers.type()
    if is_float(kind):
        float_arithmetic(body, modifiers, kind)
        return
    bits, form = BITS[kind], body.form()
    value, numbers = body.read(body.item.operands[1], bits, form), form.int(bits)
    negative = body.op(f"sub {numbers} {form.const(bits, 0)}, {value}")
    if body.item.root == "abs":
        below = body.op(f"icmp slt {numbers} {value}, {form.const(bits, 0)}")
        negative = body.op(f"select {form.int(1)} {below}, {numbers} {negative}, {numbers} {value}")
    body.write(body.item.operands[0], negative, bits, form)


@opcode("shl", "shr")
def shift(body: Body, modifiers: Modifiers) -> None:
    """Shifts; by as many bits as there are or more, nothing but the sign is left."""
    kind, form = modifiers.type(), body.form()
    bits = BITS[kind]
    value, amount = body.read(body.item.operands[1], bits, form), body.read(body.item.operands[2], 32, form)
    is_arithmetic = body.item.root == "shr" and is_signed(kind)
    code = "shl" if body.item.root == "shl" else "ashr" if is_arithmetic else "lshr"
    limit = form.const(32, bits - 1)
    clamped = body.overloaded("umin", form.int(32), amount, limit)
    shifted = body.op(f"{code} {form.int(bits)} {value}, {body.resized(clamped, 32, bits, form)}")
    if not is_arithmetic and not isinstance(body.item.operands[2], Constant):
        too_far = body.op(f"icmp ugt {form.int(32)} {amount}, {limit}")
        shifted = body.op(f"select {form.int(1)} {too_far}, {form.int(bits)} {form.const(bits, 0)}, {form.int(bits)} {shifted}")
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
    value = body.overloaded(name, form.int(32), high, low, amount)
    if how == "clamp":
        far = body.op(f"icmp uge {form.int(32)} {amount}, {form.const(32, 32)}")
        all_of = low if way == "l" else high
        value = body.op(f"select {form.int(1)} {far}, {form.int(32)} {all_of}, {form.int(32)} {value}")
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
    value = body.op(f"shl {form.int(bits)} {value}, {form.const(bits, bits - place - length)}")
    code = "ashr" if is_signed(kind) else "lshr"
    body.write(body.item.operands[0], body.op(f"{code} {form.int(bits)} {value}, {form.const(bits, bits - length)}"), bits, form)


@opcode("bfi")
def insert_bits(body: Body, modifiers: Modifiers) -> None:
    """A field put into another integer, by constant place and length."""
    form, bits = body.form(), BITS[modifiers.type()]
    place, length = (_constant(body, number) for number in (3, 4))
    mask = ((1 << length) - 1 << place) & (1 << bits) - 1
    field, base = (body.read(item, bits, form) for item in body.item.operands[1:3])
    numbers = form.int(bits)
    field = body.op(f"and {numbers} {body.op(f'shl {numbers} {field}, {form.const(bits, place)}')}, {form.const(bits, mask)}")
    base = body.op(f"and {numbers} {base}, {form.const(bits, ~mask)}")
    body.write(body.item.operands[0], body.op(f"or {numbers} {field}, {base}"), bits, form)


def _constant(body: Body, number: int) -> int:
    operand = body.item.operands[number]
    if not isinstance(operand, Constant):
        raise body.item.unknown("place and length must be constants")
    return body.literal(operand.text, 32)


@opcode("prmt")
def permute_bytes(body: Body, modifiers: Modifiers) -> None:
    """Four bytes out of eight; a selector's top bit spreads the sign of the byte."""
    modifiers.need("b32")
    form = body.form()
    words = [body.read(item, 32, form) for item in body.item.operands[1:3]]
    selector = body.read(body.item.operands[3], 32, form)
    low, high = (body.resized(word, 32, 64, form) for word in words)
    both = body.op(f"or {form.int(64)} {low}, {body.op(f'shl {form.int(64)} {high}, {form.const(64, 32)}')}")
    parts = [_permuted(body, both, selector, place, form) for place in range(4)]
    value = parts[0]
    for part in parts[1:]:
        value = body.op(f"or {form.int(32)} {value}, {part}")
    body.write(body.item.operands[0], value, 32, form)


def _permuted(body: Body, both: str, selector: str, place: int, form: Form) -> str:
    """One byte of the result, in its place."""
    words, longs = form.int(32), form.int(64)
    nibble = body.op(f"lshr {words} {selector}, {form.const(32, 4 * place)}")
    shift_by = body.op(f"shl {words} {body.op(f'and {words} {nibble}, {form.const(32, 7)}')}, {form.const(32, 3)}")
    byte = body.op(f"lshr {longs} {both}, {body.resized(shift_by, 32, 64, form)}")
    byte = body.op(f"shl {words} {body.resized(byte, 64, 32, form)}, {form.const(32, 24)}")
    spread = body.op(f"ashr {words} {byte}, {form.const(32, 31)}")
    plain = body.op(f"lshr {words} {byte}, {form.const(32, 24)}")
    top = body.op(f"and {words} {nibble}, {form.const(32, 8)}")
    wants_sign = body.op(f"icmp ne {words} {top}, {form.const(32, 0)}")
    chosen = body.op(f"select {form.int(1)} {wants_sign}, {words} {spread}, {words} {plain}")
    chosen = body.op(f"and {words} {chosen}, {form.const(32, 255)}")
    return body.op(f"shl {words} {chosen}, {form.const(32, 8 * place)}")


@opcode("lop3")
def logic_of_three(body: Body, modifiers: Modifiers) -> None:
    """Any function of three bits, by its table."""
    modifiers.need("b32")
    form, table = body.form(), _constant(body, 4)
    words, ones = form.int(32), form.const(32, -1)
    operands = [body.read(item, 32, form) for item in body.item.operands[1:4]]
    inverses = [body.op(f"xor {words} {value}, {ones}") for value in operands]
    total = form.const(32, 0)
    for row in range(8):
        if table >> row & 1:
            first, second, third = ((operands if row & bit else inverses)[place] for place, bit in enumerate((4, 2, 1)))
            pair = body.op(f"and {words} {first}, {second}")
            total = body.op(f"or {words} {total}, {body.op(f'and {words} {pair}, {third}')}")
    body.write(body.item.operands[0], total, 32, form)


@opcode("clz", "popc", "brev")
def count_bits(body: Body, modifiers: Modifiers) -> None:
    """Leading zeros or ones of an integer, or its bits in the other order."""
    bits, form = BITS[modifiers.type()], body.form()
    value, numbers = body.read(body.item.operands[1], bits, form), form.int(bits)
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
    value, numbers = body.read(body.item.operands[1], bits, form), form.int(bits)
    if is_signed(kind):
        spread = body.op(f"ashr {numbers} {value}, {form.const(bits, bits - 1)}")
        value = body.op(f"xor {numbers} {value}, {spread}")
    zeros = body.resized(body.intrinsic(f"ctlz.{mangled(numbers)}", numbers, (numbers, value), ("i1", "false")), bits, 32, form)
    words = form.int(32)
    if is_amount:
        none = body.op(f"icmp eq {words} {zeros}, {form.const(32, bits)}")
        result = body.op(f"select {form.int(1)} {none}, {words} {form.const(32, -1)}, {words} {zeros}")
    else:
        result = body.op(f"sub {words} {form.const(32, bits - 1)}, {zeros}")
    body.write(body.item.operands[0], result, 32, form)


_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno"}
_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def compare(body: Body, kind: str, relation: str, form: Form, is_flushed: bool) -> str:
    """Whether two operands, the second and the third, stand in a relation."""
    operands = body.item.operands[1:3]
    if kind in FLOATS:
        left, right = (body.read_float(item, kind, form) for item in operands)
        if is_flushed:
            left, right = (flush(body, value, form) for value in (left, right))
        return body.op(f"fcmp {(_ORDERED | _UNORDERED)[relation]} {form.type(FLOATS[kind])} {left}, {right}")
    bits = BITS[kind]
    if relation in ("eq", "ne"):
        code = relation
    else:
        code = _UNSIGNED.get(relation) or ("s" if is_signed(kind) else "u") + relation
    left, right = (body.read(item, bits, form) for item in operands)
    return body.op(f"icmp {code} {form.int(bits)} {left}, {right}")


@opcode("setp")
def set_predicate(body: Body, modifiers: Modifiers) -> None:
    """A comparison, combined with another predicate where one stands; a second result is its complement."""
    kind, form, is_flushed = modifiers.type(), body.form(), modifiers.has("ftz")
    relation = modifiers.need("eq", "ne", "lt", "le", "gt", "ge", *_UNSIGNED, *_UNORDERED)
    combined = modifiers.take("and", "or", "xor")
    holds = compare(body, kind, relation, form, is_flushed)
    results = body.item.operands[0]
    first, second = (results.first, results.second) if isinstance(results, Pair) else (results, None)
    body.write(first, _combined(body, holds, combined, form), 1, form)
    if second is not None:
        inverse = body.op(f"xor {form.int(1)} {holds}, {form.const(1, 1)}")
        body.write(second, _combined(body, inverse, combined, form), 1, form)


def _combined(body: Body, holds: str, how: str | None, form: Form) -> str:
    if how is None:
        return holds
    return body.op(f"{how} {form.int(1)} {holds}, {body.read(body.item.operands[3], 1, form)}")


@opcode("selp")
def select(body: Body, modifiers: Modifiers) -> None:
    """One of two operands, by a predicate."""
    bits, form = BITS[modifiers.type()], body.form()
    yes, no = (body.read(item, bits, form) for item in body.item.operands[1:3])
    holds, numbers = body.read(body.item.operands[3], 1, form), form.int(bits)
    body.write(body.item.operands[0], body.op(f"select {form.int(1)} {holds}, {numbers} {yes}, {numbers} {no}"), bits, form)
