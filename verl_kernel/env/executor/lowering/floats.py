# SPDX-License-Identifier: Apache-2.0
"""Floating-point arithmetic (PTX ISA, "Floating Point", "Half Precision Floating Point").

Half-precision sums and products are computed in float32 and rounded once more, which is exact for them; fused
multiply-adds of half precision are computed in float64. `.ftz` takes subnormal operands and results for zeros.
"""

from __future__ import annotations

from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.lowering.modifiers import Modifiers
from verl_kernel.env.executor.lowering.opcodes import opcode
from verl_kernel.env.executor.lowering.rounding import odd_sum, stepped, to_odd, two_sum
from verl_kernel.env.executor.lowering.writer import FLOATS, LANES, WIDE, Form, Writer

_CODES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_DIRECTED = ("rz", "rm", "rp")
PAIRS = Form(2 * LANES)
"""Two halves a lane."""


def float_arithmetic(body: Body, modifiers: Modifiers, kind: str) -> None:
    """`add sub mul div min max abs neg fma` of one type."""
    root = body.item.root
    is_flushed = modifiers.has("ftz")
    rounding = modifiers.take("rn", *_DIRECTED)
    # quotients are correctly rounded, which is within the error of the other two
    quotient = modifiers.take("full", "approx") if root == "div" and kind == "f32" else None
    saturates = root in ("add", "sub", "mul", "fma") and modifiers.has("sat")
    knows_nan = root in ("min", "max") and modifiers.has("NaN")
    clips = root == "fma" and kind not in ("f32", "f64") and modifiers.has("relu")
    form, element = _shape(body, kind)
    if len(body.item.operands) != 1 + {"fma": 3, "neg": 1, "abs": 1}.get(root, 2):
        raise body.item.unknown("it has another number of operands")
    if is_flushed and element not in ("float", "half"):
        raise body.item.unknown("`.ftz` is defined for f32 and f16 only")
    operands = [_operand(body, number, kind, form, is_flushed) for number in range(1, len(body.item.operands))]
    if rounding in _DIRECTED:
        if kind != "f32":
            raise body.item.unknown(f"rounding .{rounding} is defined for f32 only")
        value = _directed(body, root, rounding, operands, form)
    else:
        value = _computed(body, root, element, form, operands, knows_nan)
    if quotient == "approx":
        value = _without_huge(body, value, operands, form)
    if saturates:
        value = saturated(body, value, element, form)
    if clips:
        value = rectified(body, value, element, form)
    if is_flushed and not (root in ("neg", "abs", "min", "max") and body.flushed.issuperset(operands)):
        value = flush(body, value, form, element)
    if is_flushed:
        body.flushed.add(value)
    if form is not PAIRS:
        body.write_float(body.item.operands[0], value, kind, form)
        return
    bits = body.op(f"bitcast {form.type(element)} {value} to {WIDE.ints(32)}")
    body.write(body.item.operands[0], bits, 32, WIDE)


def _shape(body: Body, kind: str) -> tuple[Form, str]:
    """How values are computed: form and element."""
    return (PAIRS, FLOATS[kind[:-2]]) if kind.endswith("x2") else (body.form(), FLOATS[kind])


def _operand(body: Body, number: int, kind: str, form: Form, is_flushed: bool) -> str:
    operand, element = body.item.operands[number], _shape(body, kind)[1]
    if form is PAIRS:
        value = body.op(f"bitcast {WIDE.ints(32)} {body.read(operand, 32, WIDE)} to {form.type(element)}")
    else:
        value = body.read_float(operand, kind, form)
    return flush(body, value, form, element) if is_flushed else value


def _computed(body: Body, root: str, element: str, form: Form, operands: list[str], knows_nan: bool) -> str:
    kind = form.type(element)
    if root == "neg":
        return body.op(f"fneg {kind} {operands[0]}")
    if root == "abs":
        return body.overloaded("fabs", kind, operands[0])
    if element in ("half", "bfloat") and root == "fma" and form.lanes:  # long
        return body.op(body.call(kind, ("fma", element, form.lanes), *(f"{kind} {value}" for value in operands)))
    if element in ("half", "bfloat"):
        return in_wider(body, root, element, form, operands, knows_nan)
    return _plain(body, root, kind, operands, knows_nan)


