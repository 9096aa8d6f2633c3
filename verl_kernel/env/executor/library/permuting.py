# SPDX-License-Identifier: Apache-2.0
"""Bytes chosen by a selector that is known only when it runs (PTX ISA, "prmt")."""

from __future__ import annotations

from verl_kernel.env.executor.library.function import Function
from verl_kernel.env.executor.lowering.writer import Form, Key


def permute_text(key: Key) -> tuple[Function, str]:
    """`permute_<lanes>(low, high, selector)`: four bytes out of eight; a selector's top bit spreads the byte's sign."""
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
    """One byte of the result, in its place."""
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
