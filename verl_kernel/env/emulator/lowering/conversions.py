# SPDX-License-Identifier: Apache-2.0
"""Lowers conversions between types (PTX ISA, "cvt")."""

from __future__ import annotations

from verl_kernel.env.emulator.lowering.body import Body
from verl_kernel.env.emulator.lowering.floats import (
    bfloat_bits,
    directed,
    flush,
    narrow,
    rectified,
    saturated,
    to_odd,
    widen,
)
from verl_kernel.env.emulator.lowering.integers import is_signed
from verl_kernel.env.emulator.lowering.opcodes import Modifiers, opcode
from verl_kernel.env.emulator.lowering.writer import FLOATS, WIDE, ValueForm, mangled
from verl_kernel.env.emulator.ptx.program import BITS, Register

_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
"""LLVM's functions that round to a whole number, by PTX's modifiers."""
_EIGHT = ("e4m3x2", "e5m2x2")
"""Pairs of 8-bit floats."""


@opcode("cvt")
def convert(body: Body, modifiers: Modifiers) -> None:
    """Lower `cvt` between any types, with rounding, flushing and saturation."""
    source, target = modifiers.type(), modifiers.type()
    if target in ("f16x2", "bf16x2") and source == "f32":
        _pack(body, modifiers, target)
    elif target in _EIGHT or source in _EIGHT:
        _eight_bits(body, modifiers, source, target)
    elif target == "tf32":
        _tensor_float(body, modifiers)
    elif source in FLOATS and target in FLOATS:
        _float_to_float(body, modifiers, source, target)
    elif source in FLOATS:
        _float_to_integer(body, modifiers, source, target)
    elif target in FLOATS:
        _integer_to_float(body, modifiers, source, target)
    else:
        _integer_to_integer(body, modifiers, source, target)


def _pack(body: Body, modifiers: Modifiers, target: str) -> None:
    """Pack two float32 as a pair of halves; the first operand is the upper half."""
    rounding, clips, is_flushed = modifiers.need("rn", "rz"), modifiers.has("relu"), modifiers.has("ftz")
    element = FLOATS[target[:-2]]
    halves = []
    for operand in body.item.operands[1:3]:
        value = body.read_float(operand, "f32", WIDE)
        if is_flushed:
            value = flush(body, value, WIDE)
        if clips:
            value = rectified(body, value, "float", WIDE)
        halves.append(body.resized(_half_bits(body, value, element, rounding, WIDE), 16, 32, WIDE))
    upper = body.op(f"shl {WIDE.ints(32)} {halves[0]}, {WIDE.const(32, 16)}")
    body.write(body.item.operands[0], body.op(f"or {WIDE.ints(32)} {upper}, {halves[1]}"), 32, WIDE)


def _half_bits(body: Body, value: str, element: str, rounding: str, form: ValueForm) -> str:
    """Return the bits of a float32 rounded to half precision."""
    # LLVM's conversions round to nearest.
    if rounding == "rz":
        return _truncated_half(body, value, element, form)
    if element == "bfloat":
        return bfloat_bits(body, value, form)
    return body.op(f"bitcast {form.type('half')} {narrow(body, value, 'float', 'half', form)} to {form.ints(16)}")


def _truncated_half(body: Body, value: str, element: str, form: ValueForm) -> str:
    """Round towards zero: return one step less than the nearest value if that is larger in magnitude."""
    if element == "bfloat":
        words = form.ints(32)
        bits = body.op(f"bitcast {form.type('float')} {value} to {words}")
        is_nan = body.op(f"fcmp uno {form.type('float')} {value}, {value}")
        # Cutting off bits could turn a NaN into infinity.
        bits = body.op(f"select {form.ints(1)} {is_nan}, {words} {form.const(32, 0x7FFF0000)}, {words} {bits}")
        return body.resized(body.op(f"lshr {words} {bits}, {form.const(32, 16)}"), 32, 16, form)
    floats, shorts = form.type("float"), form.ints(16)
    nearest = narrow(body, value, "float", "half", form)
    back = body.op(f"fpext {form.type('half')} {nearest} to {floats}")
    sizes = [body.overloaded("fabs", floats, item) for item in (back, value)]
    is_larger = body.op(f"fcmp ogt {floats} {sizes[0]}, {sizes[1]}")
    bits = body.op(f"bitcast {form.type('half')} {nearest} to {shorts}")
    lower = body.op(f"sub {shorts} {bits}, {form.const(16, 1)}")
    return body.op(f"select {form.ints(1)} {is_larger}, {shorts} {lower}, {shorts} {bits}")


