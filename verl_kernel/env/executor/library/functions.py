# SPDX-License-Identifier: Apache-2.0
"""Functions that a GPU approximates, and 8-bit floats: sequences of IEEE operations, identical on every machine.

Errors allowed by the PTX ISA: ex2 2 ulp; lg2 2^-22 between 1/2 and 2, relative elsewhere; sin and cos 2^-20.5 between
-pi and pi; tanh 2^-11 relative. All of these errors are below two units in float32's last place here.
"""

from __future__ import annotations

import math

from verl_kernel.env.executor.library.context import Function
from verl_kernel.env.executor.lowering import floats
from verl_kernel.env.executor.lowering.writer import WIDE, Form, Key, mangled, real

# Selects bytes with a selector known only at run time (PTX ISA, "prmt").


def permute_text(key: Key) -> tuple[Function, str]:
    """`permute_<lanes>(low, high, selector)`: select four of eight bytes; a selector's top bit replicates the sign."""
    made, form = Function(), Form(int(key[1]))
    words, longs = form.ints(32), form.ints(64)
    low, high = (made.resized(word, 32, 64, form) for word in ("%low", "%high"))
    both = made.op(f"or {longs} {low}, {made.op(f'shl {longs} {high}, {form.const(64, 32)}')}")
    value = _chosen(made, both, 0, form)
    for place in range(1, 4):
        value = made.op(f"or {words} {value}, {_chosen(made, both, place, form)}")
    made.do(f"ret {words} {value}")
    return made, made.text(words, key, tuple(f"{words} %{name}" for name in ("low", "high", "selector")))


def _chosen(made: Function, both: str, place: int, form: Form) -> str:
    """Return one byte of the result, shifted to its place."""
    words, longs = form.ints(32), form.ints(64)
    nibble = made.op(f"lshr {words} %selector, {form.const(32, 4 * place)}")
    shift_by = made.op(f"shl {words} {made.op(f'and {words} {nibble}, {form.const(32, 7)}')}, {form.const(32, 3)}")
    byte = made.op(f"lshr {longs} {both}, {made.resized(shift_by, 32, 64, form)}")
    byte = made.op(f"shl {words} {made.resized(byte, 64, 32, form)}, {form.const(32, 24)}")
    spread = made.op(f"ashr {words} {byte}, {form.const(32, 31)}")
    plain = made.op(f"lshr {words} {byte}, {form.const(32, 24)}")
    top = made.op(f"and {words} {nibble}, {form.const(32, 8)}")
    wants_sign = made.op(f"icmp ne {words} {top}, {form.const(32, 0)}")
    chosen = made.op(f"select {form.ints(1)} {wants_sign}, {words} {spread}, {words} {plain}")
    chosen = made.op(f"and {words} {chosen}, {form.const(32, 255)}")
    return made.op(f"shl {words} {chosen}, {form.const(32, 8 * place)}")


# Arithmetic rounded towards zero, down or up: the host's own, in another mode.


_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""LLVM's numbers of the rounding modes ("llvm.set.rounding")."""
_OPERATIONS = {
    "add": ("fadd", 2), "sub": ("fsub", 2), "mul": ("fmul", 2), "div": ("fdiv", 2), "fma": ("fma", 3),
    "sqrt": ("sqrt", 1),
}  # fmt: skip


def directed_text(key: Key) -> tuple[Function, str]:
    """`directed_<operation>_<rounding>_<element>_<lanes>_<operands>(a...)`; the mode is to nearest again in the end.

    The operands' element type is another one for a conversion (`sitofp`, `uitofp`, `fptrunc`).
    """
    made, form, rounding = Function(), Form(int(key[4])), _MODES[str(key[2])]
    kind = form.type(str(key[3]))
    name, count = _OPERATIONS.get(str(key[1]), (str(key[1]), 1))
    source = form.type(str(key[5]))
    given = [(source, f"%a{number}") for number in range(count)]
    marks = [("metadata", f'!"{mark}"') for mark in ("round.dynamic", "fpexcept.strict")]
    made.do(made.called("set.rounding", "void", [("i32", str(rounding))]) + " strictfp")
    types = mangled(kind) if source == kind else f"{mangled(kind)}.{mangled(source)}"
    call = made.called(f"experimental.constrained.{name}.{types}", kind, [*given, *marks])
    value = made.op(f"{call} strictfp")
    made.do(made.called("set.rounding", "void", [("i32", str(_MODES["rn"]))]) + " strictfp")
    made.do(f"ret {kind} {value}")
    return made, made.text(kind, key, [" ".join(one) for one in given], "nounwind strictfp")


