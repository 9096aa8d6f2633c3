# SPDX-License-Identifier: Apache-2.0
"""Lowers floating-point arithmetic (PTX ISA, "Floating Point", "Half Precision Floating Point").

Half-precision sums and products are computed in float32 and rounded once more, which is exact for them; fused
multiply-adds of half precision are computed in float64. With `.ftz`, subnormal operands and results become zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_kernel.env.emulator.lowering.body import Body
from verl_kernel.env.emulator.lowering.opcodes import Modifiers, opcode
from verl_kernel.env.emulator.lowering.writer import FLOATS, LANES, WIDE, Key, ValueForm, Writer
from verl_kernel.env.emulator.ptx.program import Operand

# Rounding modes that the host does not have: to odd, and towards zero, down or up.


def odd_sum(body: Writer, total: str, error: str, form: ValueForm) -> str:
    """Round a float64 sum to odd, given the error of its rounding to nearest."""
    # Rounding to odd makes a second rounding harmless (Boldo and Melquiond, "Emulation of a FMA and
    # correctly rounded sums: proved algorithms using rounding to odd", 2008).
    longs, doubles = form.ints(64), form.type("double")
    bits, lost = (body.op(f"bitcast {doubles} {item} to {longs}") for item in (total, error))
    is_inexact = body.op(f"fcmp one {doubles} {error}, {form.real('double', 0.0)}")
    lowest = body.op(f"and {longs} {bits}, {form.const(64, 1)}")
    is_even = body.op(f"icmp eq {longs} {lowest}, {form.const(64, 0)}")
    # Error and sum of opposite signs: the exact sum lies one step nearer to zero.
    is_larger = body.op(f"icmp slt {longs} {body.op(f'xor {longs} {bits}, {lost}')}, {form.const(64, 0)}")
    step = body.op(f"select {form.ints(1)} {is_larger}, {longs} {form.const(64, -1)}, {longs} {form.const(64, 1)}")
    is_moved = body.op(f"and {form.ints(1)} {is_inexact}, {is_even}")
    step = body.op(f"select {form.ints(1)} {is_moved}, {longs} {step}, {longs} {form.const(64, 0)}")
    return body.op(f"bitcast {longs} {body.op(f'add {longs} {bits}, {step}')} to {doubles}")


def to_odd(body: Writer, value: str, form: ValueForm) -> str:
    """Round float64 to float32, to odd if inexact, so that a second rounding to fewer bits is correct."""
    nearest = body.op(f"fptrunc {form.type('double')} {value} to {form.type('float')}")
    back = body.op(f"fpext {form.type('float')} {nearest} to {form.type('double')}")
    bits = body.op(f"bitcast {form.type('float')} {nearest} to {form.ints(32)}")
    magnitudes = [body.overloaded("fabs", form.type("double"), item) for item in (value, back)]
    above = body.op(f"fcmp ogt {form.type('double')} {magnitudes[1]}, {magnitudes[0]}")
    differs = body.op(f"fcmp one {form.type('double')} {value}, {back}")
    lower = body.op(f"sub {form.ints(32)} {bits}, {form.const(32, 1)}")
    bits = body.op(f"select {form.ints(1)} {above}, {form.ints(32)} {lower}, {form.ints(32)} {bits}")
    odd = body.op(f"or {form.ints(32)} {bits}, {form.const(32, 1)}")
    bits = body.op(f"select {form.ints(1)} {differs}, {form.ints(32)} {odd}, {form.ints(32)} {bits}")
    return body.op(f"bitcast {form.ints(32)} {bits} to {form.type('float')}")


def two_sum(body: Writer, lhs: str, rhs: str, form: ValueForm) -> tuple[str, str]:
    """Return the float64 sum of two float64 and its rounding error (Knuth's two-sum)."""
    op: Callable[[str, str, str], str] = lambda code, a, b: body.op(f"{code} {form.type('double')} {a}, {b}")  # noqa: E731
    total = op("fadd", lhs, rhs)
    part = op("fsub", total, lhs)
    error = op("fadd", op("fsub", lhs, op("fsub", total, part)), op("fsub", rhs, part))
    return total, error


_CODES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
"""LLVM's instructions."""
_DIRECTED = ("rz", "rm", "rp")
"""Rounding towards zero, down and up."""
PAIRS = ValueForm(2 * LANES)
"""Form of a value with two halves per lane."""


def float_arithmetic(body: Body, modifiers: Modifiers, kind: str) -> None:
    """Lower `add sub mul div min max abs neg fma` of one type."""
    root = body.item.root
    is_flushed = modifiers.has("ftz")
    rounding = modifiers.take("rn", *_DIRECTED)
    # `full` and `approx` quotients are correctly rounded too, which is within their error
    quotient = modifiers.take("full", "approx") if root == "div" and kind == "f32" else None
    saturates = root in ("add", "sub", "mul", "fma") and modifiers.has("sat")
    # PTX ISA, "min": a NaN operand is ignored, except with `.NaN`.
    is_extreme = root in ("min", "max")
    knows_nan = is_extreme and modifiers.has("NaN")
    compares_sizes = is_extreme and modifiers.has("xorsign") and bool(modifiers.need("abs"))
    clips = root == "fma" and kind not in ("f32", "f64") and modifiers.has("relu")
    form, element = _shape(body, kind)
    if len(body.item.operands) != 1 + {"fma": 3, "neg": 1, "abs": 1}.get(root, 2):
        raise body.item.unknown("it has another number of operands")
    if is_flushed and element not in ("float", "half"):
        raise body.item.unknown("`.ftz` is defined for f32 and f16 only")
    operands = [_operand(body, number, kind, form, is_flushed) for number in range(1, len(body.item.operands))]
    if rounding in _DIRECTED:
        value = directed(body, root, rounding, element, operands, form=form)
    elif compares_sizes:
        value = _extreme_size(body, root, element, form, operands, knows_nan=knows_nan)
    else:
        value = _computed(body, root, element, form, operands, knows_nan=knows_nan)
    if quotient == "approx":
        value = _without_huge(body, value, operands, form)
    if saturates:
        value = saturated(body, value, element, form)
    if clips:
        value = rectified(body, value, element, form)
    # Sign, magnitude and choice of normal numbers are normal.
    if is_flushed and not (root in ("neg", "abs", "min", "max") and body.flushed.issuperset(operands)):
        value = flush(body, value, form, element)
    if is_flushed:
        body.flushed.add(value)
    if form is not PAIRS:
        body.write_float(body.item.operands[0], value, kind, form)
        return
    bits = body.op(f"bitcast {form.type(element)} {value} to {WIDE.ints(32)}")
    body.write(body.item.operands[0], bits, 32, WIDE)


def _shape(body: Body, kind: str) -> tuple[ValueForm, str]:
    """Return the form and the element type in which values are computed."""
    return (PAIRS, FLOATS[kind[:-2]]) if kind.endswith("x2") else (body.form(), FLOATS[kind])


def _operand(body: Body, number: int, kind: str, form: ValueForm, is_flushed: bool) -> str:
    operand, element = body.item.operands[number], _shape(body, kind)[1]
    if form is PAIRS:
        value = body.op(f"bitcast {WIDE.ints(32)} {body.read(operand, 32, WIDE)} to {form.type(element)}")
    else:
        value = body.read_float(operand, kind, form)
    return flush(body, value, form, element) if is_flushed else value


def _computed(body: Body, root: str, element: str, form: ValueForm, operands: list[str], *, knows_nan: bool) -> str:
    kind = form.type(element)
    if root == "neg":
        return body.op(f"fneg {kind} {operands[0]}")
    if root == "abs":
        return body.overloaded("fabs", kind, operands[0])
    if element in ("half", "bfloat") and root == "fma" and form.lanes:  # as a library function, since the code is long
        return body.op(body.call(kind, ("fma", element, form.lanes), *(f"{kind} {value}" for value in operands)))
    # The host computes no half precision of its own.
    if element in ("half", "bfloat"):
        return in_wider(body, root, element, form, operands, knows_nan=knows_nan)
    return _plain(body, root, element, form, operands, knows_nan=knows_nan)


def _extreme_size(body: Body, root: str, element: str, form: ValueForm, operands: list[str], *, knows_nan: bool) -> str:
    """Lower `.xorsign.abs`: the extreme of two magnitudes, with the sign of the product (Triton's symmetric clamp)."""
    kind, words = form.type(element), form.ints({"float": 32}.get(element, 16))
    sizes = [body.overloaded("fabs", kind, operand) for operand in operands]
    size = _computed(body, root, element, form, sizes, knows_nan=knows_nan)
    first_bits, second_bits = (body.op(f"bitcast {kind} {operand} to {words}") for operand in operands)
    sign = body.op(f"bitcast {words} {body.op(f'xor {words} {first_bits}, {second_bits}')} to {kind}")
    return body.overloaded("copysign", kind, size, sign)


def _without_huge(body: Body, value: str, operands: list[str], form: ValueForm) -> str:
    """Apply the rules of `div.approx` for divisors beyond 2^126: the result is 0, and NaN for an infinite dividend."""
    floats = form.type("float")
    size = body.overloaded("fabs", floats, operands[1])
    is_huge = body.op(f"fcmp ogt {floats} {size}, {form.real('float', 2.0**126)}")
    zero = body.overloaded("copysign", floats, form.real("float", 0.0), operands[1])
    beyond = body.op(f"fmul {floats} {operands[0]}, {zero}")
    return body.op(f"select {form.ints(1)} {is_huge}, {floats} {beyond}, {floats} {value}")


def _plain(body: Writer, root: str, element: str, form: ValueForm, operands: list[str], *, knows_nan: bool) -> str:
    kind = form.type(element)
    if root == "fma":
        return body.overloaded("fma", kind, *operands)
    if root in ("min", "max"):
        return body.overloaded(
            f"{root}imum", kind, *(operands if knows_nan else _without_nan(body, element, form, operands))
        )
    return body.op(f"{_CODES[root]} {kind} {operands[0]}, {operands[1]}")


def _without_nan(body: Writer, element: str, form: ValueForm, operands: list[str]) -> list[str]:
    """Put each operand in the place of the other where that is NaN.

    `llvm.maximumnum` does so itself, but LLVM 20 compiles it wrongly for AVX-512: of -1.5 and 0 it returns -1.5.
    """
    kind, pairs = form.type(element), (operands, operands[::-1])
    return [
        body.op(f"select {form.ints(1)} {body.op(f'fcmp uno {kind} {own}, {own}')}, {kind} {other}, {kind} {own}")
        for own, other in pairs
    ]


def in_wider(body: Writer, root: str, element: str, form: ValueForm, operands: list[str], *, knows_nan: bool) -> str:
    """Compute in a wider type and round to half precision."""
    wide = "double" if root == "fma" else "float"
    widened = [widen(body, value, element, wide, form) for value in operands]
    # The wider type is precise enough that rounding again is exact.
    if root != "fma" or element == "half":
        return narrow(body, _plain(body, root, wide, form, widened, knows_nan=knows_nan), wide, element, form)
    product = body.op(f"fmul {form.type(wide)} {widened[0]}, {widened[1]}")  # float64 cannot hold the sum
    return narrow(body, odd_sum(body, *two_sum(body, product, widened[2], form), form), wide, element, form)


def widen(body: Writer, value: str, element: str, wide: str, form: ValueForm) -> str:
    """Widen half precision to float32 or float64; bfloat16 uses integers, as hosts flush its subnormals."""
    if element == "bfloat":
        bits = body.op(f"bitcast {form.type(element)} {value} to {form.ints(16)}")
        # A bfloat16 is the upper half of a float32.
        bits = body.op(f"shl {form.ints(32)} {body.resized(bits, 16, 32, form)}, {form.const(32, 16)}")
        value, element = body.op(f"bitcast {form.ints(32)} {bits} to {form.type('float')}"), "float"
    return value if element == wide else body.op(f"fpext {form.type(element)} {value} to {form.type(wide)}")


def narrow(body: Writer, value: str, wide: str, element: str, form: ValueForm) -> str:
    """Round to half precision, to nearest, ties to even."""
    if wide == "double":
        value = to_odd(body, value, form)
    if element == "half":
        return body.op(f"fptrunc {form.type('float')} {value} to {form.type('half')}")
    return body.op(f"bitcast {form.ints(16)} {bfloat_bits(body, value, form)} to {form.type('bfloat')}")


def bfloat_bits(body: Writer, value: str, form: ValueForm) -> str:
    """Return the bits of the bfloat16 nearest to a float32; NaN is 0x7fff."""
    words = form.ints(32)
    is_nan = body.op(f"fcmp uno {form.type('float')} {value}, {value}")
    bits = body.op(f"bitcast {form.type('float')} {value} to {words}")
    lowest = body.op(f"and {words} {body.op(f'lshr {words} {bits}, {form.const(32, 16)}')}, {form.const(32, 1)}")
    # To nearest, ties to even, by integers: the host has no instruction for it.
    half = body.op(f"add {words} {lowest}, {form.const(32, 0x7FFF)}")
    rounded = body.op(f"lshr {words} {body.op(f'add {words} {bits}, {half}')}, {form.const(32, 16)}")
    chosen = body.op(f"select {form.ints(1)} {is_nan}, {words} {form.const(32, 0x7FFF)}, {words} {rounded}")
    return body.resized(chosen, 32, 16, form)


def flush(body: Writer, value: str, form: ValueForm, element: str = "float") -> str:
    """Replace subnormals of a float32 or float16 by a zero of the same sign."""
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


def saturated(body: Body, value: str, element: str, form: ValueForm) -> str:
    """Clamp to 0 and 1; NaN and -0 become 0."""
    if element == "double":
        raise body.item.unknown("`.sat` is not defined for f64")
    kind, zero, unity = form.type(element), form.real(element, 0.0), form.real(element, 1.0)
    is_above = body.op(f"fcmp ogt {kind} {value}, {zero}")
    # NaN is not above 0, so it becomes 0 here.
    value = body.op(f"select {form.ints(1)} {is_above}, {kind} {value}, {kind} {zero}")
    is_small = body.op(f"fcmp olt {kind} {value}, {unity}")
    return body.op(f"select {form.ints(1)} {is_small}, {kind} {value}, {kind} {unity}")


def rectified(body: Body, value: str, element: str, form: ValueForm) -> str:
    """Replace negative values by 0; NaN remains."""
    kind, zero = form.type(element), form.real(element, 0.0)
    is_below = body.op(f"fcmp olt {kind} {value}, {zero}")
    return body.op(f"select {form.ints(1)} {is_below}, {kind} {zero}, {kind} {value}")


def directed(
    body: Body, root: str, rounding: str, element: str, operands: Sequence[str], *, form: ValueForm, source: str = ""
) -> str:
    """Compute float32 or float64 rounded towards zero, down or up, as a function of the library.

    Args:
        body: the function.
        root: the operation, or LLVM's name of a conversion.
        rounding: the direction.
        element: the result's element type.
        operands: the values.
        form: the form of all of them.
        source: for a conversion, the operand's element type.
    """
    if element not in ("float", "double"):
        raise body.item.unknown(f"rounding .{rounding} is defined for f32 and f64 only")
    kind, operand_type = form.type(element), form.type(source or element)
    # The library's function sets the host's rounding mode around one operation.
    key: Key = ("directed", root, rounding, element, form.lanes, source or element)
    return body.op(body.call(kind, key, *(f"{operand_type} {operand}" for operand in operands)))


@opcode("fma")
def fused(body: Body, modifiers: Modifiers) -> None:
    """Lower a fused multiply-add, which is rounded once."""
    float_arithmetic(body, modifiers, modifiers.type())


@opcode("copysign")
def copy_sign(body: Body, modifiers: Modifiers) -> None:
    """Lower `copysign`: the sign of the first operand with the magnitude of the second."""
    kind, form = modifiers.type(), body.form()
    sign, magnitude = (body.read_float(item, kind, form) for item in body.item.operands[1:])
    body.write_float(
        body.item.operands[0], body.overloaded("copysign", form.type(FLOATS[kind]), magnitude, sign), kind, form
    )


@opcode("testp")
def classify(body: Body, modifiers: Modifiers) -> None:
    """Lower `testp`: whether a float is finite, infinite, a number, NaN, normal (zeros are) or subnormal."""
    kind, form = modifiers.type(), body.form()
    # The bits of LLVM's `llvm.is.fpclass`; PTX counts zeros as normal.
    tests = {"notanumber": 3, "infinite": 516, "finite": 504, "number": 1020, "normal": 360, "subnormal": 144}
    test = tests[modifiers.need(*tests)]
    value, floats = body.read_float(body.item.operands[1], kind, form), form.type(FLOATS[kind])
    name = f"is.fpclass.{'v32' if form is WIDE else ''}{kind}"
    body.write(body.item.operands[0], body.intrinsic(name, form.ints(1), (floats, value), ("i32", str(test))), 1, form)


# Lowers roots, reciprocals and functions that a GPU approximates (PTX ISA, "Floating Point").


@opcode("sqrt", "rcp", "rsqrt")
def roots(body: Body, modifiers: Modifiers) -> None:
    """Lower square root, reciprocal and `rsqrt`, correctly rounded: within the error of `.approx` (1 and 2 ulp)."""
    kind, form, is_flushed, root = modifiers.type(), body.form(), modifiers.has("ftz"), body.item.root
    # Correct rounding is within the error of every approximation, and the same on every machine.
    rounding = modifiers.take("rn", "approx", *(_DIRECTED if root != "rsqrt" else ()))
    value, floats = body.read_float(body.item.operands[1], kind, form), form.type(FLOATS[kind])
    unity = form.real(FLOATS[kind], 1.0)
    if is_flushed and kind == "f32":
        value = flush(body, value, form)
    if rounding in _DIRECTED:
        code, operands = ("sqrt", [value]) if root == "sqrt" else ("div", [unity, value])
        value = directed(body, code, rounding, FLOATS[kind], operands, form=form)
    else:
        value = value if root == "rcp" else body.overloaded("sqrt", floats, value)
        value = value if root == "sqrt" else body.op(f"fdiv {floats} {unity}, {value}")
    if is_flushed and kind == "f32":
        value = flush(body, value, form)
    body.write_float(body.item.operands[0], value, kind, form)


@opcode("ex2", "lg2", "sin", "cos", "tanh")
def approximated(body: Body, modifiers: Modifiers) -> None:
    """Lower functions that a GPU approximates to the same IEEE operations on every machine (`library/functions`)."""
    kind, is_flushed = modifiers.type(), modifiers.has("ftz")
    modifiers.need("approx")
    if kind not in ("f32", "f16", "bf16", "f16x2", "bf16x2"):
        raise body.item.unknown()
    target, source = body.item.operands
    if kind.endswith("x2"):
        halves = [_approximation(body, half, FLOATS[kind[:-2]], is_flushed) for half in halves_of(body, source, kind)]
        body.write(target, joined(body, halves, kind), 32, WIDE)
    else:
        value = _approximation(body, body.read_float(source, kind, WIDE), FLOATS[kind], is_flushed)
        body.write_float(target, value, kind, WIDE)


def _approximation(body: Body, value: str, element: str, is_flushed: bool) -> str:
    floats = WIDE.type("float")
    value = value if element == "float" else widen(body, value, element, "float", WIDE)
    if is_flushed:
        value = flush(body, value, WIDE)
    value = body.op(body.call(floats, (body.item.root,), f"{floats} {value}"))
    if is_flushed:
        value = flush(body, value, WIDE)
    return value if element == "float" else narrow(body, value, "float", element, WIDE)


def halves_of(body: Body, operand: Operand, kind: str) -> list[str]:
    """Return the lower and the upper half of each lane's packed pair."""
    words, element = body.read(operand, 32, WIDE), WIDE.type(FLOATS[kind[:-2]])
    shifted = (words, body.op(f"lshr {WIDE.ints(32)} {words}, {WIDE.const(32, 16)}"))
    return [body.op(f"bitcast {WIDE.ints(16)} {body.resized(word, 32, 16, WIDE)} to {element}") for word in shifted]


def joined(body: Body, halves: list[str], kind: str) -> str:
    """Return packed pairs as integers."""
    element = WIDE.type(FLOATS[kind[:-2]])
    bits = [body.op(f"bitcast {element} {half} to {WIDE.ints(16)}") for half in halves]
    low, high = (body.resized(half_bits, 16, 32, WIDE) for half_bits in bits)
    high = body.op(f"shl {WIDE.ints(32)} {high}, {WIDE.const(32, 16)}")
    return body.op(f"or {WIDE.ints(32)} {low}, {high}")