def _tensor_float(body: Body, modifiers: Modifiers) -> None:
    """Round float32 to TF32: `rna` to nearest, ties away from zero; `rn` ties to even."""
    rounding, form = modifiers.need("rna", "rn"), body.form()
    saturates, words = modifiers.has("satfinite"), form.ints(32)
    bits = body.read(body.item.operands[1], 32, form)
    half = form.const(32, 0x1000)
    if rounding == "rn":
        # Half a step less one, plus the lowest bit that stays: a tie goes to the even number.
        lowest = body.op(f"and {words} {body.op(f'lshr {words} {bits}, {form.const(32, 13)}')}, {form.const(32, 1)}")
        half = body.op(f"add {words} {lowest}, {form.const(32, 0xFFF)}")
    rounded = body.op(f"and {words} {body.op(f'add {words} {bits}, {half}')}, {form.const(32, 0xFFFFE000)}")
    if saturates:
        rounded = _finite(body, rounded, form)
    magnitude = body.op(f"and {words} {bits}, {form.const(32, 0x7FFFFFFF)}")
    is_nan = body.op(f"icmp ugt {words} {magnitude}, {form.const(32, 0x7F800000)}")
    chosen = body.op(f"select {form.ints(1)} {is_nan}, {words} {form.const(32, 0x7FFFFFFF)}, {words} {rounded}")
    body.write(body.item.operands[0], chosen, 32, form)


def _finite(body: Body, bits: str, form: ValueForm) -> str:
    """Replace infinity in a TF32 by the largest finite number."""
    words = form.ints(32)
    size = body.op(f"and {words} {bits}, {form.const(32, 0x7FFFFFFF)}")
    size = body.overloaded("umin", words, size, form.const(32, 0x7F7FE000))
    return body.op(f"or {words} {size}, {body.op(f'and {words} {bits}, {form.const(32, 0x80000000)}')}")


def _eight_bits(body: Body, modifiers: Modifiers, source: str, target: str) -> None:
    """Convert pairs of float32 or halves to 8-bit floats, and 8-bit floats to halves."""
    modifiers.need("rn")
    clips = modifiers.has("relu")
    if clips:
        raise body.item.unknown()
    words, shorts = WIDE.ints(32), WIDE.ints(16)
    if source in _EIGHT:
        if target != "f16x2":
            raise body.item.unknown()
        pair = body.read(body.item.operands[1], 16, WIDE)
        value = body.op(body.call(words, ("from_eight", source[:-2]), f"{shorts} {pair}"))
        body.write(body.item.operands[0], value, 32, WIDE)
        return
    # PTX ISA, "cvt": conversions to 8-bit floats need it.
    modifiers.need("satfinite")
    if source == "f32":
        upper, lower = (body.read(item, 32, WIDE) for item in body.item.operands[1:3])
    elif source == "f16x2":
        pair = body.read(body.item.operands[1], 32, WIDE)
        upper, lower = (_half_as_float(body, pair, shift) for shift in (16, 0))
    else:
        raise body.item.unknown()
    bytes_ = [body.op(body.call(words, ("to_eight", target[:-2]), f"{words} {item}")) for item in (upper, lower)]
    pair = body.op(f"or {words} {body.op(f'shl {words} {bytes_[0]}, {WIDE.const(32, 8)}')}, {bytes_[1]}")
    body.write(body.item.operands[0], body.resized(pair, 32, 16, WIDE), 16, WIDE)


