# SPDX-License-Identifier: Apache-2.0
"""Functions that a GPU approximates, and 8-bit floats: sequences of IEEE operations, identical on every machine.

Errors allowed by the PTX ISA: ex2 2 ulp; lg2 2^-22 between 1/2 and 2, relative elsewhere; sin and cos 2^-20.5 between
-pi and pi; tanh 2^-11 relative. All of these errors are below two units in float32's last place here.
"""

from __future__ import annotations

import math

from verl_kernel.env.emulator.library.context import FunctionWriter
from verl_kernel.env.emulator.lowering import floats
from verl_kernel.env.emulator.lowering.writer import WIDE, Key, ValueForm, mangled, real


def permute_text(key: Key) -> tuple[FunctionWriter, str]:
    """`permute_<lanes>(low, high, selector)`: select four of eight bytes; a selector's top bit replicates the sign."""
    body, form = FunctionWriter(), ValueForm(int(key[1]))
    words, longs = form.ints(32), form.ints(64)
    low, high = (body.resized(word, 32, 64, form) for word in ("%low", "%high"))
    eight_bytes = body.op(f"or {longs} {low}, {body.op(f'shl {longs} {high}, {form.const(64, 32)}')}")
    value = _selected_byte(body, eight_bytes, 0, form)
    for index in range(1, 4):
        value = body.op(f"or {words} {value}, {_selected_byte(body, eight_bytes, index, form)}")
    body.do(f"ret {words} {value}")
    return body, body.text(words, key, tuple(f"{words} %{name}" for name in ("low", "high", "selector")))


def _selected_byte(body: FunctionWriter, eight_bytes: str, index: int, form: ValueForm) -> str:
    """Return one byte of the result, shifted to its place."""
    words, longs = form.ints(32), form.ints(64)
    nibble = body.op(f"lshr {words} %selector, {form.const(32, 4 * index)}")
    shift_by = body.op(f"shl {words} {body.op(f'and {words} {nibble}, {form.const(32, 7)}')}, {form.const(32, 3)}")
    byte = body.op(f"lshr {longs} {eight_bytes}, {body.resized(shift_by, 32, 64, form)}")
    byte = body.op(f"shl {words} {body.resized(byte, 64, 32, form)}, {form.const(32, 24)}")
    spread = body.op(f"ashr {words} {byte}, {form.const(32, 31)}")
    plain = body.op(f"lshr {words} {byte}, {form.const(32, 24)}")
    top = body.op(f"and {words} {nibble}, {form.const(32, 8)}")
    wants_sign = body.op(f"icmp ne {words} {top}, {form.const(32, 0)}")
    chosen = body.op(f"select {form.ints(1)} {wants_sign}, {words} {spread}, {words} {plain}")
    chosen = body.op(f"and {words} {chosen}, {form.const(32, 255)}")
    return body.op(f"shl {words} {chosen}, {form.const(32, 8 * index)}")


_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""LLVM's numbers of the rounding modes ("llvm.set.rounding")."""
_OPERATIONS = {
    "add": ("fadd", 2),
    "sub": ("fsub", 2),
    "mul": ("fmul", 2),
    "div": ("fdiv", 2),
    "fma": ("fma", 3),
    "sqrt": ("sqrt", 1),
}
"""LLVM's name of each operation, and how many operands it has."""


def directed_text(key: Key) -> tuple[FunctionWriter, str]:
    """`directed_<operation>_<rounding>_<element>_<lanes>_<operands>(a...)`; the mode is to nearest again in the end.

    The operands' element type is another one for a conversion (`sitofp`, `uitofp`, `fptrunc`).
    """
    body, form, rounding = FunctionWriter(), ValueForm(int(key[4])), _MODES[str(key[2])]
    kind = form.type(str(key[3]))
    name, count = _OPERATIONS.get(str(key[1]), (str(key[1]), 1))
    source = form.type(str(key[5]))
    operands = [(source, f"%a{number}") for number in range(count)]
    marks = [("metadata", f'!"{mark}"') for mark in ("round.dynamic", "fpexcept.strict")]
    body.do(body.called("set.rounding", "void", [("i32", str(rounding))]) + " strictfp")
    types = mangled(kind) if source == kind else f"{mangled(kind)}.{mangled(source)}"
    call = body.called(f"experimental.constrained.{name}.{types}", kind, [*operands, *marks])
    value = body.op(f"{call} strictfp")
    body.do(body.called("set.rounding", "void", [("i32", str(_MODES["rn"]))]) + " strictfp")
    body.do(f"ret {kind} {value}")
    return body, body.text(kind, key, [" ".join(operand) for operand in operands], "nounwind strictfp")