def _without_huge(body: Body, value: str, operands: list[str], form: Form) -> str:
    """`div.approx`: by a number beyond 2^126, 0, and of an infinity NaN."""
    floats = form.type("float")
    size = body.overloaded("fabs", floats, operands[1])
    is_huge = body.op(f"fcmp ogt {floats} {size}, {form.real('float', 2.0**126)}")
    zero = body.overloaded("copysign", floats, form.real("float", 0.0), operands[1])
    other = body.op(f"fmul {floats} {operands[0]}, {zero}")
    return body.op(f"select {form.ints(1)} {is_huge}, {floats} {other}, {floats} {value}")


def _plain(body: Writer, root: str, kind: str, operands: list[str], knows_nan: bool) -> str:
    if root == "fma":
        return body.overloaded("fma", kind, *operands)
    if root in ("min", "max"):
        return body.overloaded(f"{root}imum" if knows_nan else f"{root}imumnum", kind, *operands)
    return body.op(f"{_CODES[root]} {kind} {operands[0]}, {operands[1]}")


def in_wider(body: Writer, root: str, element: str, form: Form, operands: list[str], knows_nan: bool) -> str:
    """Half precision, computed in a wider type and rounded."""
    wide = "double" if root == "fma" else "float"
    widened = [widen(body, value, element, wide, form) for value in operands]
    if root != "fma" or element == "half":
        return narrow(body, _plain(body, root, form.type(wide), widened, knows_nan), wide, element, form)
    product = body.op(f"fmul {form.type(wide)} {widened[0]}, {widened[1]}")  # float64 is too short for their sum
    return narrow(body, odd_sum(body, *two_sum(body, product, widened[2], form), form), wide, element, form)


def widen(body: Writer, value: str, element: str, wide: str, form: Form) -> str:
    """Half precision as float32 or float64, by integers for bfloat16: hosts flush its subnormals."""
    if element == "bfloat":
        bits = body.op(f"bitcast {form.type(element)} {value} to {form.ints(16)}")
        bits = body.op(f"shl {form.ints(32)} {body.resized(bits, 16, 32, form)}, {form.const(32, 16)}")
        value, element = body.op(f"bitcast {form.ints(32)} {bits} to {form.type('float')}"), "float"
    return value if element == wide else body.op(f"fpext {form.type(element)} {value} to {form.type(wide)}")


def narrow(body: Writer, value: str, wide: str, element: str, form: Form) -> str:
    """Round to half precision, to nearest, ties to even."""
    if wide == "double":
        value = to_odd(body, value, form)
    if element == "half":
        return body.op(f"fptrunc {form.type('float')} {value} to {form.type('half')}")
    return body.op(f"bitcast {form.ints(16)} {bfloat_bits(body, value, form)} to {form.type('bfloat')}")


def bfloat_bits(body: Writer, value: str, form: Form) -> str:
    """Bits of the bfloat16 nearest to a float32; NaN is 0x7fff."""
    words = form.ints(32)
    is_nan = body.op(f"fcmp uno {form.type('float')} {value}, {value}")
    bits = body.op(f"bitcast {form.type('float')} {value} to {words}")
    lowest = body.op(f"and {words} {body.op(f'lshr {words} {bits}, {form.const(32, 16)}')}, {form.const(32, 1)}")
    half = body.op(f"add {words} {lowest}, {form.const(32, 0x7FFF)}")
    rounded = body.op(f"lshr {words} {body.op(f'add {words} {bits}, {half}')}, {form.const(32, 16)}")
    chosen = body.op(f"select {form.ints(1)} {is_nan}, {words} {form.const(32, 0x7FFF)}, {words} {rounded}")
    return body.resized(chosen, 32, 16, form)


def flush(body: Writer, value: str, form: Form, element: str = "float") -> str:
    """A float32 or float16 with subnormals replaced by a zero of the same sign."""
    if value in body.flushed:
        return value
    width, mask, top = (32, 0x7F800000, 0x80000000) if element == "float" else (16, 0x7C00, 0x8000)
    words, floats = form.ints(width), form.type(element)
    bits = body.op(f"bitcast {floats} {value} to {words}")
    exponent = body.op(f"and {words} {bits}, {form.const(width, mask)}")
    is_small = body.op(f"icmp eq {words} {exponent}, {form.const(width, 0)}")
    zero = body.op(f"and {words} {bits}, {form.const(width, top)}")
    chosen = body.op(f"select {form.ints(1)} {is_small}, {words} {zero}, {words} {bits}")
    flushed = body.op(f"bitcast {words} {chosen} to {floats}")
    body.flushed.add(flushed)
    return flushed