def _half_as_float(body: Body, pair: str, shift: int) -> str:
    """Convert the bits of one of two packed halves to those of a float32."""
    words = WIDE.ints(32)
    bits = body.resized(body.op(f"lshr {words} {pair}, {WIDE.const(32, shift)}"), 32, 16, WIDE)
    half = body.op(f"bitcast {WIDE.ints(16)} {bits} to {WIDE.type('half')}")
    return body.as_bits(widen(body, half, "half", "float", WIDE), "f32", WIDE)


def _float_to_float(body: Body, modifiers: Modifiers, source: str, target: str) -> None:
    form, is_flushed = body.form(), modifiers.has("ftz")
    whole, rounding = modifiers.take(*_WHOLE), modifiers.take("rn", "rz", "rm", "rp")
    saturates, clips = modifiers.has("sat"), modifiers.has("relu")
    before, after = FLOATS[source], FLOATS[target]
    value = body.read_float(body.item.operands[1], source, form)
    if is_flushed and source == "f32":
        value = flush(body, value, form)
    # To a whole number of the same type, before it is narrowed.
    if whole:
        value = body.overloaded(_WHOLE[whole], form.type(before), value)
    value = _resized_float(body, value, before, after, form, rounding=rounding or "rn")
    if clips:
        value = rectified(body, value, after, form)
    if saturates:
        value = saturated(body, value, after, form)
    if is_flushed and target == "f32":
        value = flush(body, value, form)
    body.write_float(body.item.operands[0], value, target, form)


def _resized_float(body: Body, value: str, before: str, after: str, form: ValueForm, *, rounding: str = "rn") -> str:
    if before == after:
        return value
    widths = {"half": 11, "bfloat": 8, "float": 24, "double": 53}
    if before in ("half", "bfloat") and after in ("float", "double"):
        return widen(body, value, before, after, form)
    if widths[after] > widths[before] and after in ("float", "double"):
        return body.op(f"fpext {form.type(before)} {value} to {form.type(after)}")
    if after == "float":
        if rounding != "rn":
            return directed(body, "fptrunc", rounding, "float", [value], form=form, source="double")
        return body.op(f"fptrunc {form.type('double')} {value} to {form.type('float')}")
    if before in ("half", "bfloat"):
        value, before = widen(body, value, before, "float", form), "float"
    # Rounded to odd first, so that rounding twice is rounding once (`floats.to_odd`).
    if before == "double":
        value = to_odd(body, value, form)
    if rounding not in ("rn", "rz"):
        raise body.item.unknown()
    bits = _half_bits(body, value, after, rounding, form)
    return body.op(f"bitcast {form.ints(16)} {bits} to {form.type(after)}")


def _float_to_integer(body: Body, modifiers: Modifiers, source: str, target: str) -> None:
    """Convert with saturation; NaN becomes 0, but only the top bit set if either type has 64 bits."""
    form, is_flushed = body.form(), modifiers.has("ftz")
    whole = modifiers.need(*_WHOLE)
    modifiers.take("sat")
    value, element = body.read_float(body.item.operands[1], source, form), FLOATS[source]
    if is_flushed and source == "f32":
        value = flush(body, value, form)
    if element in ("half", "bfloat"):
        value, element = widen(body, value, element, "float", form), "float"
    floats, bits = form.type(element), BITS[target]
    value = body.overloaded(_WHOLE[whole], floats, value)
    name = f"fpto{'s' if is_signed(target) else 'u'}i.sat.{mangled(form.ints(bits))}.{mangled(floats)}"
    number = body.intrinsic(name, form.ints(bits), (floats, value))
    if source == "f64" or bits == 64:
        is_nan, top = body.op(f"fcmp uno {floats} {value}, {value}"), form.const(bits, 1 << bits - 1)
        number = body.op(f"select {form.ints(1)} {is_nan}, {form.ints(bits)} {top}, {form.ints(bits)} {number}")
    _put_extended(body, number, target, form)


