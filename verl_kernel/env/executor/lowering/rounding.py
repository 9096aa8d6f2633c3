# SPDX-License-Identifier: Apache-2.0
"""Rounding in other ways than the host's: of sums that are not exact, in steps, and in a direction."""

from __future__ import annotations

from collections.abc import Callable

from verl_kernel.env.executor.lowering.writer import Form, Writer


def odd_sum(body: Writer, total: str, error: str, form: Form) -> str:
    """A float64 sum with what rounding took from it, as one that is odd where inexact."""
    longs, doubles = form.ints(64), form.type("double")
    bits, lost = (body.op(f"bitcast {doubles} {item} to {longs}") for item in (total, error))
    is_inexact = body.op(f"fcmp one {doubles} {error}, {form.real('double', 0.0)}")
    lowest = body.op(f"and {longs} {bits}, {form.const(64, 1)}")
    is_even = body.op(f"icmp eq {longs} {lowest}, {form.const(64, 0)}")
    is_larger = body.op(f"icmp slt {longs} {body.op(f'xor {longs} {bits}, {lost}')}, {form.const(64, 0)}")
    step = body.op(f"select {form.ints(1)} {is_larger}, {longs} {form.const(64, -1)}, {longs} {form.const(64, 1)}")
    is_moved = body.op(f"and {form.ints(1)} {is_inexact}, {is_even}")
    step = body.op(f"select {form.ints(1)} {is_moved}, {longs} {step}, {longs} {form.const(64, 0)}")
    return body.op(f"bitcast {longs} {body.op(f'add {longs} {bits}, {step}')} to {doubles}")


def to_odd(body: Writer, value: str, form: Form) -> str:
    """float64 as float32, rounded to odd where inexact, so that a second rounding to fewer bits is right."""
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


def two_sum(body: Writer, left: str, right: str, form: Form) -> tuple[str, str]:
    """The float64 sum of two float64 and what rounding took from it (Knuth's two-sum)."""
    op: Callable[[str, str, str], str] = lambda code, a, b: body.op(f"{code} {form.type('double')} {a}, {b}")  # noqa: E731
    total = op("fadd", left, right)
    part = op("fsub", total, left)
    error = op("fadd", op("fsub", left, op("fsub", total, part)), op("fsub", right, part))
    return total, error


def stepped(body: Writer, value: str, error: str | None, rounding: str, form: Form) -> str:
    """A float64, with an error that it lacks, as float32 rounded to zero, down or up."""
    doubles, floats, words = form.type("double"), form.type("float"), form.ints(32)
    nearest = body.op(f"fptrunc {doubles} {value} to {floats}")
    missing = body.op(f"fsub {doubles} {value}, {body.op(f'fpext {floats} {nearest} to {doubles}')}")
    if error is not None:
        none = body.op(f"fcmp oeq {doubles} {missing}, {form.real('double', 0.0)}")
        missing = body.op(f"select {form.ints(1)} {none}, {doubles} {error}, {doubles} {missing}")
    bits = body.op(f"bitcast {floats} {nearest} to {words}")
    is_negative = body.op(f"icmp slt {words} {bits}, {form.const(32, 0)}")
    too_high = body.op(f"fcmp olt {doubles} {missing}, {form.real('double', 0.0)}")
    too_low = body.op(f"fcmp ogt {doubles} {missing}, {form.real('double', 0.0)}")
    down = {"rm": too_high, "rp": form.const(1, 0)}.get(rounding)
    up = {"rm": form.const(1, 0), "rp": too_low}.get(rounding)
    if down is None or up is None:  # towards zero
        down = body.op(
            f"select {form.ints(1)} {is_negative}, {form.ints(1)} {form.const(1, 0)}, {form.ints(1)} {too_high}"
        )
        up = body.op(
            f"select {form.ints(1)} {is_negative}, {form.ints(1)} {too_low}, {form.ints(1)} {form.const(1, 0)}"
        )
    more, less = (body.op(f"zext {form.ints(1)} {bit} to {words}") for bit in (up, down))
    step = body.op(f"sub {words} {more}, {less}")
    back = body.op(f"sub {words} {form.const(32, 0)}, {step}")
    step = body.op(f"select {form.ints(1)} {is_negative}, {words} {back}, {words} {step}")
    return body.op(f"bitcast {words} {body.op(f'add {words} {bits}, {step}')} to {floats}")
