# SPDX-License-Identifier: Apache-2.0
"""Roots, reciprocals and what a GPU approximates (PTX ISA, "Floating Point")."""

from __future__ import annotations

from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.lowering.floats import flush, narrow, widen
from verl_kernel.env.executor.lowering.modifiers import Modifiers
from verl_kernel.env.executor.lowering.opcodes import opcode
from verl_kernel.env.executor.lowering.writer import FLOATS, WIDE


@opcode("sqrt", "rcp", "rsqrt")
def roots(body: Body, modifiers: Modifiers) -> None:
    """Square root, reciprocal and their combination, correctly rounded: within the error of `.approx` (1 and 2 ulp)."""
    kind, form, is_flushed = modifiers.type(), body.form(), modifiers.has("ftz")
    modifiers.take("rn", "approx")
    value, floats = body.read_float(body.item.operands[1], kind, form), form.type(FLOATS[kind])
    if is_flushed and kind == "f32":
        value = flush(body, value, form)
    if body.item.root != "rcp":
        value = body.overloaded("sqrt", floats, value)
    if body.item.root != "sqrt":
        value = body.op(f"fdiv {floats} {form.real(FLOATS[kind], 1.0)}, {value}")
    if is_flushed and kind == "f32":
        value = flush(body, value, form)
    body.write_float(body.item.operands[0], value, kind, form)


@opcode("ex2", "lg2", "sin", "cos", "tanh")
def approximated(body: Body, modifiers: Modifiers) -> None:
    """Functions that a GPU approximates: here the same IEEE operations on every machine (`library/functions`)."""
    kind, is_flushed = modifiers.type(), modifiers.has("ftz")
    modifiers.need("approx")
    if kind not in ("f32", "f16", "bf16", "f16x2", "bf16x2"):
        raise body.item.unknown()
    if kind.endswith("x2"):
        raise body.item.unknown("packed halves have no definition here yet")
    element, form = FLOATS[kind], WIDE
    value = body.read_float(body.item.operands[1], kind, form)
    value = value if kind == "f32" else widen(body, value, element, "float", form)
    if is_flushed:
        value = flush(body, value, form)
    floats = form.type("float")
    value = body.op(body.call(floats, (body.item.root,), f"{floats} {value}"))
    if is_flushed:
        value = flush(body, value, form)
    value = value if kind == "f32" else narrow(body, value, "float", element, form)
    body.write_float(body.item.operands[0], value, kind, form)