SINGLES, DOUBLES, WORDS, LONGS = WIDE.type("float"), WIDE.type("double"), WIDE.ints(32), WIDE.ints(64)
_LN2 = math.log(2)
_PI_HALF = (1.5707963267948966, 6.123233995736766e-17)
"""Half of pi, and the remainder that float64 cannot represent."""
_MAGIC = {"float": 12582912.0, "double": 6755399441055744.0}
"""1.5 times 2^23 and 2^52: adding one to a small whole number leaves that number in the lowest bits."""


class Real(Function):
    """Writes arithmetic on vectors of one float type."""

    def __init__(self, element: str) -> None:
        super().__init__()
        self.element, self.kind = element, WIDE.type(element)

    def const(self, value: float) -> str:
        """Return a vector constant."""
        return f"splat ({self.element} {real(self.element, value)})"

    def calc(self, code: str, left: str, right: str) -> str:
        """Compute `fadd`, `fsub`, `fmul` or `fdiv`."""
        return self.op(f"{code} {self.kind} {left}, {right}")

    def fma(self, left: str, right: str, addend: str) -> str:
        """Compute a fused multiply-add."""
        return self.overloaded("fma", self.kind, left, right, addend)

    def polynomial(self, x: str, coefficients: list[float]) -> str:
        """Evaluate a polynomial; coefficients begin with the constant term."""
        value = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.const(coefficient))
        return value

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Select one of two values per lane."""
        return self.op(f"select {WIDE.ints(1)} {condition}, {self.kind} {yes}, {self.kind} {no}")

    def test(self, relation: str, left: str, right: str) -> str:
        """Compare two values per lane."""
        return self.op(f"fcmp {relation} {self.kind} {left}, {right}")

    def whole(self, value: str) -> str:
        """Convert a small whole number to an integer of the same width."""
        kind = WORDS if self.element == "float" else LONGS
        moved = self.op(f"bitcast {self.kind} {self.calc('fadd', value, self.const(_MAGIC[self.element]))} to {kind}")
        base = self.op(f"bitcast {self.kind} {self.const(_MAGIC[self.element])} to {kind}")
        return self.op(f"sub {kind} {moved}, {base}")

    def power_of_two(self, exponent: str) -> str:
        """Compute 2 to an integer power within the range of normal numbers."""
        bits, bias, mantissa = (32, 127, 23) if self.element == "float" else (64, 1023, 52)
        kind = WIDE.ints(bits)
        biased = self.op(f"add {kind} {exponent}, {WIDE.const(bits, bias)}")
        return self.op(f"bitcast {kind} {self.op(f'shl {kind} {biased}, {WIDE.const(bits, mantissa)}')} to {self.kind}")


def ex2_text(key: Key) -> tuple[Function, str]:
    """Compute 2 to the power of x: the whole part sets the exponent, a Taylor polynomial covers the rest."""
    made = Real("float")
    x = made.choose(made.test("ogt", "%x", made.const(130.0)), made.const(130.0), "%x")
    x = made.choose(made.test("olt", x, made.const(-160.0)), made.const(-160.0), x)
    nearest = made.overloaded("roundeven", SINGLES, x)
    value = made.polynomial(made.calc("fsub", x, nearest), [_LN2**n / math.factorial(n) for n in range(8)])
    exponent = made.whole(nearest)
    half = made.op(f"ashr {WORDS} {exponent}, {WIDE.const(32, 1)}")
    for part in (half, made.op(f"sub {WORDS} {exponent}, {half}")):  # in two steps, as 2^-149 would be out of range
        value = made.calc("fmul", value, made.power_of_two(part))
    made.do(f"ret {SINGLES} {value}")
    return made, made.text(SINGLES, key, [f"{SINGLES} %x"])


def lg2_text(key: Key) -> tuple[Function, str]:
    """Compute the binary logarithm: the exponent and, for m between 0.7 and 1.42, 2 atanh((m - 1) / (m + 1))."""
    made = Real("double")
    wide = made.op(f"fpext {SINGLES} %x to {DOUBLES}")
    bits = made.op(f"bitcast {DOUBLES} {wide} to {LONGS}")
    # the exponent of m / 0.707 is that of m, less one if m is small
    moved = made.op(f"sub {LONGS} {bits}, {WIDE.const(64, 0x3FE6A09E667F3BCD)}")
    exponent = made.op(f"ashr {LONGS} {moved}, {WIDE.const(64, 52)}")
    mantissa = made.op(f"sub {LONGS} {bits}, {made.op(f'shl {LONGS} {exponent}, {WIDE.const(64, 52)}')}")
    m = made.op(f"bitcast {LONGS} {mantissa} to {DOUBLES}")
    ratio = made.calc("fdiv", made.calc("fsub", m, made.const(1.0)), made.calc("fadd", m, made.const(1.0)))
    series = made.polynomial(made.calc("fmul", ratio, ratio), [2 / _LN2 / (2 * n + 1) for n in range(8)])
    narrow = made.op(f"trunc {LONGS} {exponent} to {WORDS}")
    whole = made.op(f"sitofp {WORDS} {narrow} to {DOUBLES}")
    value = made.op(f"fptrunc {DOUBLES} {made.fma(ratio, series, whole)} to {SINGLES}")
    made.element, made.kind = "float", SINGLES
    value = made.choose(made.test("oeq", "%x", made.const(0.0)), made.const(-math.inf), value)
    value = made.choose(made.test("olt", "%x", made.const(0.0)), made.const(math.nan), value)
    value = made.choose(made.test("oeq", "%x", made.const(math.inf)), made.const(math.inf), value)
    value = made.choose(made.test("uno", "%x", "%x"), "%x", value)
    made.do(f"ret {SINGLES} {value}")
    return made, made.text(SINGLES, key, [f"{SINGLES} %x"])


def circular_text(key: Key) -> tuple[Function, str]:
    """Compute `sin` or `cos`: subtract the nearest multiple of pi / 2 in float64, then use a polynomial."""
    made, quarter = Real("double"), 0 if key[0] == "sin" else 1
    x = made.op(f"fpext {SINGLES} %x to {DOUBLES}")
    turns = made.overloaded("roundeven", DOUBLES, made.calc("fmul", x, made.const(2 / math.pi)))
    minus = made.op(f"fneg {DOUBLES} {turns}")
    r = made.fma(minus, made.const(_PI_HALF[1]), made.fma(minus, made.const(_PI_HALF[0]), x))
    for relation, most in (("ogt", 1.0), ("olt", -1.0)):  # for a huge number the result only stays in range
        r = made.choose(made.test(relation, r, made.const(most)), made.const(most), r)
    square = made.calc("fmul", r, r)
    signs = [(-1) ** n for n in range(7)]
    sine = made.calc("fmul", r, made.polynomial(square, [signs[n] / math.factorial(2 * n + 1) for n in range(7)]))
    cosine = made.polynomial(square, [signs[n] / math.factorial(2 * n) for n in range(7)])
    place = made.calc("fadd", turns, made.const(quarter))
    rest = made.calc(
        "fsub",
        place,
        made.calc(
            "fmul", made.const(4.0), made.overloaded("floor", DOUBLES, made.calc("fmul", place, made.const(0.25)))
        ),
    )
    is_one, is_two, is_three = (made.test("oeq", rest, made.const(value)) for value in (1.0, 2.0, 3.0))
    value = made.choose(made.op(f"or {WIDE.ints(1)} {is_one}, {is_three}"), cosine, sine)
    negative = made.op(f"or {WIDE.ints(1)} {is_two}, {is_three}")
    value = made.choose(negative, made.op(f"fneg {DOUBLES} {value}"), value)
    if not quarter:  # keeps the sign of a zero
        value = made.choose(made.test("oeq", x, made.const(0.0)), x, value)
    made.do(f"ret {SINGLES} {made.op(f'fptrunc {DOUBLES} {value} to {SINGLES}')}")
    return made, made.text(SINGLES, key, [f"{SINGLES} %x"])


def tanh_text(key: Key) -> tuple[Function, str]:
    """Compute (1 - e) / (1 + e) with e = exp(-2 |x|) in float64; a tiny x is returned unchanged."""
    made = Real("double")
    x = made.op(f"fpext {SINGLES} %x to {DOUBLES}")
    size = made.overloaded("fabs", DOUBLES, x)
    bounded = made.choose(made.test("ogt", size, made.const(20.0)), made.const(20.0), size)
    power = made.calc("fmul", bounded, made.const(-2 / _LN2))
    nearest = made.overloaded("roundeven", DOUBLES, power)
    part = made.polynomial(made.calc("fsub", power, nearest), [_LN2**n / math.factorial(n) for n in range(12)])
    e = made.calc("fmul", part, made.power_of_two(made.whole(nearest)))
    value = made.calc("fdiv", made.calc("fsub", made.const(1.0), e), made.calc("fadd", made.const(1.0), e))
    value = made.choose(made.test("olt", size, made.const(1e-4)), size, value)
    value = made.overloaded("copysign", DOUBLES, value, x)
    value = made.choose(made.test("uno", x, x), x, value)
    made.do(f"ret {SINGLES} {made.op(f'fptrunc {DOUBLES} {value} to {SINGLES}')}")
    return made, made.text(SINGLES, key, [f"{SINGLES} %x"])


def from_eight_text(key: Key) -> tuple[Function, str]:
    """`from_eight_<kind>(pairs)`: convert two 8-bit floats to two halves, exactly."""
    made = Function()
    kind, shorts = str(key[1]), WIDE.ints(16)
    pair = made.op(f"zext {shorts} %pair to {WORDS}")
    if kind == "e5m2":  # the byte is the upper half of a float16
        upper = made.op(f"shl {WORDS} {made.op(f'and {WORDS} {pair}, {WIDE.const(32, 0xFF00)}')}, {WIDE.const(32, 16)}")
        lower = made.op(f"shl {WORDS} {made.op(f'and {WORDS} {pair}, {WIDE.const(32, 0xFF)}')}, {WIDE.const(32, 8)}")
    else:
        upper, lower = (_from_e4m3(made, pair, shift) for shift in (8, 0))
        upper = made.op(f"shl {WORDS} {upper}, {WIDE.const(32, 16)}")
    made.do(f"ret {WORDS} {made.op(f'or {WORDS} {upper}, {lower}')}")
    return made, made.text(WORDS, key, [f"{shorts} %pair"])


def _from_e4m3(made: Function, pair: str, shift: int) -> str:
    """Convert a byte to the bits of a half: shift exponent and mantissa to their places, then correct the bias."""
    byte = made.op(f"lshr {WORDS} {pair}, {WIDE.const(32, shift)}")
    size = made.op(f"and {WORDS} {byte}, {WIDE.const(32, 0x7F)}")
    bits = made.op(f"shl {WORDS} {size}, {WIDE.const(32, 20)}")
    value = made.op(f"bitcast {WORDS} {bits} to {SINGLES}")
    value = made.op(f"fmul {SINGLES} {value}, {WIDE.real('float', 2.0**120)}")
    half = floats.narrow(made, value, "float", "half", WIDE)
    half = made.resized(made.op(f"bitcast {WIDE.type('half')} {half} to {WIDE.ints(16)}"), 16, 32, WIDE)
    is_nan = made.op(f"icmp eq {WORDS} {size}, {WIDE.const(32, 0x7F)}")
    half = made.op(f"select {WIDE.ints(1)} {is_nan}, {WORDS} {WIDE.const(32, 0x7FFF)}, {WORDS} {half}")
    sign = made.op(f"shl {WORDS} {made.op(f'and {WORDS} {byte}, {WIDE.const(32, 0x80)}')}, {WIDE.const(32, 8)}")
    return made.op(f"or {WORDS} {half}, {sign}")


def to_eight_text(key: Key) -> tuple[Function, str]:
    """`to_eight_<kind>(bits of float32)`: round to the nearest 8-bit float, ties to even; saturates at the largest."""
    made = Function()
    mantissa, bias, largest = (3, 7, 448.0) if key[1] == "e4m3" else (2, 15, 57344.0)
    size = made.op(f"and {WORDS} %bits, {WIDE.const(32, 0x7FFFFFFF)}")
    is_nan = made.op(f"icmp ugt {WORDS} {size}, {WIDE.const(32, 0x7F800000)}")
    value = made.op(f"bitcast {WORDS} {size} to {SINGLES}")
    value = made.overloaded("minnum", SINGLES, value, WIDE.real("float", largest))
    size = made.op(f"bitcast {SINGLES} {value} to {WORDS}")
    lowest = made.op(
        f"and {WORDS} {made.op(f'lshr {WORDS} {size}, {WIDE.const(32, 23 - mantissa)}')}, {WIDE.const(32, 1)}"
    )
    rounded = made.op(
        f"add {WORDS} {size}, {made.op(f'add {WORDS} {lowest}, {WIDE.const(32, (1 << 22 - mantissa) - 1)}')}"
    )
    rebased = made.op(f"sub {WORDS} {rounded}, {WIDE.const(32, 127 - bias << 23)}")
    normal = made.op(f"lshr {WORDS} {rebased}, {WIDE.const(32, 23 - mantissa)}")
    scaled = made.op(f"fmul {SINGLES} {value}, {WIDE.real('float', 2.0 ** (bias - 1 + mantissa))}")
    moved = made.op(f"fadd {SINGLES} {scaled}, {WIDE.real('float', _MAGIC['float'])}")
    tiny = made.op(f"and {WORDS} {made.op(f'bitcast {SINGLES} {moved} to {WORDS}')}, {WIDE.const(32, 0xFF)}")
    is_tiny = made.op(f"fcmp olt {SINGLES} {value}, {WIDE.real('float', 2.0 ** (1 - bias))}")
    byte = made.op(f"select {WIDE.ints(1)} {is_tiny}, {WORDS} {tiny}, {WORDS} {normal}")
    byte = made.op(f"select {WIDE.ints(1)} {is_nan}, {WORDS} {WIDE.const(32, 0x7F)}, {WORDS} {byte}")
    sign = made.op(f"and {WORDS} {made.op(f'lshr {WORDS} %bits, {WIDE.const(32, 24)}')}, {WIDE.const(32, 0x80)}")
    made.do(f"ret {WORDS} {made.op(f'or {WORDS} {byte}, {sign}')}")
    return made, made.text(WORDS, key, [f"{WORDS} %bits"])


def fma_text(key: Key) -> tuple[Function, str]:
    """`fma_<element>_<lanes>(a, b, c)`: fused multiply-add of half precision, rounded once."""
    made, element, form = Function(), str(key[1]), Form(int(key[2]))
    kind = form.type(element)
    made.do(f"ret {kind} {floats.in_wider(made, 'fma', element, form, ['%a', '%b', '%c'], False)}")
    return made, made.text(kind, key, tuple(f"{kind} %{name}" for name in "abc"))