def saturated(body: Body, value: str, element: str, form: Form) -> str:
    """Clamped to 0 and 1; NaN and -0 become 0."""
    if element == "double":
        raise body.item.unknown("`.sat` is not defined for f64")
    kind, zero, one = form.type(element), form.real(element, 0.0), form.real(element, 1.0)
    is_above = body.op(f"fcmp ogt {kind} {value}, {zero}")
    value = body.op(f"select {form.ints(1)} {is_above}, {kind} {value}, {kind} {zero}")
    is_small = body.op(f"fcmp olt {kind} {value}, {one}")
    return body.op(f"select {form.ints(1)} {is_small}, {kind} {value}, {kind} {one}")


def rectified(body: Body, value: str, element: str, form: Form) -> str:
    """0 for what is negative; NaN stays."""
    kind, zero = form.type(element), form.real(element, 0.0)
    is_below = body.op(f"fcmp olt {kind} {value}, {zero}")
    return body.op(f"select {form.ints(1)} {is_below}, {kind} {zero}, {kind} {value}")


def _directed(body: Body, root: str, rounding: str, operands: list[str], form: Form) -> str:
    """float32 sums, products and fused ones that are rounded to zero, down or up.

    The exact result is a sum of two float64, whose rounding to nearest is corrected by a unit in the last place.
    """
    doubles = form.type("double")
    wide = [body.op(f"fpext {form.type('float')} {value} to {doubles}") for value in operands]
    if root == "sub":
        wide[1] = body.op(f"fneg {doubles} {wide[1]}")
    if root == "mul":
        return stepped(body, body.op(f"fmul {doubles} {wide[0]}, {wide[1]}"), None, rounding, form)
    if root == "fma":
        wide = [body.op(f"fmul {doubles} {wide[0]}, {wide[1]}"), wide[2]]
    elif root not in ("add", "sub"):
        raise body.item.unknown(f"rounding .{rounding} is defined for add, sub, mul and fma only")
    total, error = two_sum(body, wide[0], wide[1], form)
    if rounding == "rm":
        total = _minus_zero(body, total, wide, form)
    return stepped(body, total, error, rounding, form)


def _minus_zero(body: Body, total: str, parts: list[str], form: Form) -> str:
    """A sum rounded down: a zero is negative unless both parts are positive."""
    longs, doubles = form.ints(64), form.type("double")
    signs = [body.op(f"bitcast {doubles} {item} to {longs}") for item in parts[:2]]
    sign = body.op(f"or {longs} {signs[0]}, {signs[1]}")
    sign = body.op(f"bitcast {longs} {sign} to {doubles}")
    zero = body.overloaded("copysign", doubles, total, sign)
    is_zero = body.op(f"fcmp oeq {doubles} {total}, {form.real('double', 0.0)}")
    return body.op(f"select {form.ints(1)} {is_zero}, {doubles} {zero}, {doubles} {total}")


@opcode("fma")
def fused(body: Body, modifiers: Modifiers) -> None:
    """A product and a sum, rounded once."""
    float_arithmetic(body, modifiers, modifiers.type())


@opcode("copysign")
def copy_sign(body: Body, modifiers: Modifiers) -> None:
    """The sign of the first operand with the magnitude of the second."""
    kind, form = modifiers.type(), body.form()
    sign, magnitude = (body.read_float(item, kind, form) for item in body.item.operands[1:])
    body.write_float(
        body.item.operands[0], body.overloaded("copysign", form.type(FLOATS[kind]), magnitude, sign), kind, form
    )


@opcode("testp")
def classify(body: Body, modifiers: Modifiers) -> None:
    """Whether a float is finite, infinite, a number, none, normal (as zeros are) or subnormal."""
    kind, form = modifiers.type(), body.form()
    tests = {"notanumber": 3, "infinite": 516, "finite": 504, "number": 1020, "normal": 360, "subnormal": 144}
    test = tests[modifiers.need(*tests)]
    value, floats = body.read_float(body.item.operands[1], kind, form), form.type(FLOATS[kind])
    name = f"is.fpclass.{'v32' if form is WIDE else ''}{kind}"
    body.write(body.item.operands[0], body.intrinsic(name, form.ints(1), (floats, value), ("i32", str(test))), 1, form)