SINGLES, DOUBLES, WORDS, LONGS = WIDE.type("float"), WIDE.type("double"), WIDE.ints(32), WIDE.ints(64)
_LN2 = math.log(2)
_PI_HALF = (1.5707963267948966, 6.123233995736766e-17)
"""Half of pi, and the remainder that float64 cannot represent."""
_MAGIC = {"float": 12582912.0, "double": 6755399441055744.0}
"""1.5 times 2^23 and 2^52: adding one to a small whole number leaves that number in the lowest bits."""


class Real(FunctionWriter):
    """Writes arithmetic on vectors of one float type."""

    def __init__(self, element: str) -> None:
        super().__init__()
        self.element, self.kind = element, WIDE.type(element)

    def const(self, value: float) -> str:
        """Return a vector constant."""
        return f"splat ({self.element} {real(self.element, value)})"

    def calc(self, code: str, lhs: str, rhs: str) -> str:
        """Compute `fadd`, `fsub`, `fmul` or `fdiv`."""
        return self.op(f"{code} {self.kind} {lhs}, {rhs}")

    def fma(self, factor: str, other_factor: str, addend: str) -> str:
        """Compute a fused multiply-add."""
        return self.overloaded("fma", self.kind, factor, other_factor, addend)

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        """Evaluate a polynomial; coefficients begin with the constant term."""
        value = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.const(coefficient))
        return value

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Select one of two values per lane."""
        return self.op(f"select {WIDE.ints(1)} {condition}, {self.kind} {yes}, {self.kind} {no}")

    def test(self, relation: str, lhs: str, rhs: str) -> str:
        """Compare two values per lane."""
        return self.op(f"fcmp {relation} {self.kind} {lhs}, {rhs}")

    def whole(self, value: str) -> str:
        """Convert a small whole number to an integer of the same width."""
        kind = WORDS if self.element == "float" else LONGS
        shifted = self.op(f"bitcast {self.kind} {self.calc('fadd', value, self.const(_MAGIC[self.element]))} to {kind}")
        base = self.op(f"bitcast {self.kind} {self.const(_MAGIC[self.element])} to {kind}")
        return self.op(f"sub {kind} {shifted}, {base}")

    def power_of_two(self, exponent: str) -> str:
        """Compute 2 to an integer power within the range of normal numbers."""
        bits, bias, mantissa = (32, 127, 23) if self.element == "float" else (64, 1023, 52)
        kind = WIDE.ints(bits)
        biased = self.op(f"add {kind} {exponent}, {WIDE.const(bits, bias)}")
        return self.op(f"bitcast {kind} {self.op(f'shl {kind} {biased}, {WIDE.const(bits, mantissa)}')} to {self.kind}")


def ex2_text(key: Key) -> tuple[FunctionWriter, str]:
    """Compute 2 to the power of x: the whole part sets the exponent, a Taylor polynomial covers the rest."""
    body = Real("float")
    # Beyond these bounds the result is infinity, or zero, in float32.
    x = body.choose(body.test("ogt", "%x", body.const(130.0)), body.const(130.0), "%x")
    x = body.choose(body.test("olt", x, body.const(-160.0)), body.const(-160.0), x)
    nearest = body.overloaded("roundeven", SINGLES, x)
    # The rest is at most 1/2, so the next term is below 6e-9.
    value = body.polynomial(body.calc("fsub", x, nearest), [_LN2**n / math.factorial(n) for n in range(8)])
    exponent = body.whole(nearest)
    half = body.op(f"ashr {WORDS} {exponent}, {WIDE.const(32, 1)}")
    for part in (half, body.op(f"sub {WORDS} {exponent}, {half}")):  # in two steps, as 2^-149 would be out of range
        value = body.calc("fmul", value, body.power_of_two(part))
    body.do(f"ret {SINGLES} {value}")
    return body, body.text(SINGLES, key, [f"{SINGLES} %x"])


def lg2_text(key: Key) -> tuple[FunctionWriter, str]:
    """Compute the binary logarithm: the exponent and, for m between 0.7 and 1.42, 2 atanh((m - 1) / (m + 1))."""
    body = Real("double")
    wide = body.op(f"fpext {SINGLES} %x to {DOUBLES}")
    bits = body.op(f"bitcast {DOUBLES} {wide} to {LONGS}")
    # the exponent of m / 0.707 is that of m, less one if m is small
    rebased = body.op(f"sub {LONGS} {bits}, {WIDE.const(64, 0x3FE6A09E667F3BCD)}")
    exponent = body.op(f"ashr {LONGS} {rebased}, {WIDE.const(64, 52)}")
    mantissa = body.op(f"sub {LONGS} {bits}, {body.op(f'shl {LONGS} {exponent}, {WIDE.const(64, 52)}')}")
    m = body.op(f"bitcast {LONGS} {mantissa} to {DOUBLES}")
    ratio = body.calc("fdiv", body.calc("fsub", m, body.const(1.0)), body.calc("fadd", m, body.const(1.0)))
    series = body.polynomial(body.calc("fmul", ratio, ratio), [2 / _LN2 / (2 * n + 1) for n in range(8)])
    narrow = body.op(f"trunc {LONGS} {exponent} to {WORDS}")
    whole = body.op(f"sitofp {WORDS} {narrow} to {DOUBLES}")
    value = body.op(f"fptrunc {DOUBLES} {body.fma(ratio, series, whole)} to {SINGLES}")
    body.element, body.kind = "float", SINGLES
    value = body.choose(body.test("oeq", "%x", body.const(0.0)), body.const(-math.inf), value)
    value = body.choose(body.test("olt", "%x", body.const(0.0)), body.const(math.nan), value)
    value = body.choose(body.test("oeq", "%x", body.const(math.inf)), body.const(math.inf), value)
    value = body.choose(body.test("uno", "%x", "%x"), "%x", value)
    body.do(f"ret {SINGLES} {value}")
    return body, body.text(SINGLES, key, [f"{SINGLES} %x"])


def circular_text(key: Key) -> tuple[FunctionWriter, str]:
    """Compute `sin` or `cos`: subtract the nearest multiple of pi / 2 in float64, then use a polynomial."""
    body, quarter = Real("double"), 0 if key[0] == "sin" else 1
    x = body.op(f"fpext {SINGLES} %x to {DOUBLES}")
    quarter_turns = body.overloaded("roundeven", DOUBLES, body.calc("fmul", x, body.const(2 / math.pi)))
    minus = body.op(f"fneg {DOUBLES} {quarter_turns}")
    # Cody and Waite's reduction: pi / 2 in two parts, so that the difference keeps its digits.
    r = body.fma(minus, body.const(_PI_HALF[1]), body.fma(minus, body.const(_PI_HALF[0]), x))
    for relation, limit in (("ogt", 1.0), ("olt", -1.0)):  # for a huge number the result only stays in range
        r = body.choose(body.test(relation, r, body.const(limit)), body.const(limit), r)
    square = body.calc("fmul", r, r)
    signs = [(-1) ** n for n in range(7)]
    # Taylor's series: r is at most pi / 4, so the next terms are below 1e-12.
    sine = body.calc("fmul", r, body.polynomial(square, [signs[n] / math.factorial(2 * n + 1) for n in range(7)]))
    cosine = body.polynomial(square, [signs[n] / math.factorial(2 * n) for n in range(7)])
    quadrant = body.calc("fadd", quarter_turns, body.const(quarter))
    quadrant_mod_4 = body.calc(
        "fsub",
        quadrant,
        body.calc(
            "fmul", body.const(4.0), body.overloaded("floor", DOUBLES, body.calc("fmul", quadrant, body.const(0.25)))
        ),
    )
    is_one, is_two, is_three = (body.test("oeq", quadrant_mod_4, body.const(value)) for value in (1.0, 2.0, 3.0))
    value = body.choose(body.op(f"or {WIDE.ints(1)} {is_one}, {is_three}"), cosine, sine)
    negative = body.op(f"or {WIDE.ints(1)} {is_two}, {is_three}")
    value = body.choose(negative, body.op(f"fneg {DOUBLES} {value}"), value)
    if not quarter:  # keeps the sign of a zero
        value = body.choose(body.test("oeq", x, body.const(0.0)), x, value)
    body.do(f"ret {SINGLES} {body.op(f'fptrunc {DOUBLES} {value} to {SINGLES}')}")
    return body, body.text(SINGLES, key, [f"{SINGLES} %x"])


def tanh_text(key: Key) -> tuple[FunctionWriter, str]:
    """Compute (1 - e) / (1 + e) with e = exp(-2 |x|) in float64; a tiny x is returned unchanged."""
    body = Real("double")
    x = body.op(f"fpext {SINGLES} %x to {DOUBLES}")
    size = body.overloaded("fabs", DOUBLES, x)
    # tanh(20) is 1 in float32; an exponent far below would leave the range of `power_of_two`.
    bounded = body.choose(body.test("ogt", size, body.const(20.0)), body.const(20.0), size)
    power = body.calc("fmul", bounded, body.const(-2 / _LN2))
    nearest = body.overloaded("roundeven", DOUBLES, power)
    part = body.polynomial(body.calc("fsub", power, nearest), [_LN2**n / math.factorial(n) for n in range(12)])
    e = body.calc("fmul", part, body.power_of_two(body.whole(nearest)))
    value = body.calc("fdiv", body.calc("fsub", body.const(1.0), e), body.calc("fadd", body.const(1.0), e))
    # There the difference of 1 and e would cancel, and tanh(x) is x up to 4e-9.
    value = body.choose(body.test("olt", size, body.const(1e-4)), size, value)
    value = body.overloaded("copysign", DOUBLES, value, x)
    value = body.choose(body.test("uno", x, x), x, value)
    body.do(f"ret {SINGLES} {body.op(f'fptrunc {DOUBLES} {value} to {SINGLES}')}")
    return body, body.text(SINGLES, key, [f"{SINGLES} %x"])


def from_eight_text(key: Key) -> tuple[FunctionWriter, str]:
    """`from_eight_<kind>(pairs)`: convert two 8-bit floats to two halves, exactly."""
    body = FunctionWriter()
    kind, shorts = str(key[1]), WIDE.ints(16)
    pair = body.op(f"zext {shorts} %pair to {WORDS}")
    if kind == "e5m2":  # the byte is the upper half of a float16
        upper = body.op(f"shl {WORDS} {body.op(f'and {WORDS} {pair}, {WIDE.const(32, 0xFF00)}')}, {WIDE.const(32, 16)}")
        lower = body.op(f"shl {WORDS} {body.op(f'and {WORDS} {pair}, {WIDE.const(32, 0xFF)}')}, {WIDE.const(32, 8)}")
    else:
        upper, lower = (_from_e4m3(body, pair, shift) for shift in (8, 0))
        upper = body.op(f"shl {WORDS} {upper}, {WIDE.const(32, 16)}")
    body.do(f"ret {WORDS} {body.op(f'or {WORDS} {upper}, {lower}')}")
    return body, body.text(WORDS, key, [f"{shorts} %pair"])


def _from_e4m3(body: FunctionWriter, pair: str, shift: int) -> str:
    """Convert a byte to the bits of a half: shift exponent and mantissa to their places, then correct the bias."""
    byte = body.op(f"lshr {WORDS} {pair}, {WIDE.const(32, shift)}")
    size = body.op(f"and {WORDS} {byte}, {WIDE.const(32, 0x7F)}")
    bits = body.op(f"shl {WORDS} {size}, {WIDE.const(32, 20)}")
    value = body.op(f"bitcast {WORDS} {bits} to {SINGLES}")
    # The exponent's bias is 7 in e4m3 and 127 in float32; subnormals become normal by the product.
    value = body.op(f"fmul {SINGLES} {value}, {WIDE.real('float', 2.0**120)}")
    half = floats.narrow(body, value, "float", "half", WIDE)
    half = body.resized(body.op(f"bitcast {WIDE.type('half')} {half} to {WIDE.ints(16)}"), 16, 32, WIDE)
    # e4m3 has one NaN of each sign and no infinity.
    is_nan = body.op(f"icmp eq {WORDS} {size}, {WIDE.const(32, 0x7F)}")
    half = body.op(f"select {WIDE.ints(1)} {is_nan}, {WORDS} {WIDE.const(32, 0x7FFF)}, {WORDS} {half}")
    sign = body.op(f"shl {WORDS} {body.op(f'and {WORDS} {byte}, {WIDE.const(32, 0x80)}')}, {WIDE.const(32, 8)}")
    return body.op(f"or {WORDS} {half}, {sign}")


def to_eight_text(key: Key) -> tuple[FunctionWriter, str]:
    """`to_eight_<kind>(bits of float32)`: round to the nearest 8-bit float, ties to even; saturates at the largest."""
    body = FunctionWriter()
    mantissa, bias, largest = (3, 7, 448.0) if key[1] == "e4m3" else (2, 15, 57344.0)
    size = body.op(f"and {WORDS} %bits, {WIDE.const(32, 0x7FFFFFFF)}")
    is_nan = body.op(f"icmp ugt {WORDS} {size}, {WIDE.const(32, 0x7F800000)}")
    value = body.op(f"bitcast {WORDS} {size} to {SINGLES}")
    value = body.overloaded("minnum", SINGLES, value, WIDE.real("float", largest))
    size = body.op(f"bitcast {SINGLES} {value} to {WORDS}")
    lowest = body.op(
        f"and {WORDS} {body.op(f'lshr {WORDS} {size}, {WIDE.const(32, 23 - mantissa)}')}, {WIDE.const(32, 1)}"
    )
    rounded = body.op(
        f"add {WORDS} {size}, {body.op(f'add {WORDS} {lowest}, {WIDE.const(32, (1 << 22 - mantissa) - 1)}')}"
    )
    rebased = body.op(f"sub {WORDS} {rounded}, {WIDE.const(32, 127 - bias << 23)}")
    normal = body.op(f"lshr {WORDS} {rebased}, {WIDE.const(32, 23 - mantissa)}")
    scaled = body.op(f"fmul {SINGLES} {value}, {WIDE.real('float', 2.0 ** (bias - 1 + mantissa))}")
    # Adding 1.5 * 2^23 rounds a small number to a whole one, ties to even: the bits of a subnormal.
    aligned_sum = body.op(f"fadd {SINGLES} {scaled}, {WIDE.real('float', _MAGIC['float'])}")
    tiny = body.op(f"and {WORDS} {body.op(f'bitcast {SINGLES} {aligned_sum} to {WORDS}')}, {WIDE.const(32, 0xFF)}")
    is_tiny = body.op(f"fcmp olt {SINGLES} {value}, {WIDE.real('float', 2.0 ** (1 - bias))}")
    byte = body.op(f"select {WIDE.ints(1)} {is_tiny}, {WORDS} {tiny}, {WORDS} {normal}")
    byte = body.op(f"select {WIDE.ints(1)} {is_nan}, {WORDS} {WIDE.const(32, 0x7F)}, {WORDS} {byte}")
    sign = body.op(f"and {WORDS} {body.op(f'lshr {WORDS} %bits, {WIDE.const(32, 24)}')}, {WIDE.const(32, 0x80)}")
    body.do(f"ret {WORDS} {body.op(f'or {WORDS} {byte}, {sign}')}")
    return body, body.text(WORDS, key, [f"{WORDS} %bits"])


def fma_text(key: Key) -> tuple[FunctionWriter, str]:
    """`fma_<element>_<lanes>(a, b, c)`: fused multiply-add of half precision, rounded once."""
    body, element, form = FunctionWriter(), str(key[1]), ValueForm(int(key[2]))
    kind = form.type(element)
    total = floats.in_wider(body, "fma", element, form, ["%a", "%b", "%c"], knows_nan=False)
    body.do(f"ret {kind} {total}")
    return body, body.text(kind, key, tuple(f"{kind} %{name}" for name in "abc"))