def _put_extended(body: Body, value: str, kind: str, form: ValueForm) -> None:
    """Write an integer to a register that may be wider; signed integers are sign-extended."""
    target, bits = body.item.operands[0], BITS[kind]
    width = body.width(target.name) if isinstance(target, Register) else bits
    if is_signed(kind) and width > bits:
        value, bits = body.op(f"sext {form.ints(bits)} {value} to {form.ints(width)}"), width
    body.write(target, value, bits, form)


def _integer_to_float(body: Body, modifiers: Modifiers, source: str, target: str) -> None:
    form, rounding = body.form(), modifiers.take("rn", "rz", "rm", "rp")
    bits, element = BITS[source], FLOATS[target]
    code = "sitofp" if is_signed(source) else "uitofp"
    value = body.read(body.item.operands[1], bits, form)
    if rounding not in (None, "rn"):
        if target not in ("f32", "f64"):
            raise body.item.unknown()
        number = directed(body, code, rounding or "", element, [value], form=form, source=f"i{bits}")
        body.write_float(body.item.operands[0], number, target, form)
        return
    if element in ("half", "bfloat"):
        # float64 has 53 bits: a longer integer would be rounded twice.
        value = value if bits <= 32 else _shortened(body, value, is_signed(source), form)
        wide = body.op(f"{code} {form.ints(bits)} {value} to {form.type('double')}")
        body.write_float(body.item.operands[0], _resized_float(body, wide, "double", element, form), target, form)
        return
    body.write_float(
        body.item.operands[0], body.op(f"{code} {form.ints(bits)} {value} to {form.type(element)}"), target, form
    )


def _shortened(body: Body, value: str, has_sign: bool, form: ValueForm) -> str:
    """Shorten a 64-bit integer for float64: a large one gets a sticky bit that replaces its lowest 11 bits."""
    longs = form.ints(64)
    low_bits = body.op(f"and {longs} {value}, {form.const(64, 0x7FF)}")
    is_inexact = body.op(f"icmp ne {longs} {low_bits}, {form.const(64, 0)}")
    cut = body.op(f"and {longs} {value}, {form.const(64, -0x800)}")
    sticky = body.op(
        f"select {form.ints(1)} {is_inexact}, {longs} {form.const(64, 0x800)}, {longs} {form.const(64, 0)}"
    )
    cut = body.op(f"or {longs} {cut}, {sticky}")
    biased = body.op(f"add {longs} {value}, {form.const(64, 1 << 53)}") if has_sign else value
    is_large = body.op(f"icmp ugt {longs} {biased}, {form.const(64, 1 << 53 + has_sign)}")
    return body.op(f"select {form.ints(1)} {is_large}, {longs} {cut}, {longs} {value}")


def _integer_to_integer(body: Body, modifiers: Modifiers, source: str, target: str) -> None:
    saturates, form = modifiers.has("sat"), body.form()
    before, after = BITS[source], BITS[target]
    value = body.read(body.item.operands[1], before, form)
    if saturates:
        value = _clamped(body, value, source, target, form)
    if after > before:
        extension = "sext" if is_signed(source) else "zext"
        value = body.op(f"{extension} {form.ints(before)} {value} to {form.ints(after)}")
    elif after < before:
        value = body.op(f"trunc {form.ints(before)} {value} to {form.ints(after)}")
    _put_extended(body, value, target, form)


def _clamped(body: Body, value: str, source: str, target: str, form: ValueForm) -> str:
    """Clamp an integer to the range of another type."""
    before, after, prefix = BITS[source], BITS[target], "s" if is_signed(source) else "u"
    smallest = -(1 << after - 1) if is_signed(target) else 0
    largest = (1 << after - 1) - 1 if is_signed(target) else (1 << after) - 1
    numbers = form.ints(before)
    if largest < (1 << before - (prefix == "s")):
        value = body.overloaded(f"{prefix}min", numbers, value, form.const(before, largest))
    if prefix == "s" and smallest > -(1 << before - 1):
        value = body.overloaded("smax", numbers, value, form.const(before, smallest))
    return value
