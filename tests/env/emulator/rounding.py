# SPDX-License-Identifier: Apache-2.0
"""Binary floats by exact arithmetic: what their bits mean, and rounding in each direction."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary interchange format: bits of exponent and mantissa."""

    exponent: int
    mantissa: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @property
    def infinity(self) -> int:
        return (1 << self.exponent) - 1 << self.mantissa

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    def value(self, bits: int) -> Fraction | float:
        """A number, or a float that is infinite or none."""
        size = bits & self.sign - 1
        if size >= self.infinity:
            return math.nan if size > self.infinity else -math.inf if bits & self.sign else math.inf
        exponent, mantissa = divmod(size, 1 << self.mantissa)
        mantissa += (1 << self.mantissa) if exponent else 0
        number = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)
        return -number if bits & self.sign else number

    def rounded(self, number: Fraction, how: str = "rn", zero: int = 0) -> int:
        """Bits of a number; `zero` is the sign bit of an exact zero."""
        number = Fraction(number)
        if not number:
            return zero
        is_negative, size = number < 0, abs(number)
        exponent = max(_floor_log2(size), 1 - self.bias)
        unit = Fraction(2) ** (exponent - self.mantissa)
        whole, rest = divmod(size, unit)
        up = {"rz": False, "rm": is_negative, "rp": not is_negative}.get(how)
        if up is None:
            up = rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
        whole += bool(rest) and up
        bits = max(0, exponent - 1 + self.bias << self.mantissa) + int(whole)
        if bits >= self.infinity:
            towards = {"rn": True, "rz": False, "rm": is_negative, "rp": not is_negative}[how]
            bits = self.infinity if towards else self.infinity - 1
        return bits | (self.sign if is_negative else 0)

    def flushed(self, bits: int) -> int:
        return bits & self.sign if not bits & self.infinity else bits

    def is_nan(self, bits: int) -> bool:
        return bits & self.sign - 1 > self.infinity


def _floor_log2(size: Fraction) -> int:
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


F16, BF16, F32, F64 = Format(5, 10), Format(8, 7), Format(8, 23), Format(11, 52)
TF32 = Format(8, 10)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
EIGHT_BITS = {"e4m3": 0x7E, "e5m2": 0x7B}
"""Formats of 8 bits, with the byte of the largest number of each."""


@functools.cache
def eight(kind: str, byte: int) -> Fraction | float | None:
    """The number of a byte; None for NaN. An e4m3 is never infinite."""
    size = byte & 0x7F
    if size > EIGHT_BITS[kind] + (kind == "e5m2"):
        return None
    if kind == "e5m2":
        return Format(5, 2).value(byte)
    exponent, mantissa = divmod(size, 8)
    number = Fraction(mantissa + 8 * bool(exponent)) * Fraction(2) ** (max(1, exponent) - 10)
    return -number if byte & 0x80 else number


def calculated(name: str, form: Format, operands: list[int], how: str = "rn") -> int | None:
    """Bits of a sum, difference, product, quotient or fused product; None for NaN."""
    if name == "sub":
        return calculated("add", form, [operands[0], operands[1] ^ form.sign], how)
    values = [form.value(item) for item in operands]
    signs = [bool(item & form.sign) for item in operands]
    if any(isinstance(item, float) for item in values):
        return _special(name, form, values, signs)
    product_sign = form.sign if signs[0] != signs[1] else 0
    if name == "mul":
        return form.rounded(values[0] * values[1], how, product_sign)
    if name == "div" and not values[1]:
        return form.infinity | product_sign if values[0] else None
    if name == "div":
        return form.rounded(values[0] / values[1], how, product_sign)
    left, right = (values[0], values[1]) if name == "add" else (values[0] * values[1], values[2])
    first = signs[0] if name == "add" else bool(product_sign)
    is_minus = first or signs[-1] if how == "rm" else first and signs[-1]
    return form.rounded(left + right, how, form.sign if is_minus else 0)


def _special(name: str, form: Format, values: list, signs: list[bool]) -> int | None:
    """Results of infinities and NaN: as those of floats, whose sizes do not matter."""
    ones = [math.copysign(bool(item), -1 if sign else 1) for item, sign in zip(values, signs, strict=True)]
    x, y, *z = [item if isinstance(item, float) else one for item, one in zip(values, ones, strict=True)]
    if name == "div":
        result = x / y if y else x * math.copysign(1, y)  # infinite, or none
    else:
        result = {"mul": lambda: x * y, "add": lambda: x + y, "fma": lambda: x * y + z[0]}[name]()
    if math.isnan(result):
        return None
    sign = form.sign if math.copysign(1, result) < 0 else 0
    return sign | form.infinity if math.isinf(result) else sign  # a number divided by infinity is zero
