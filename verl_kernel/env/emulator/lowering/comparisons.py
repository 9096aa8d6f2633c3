# SPDX-License-Identifier: Apache-2.0
"""Lowers comparisons, and what chooses by them (PTX ISA, "Comparison and Select", "Half Precision Comparison")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from verl_kernel.env.emulator.lowering.body import Body
from verl_kernel.env.emulator.lowering.floats import flush, halves_of
from verl_kernel.env.emulator.lowering.integers import PACKED, is_float, is_signed
from verl_kernel.env.emulator.lowering.opcodes import Modifiers, opcode
from verl_kernel.env.emulator.lowering.writer import FLOATS, WIDE, ValueForm
from verl_kernel.env.emulator.ptx.program import BITS, Pair

_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
"""LLVM's relations that are false for NaN."""
_UNORDERED = {
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
"""LLVM's relations that are true for NaN; `num` and `nan` ask for it."""
_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
"""PTX's relations of unsigned integers: lower, lower or same, higher, higher or same."""


def compare(body: Body, kind: str, relation: str, form: ValueForm, is_flushed: bool) -> str:
    """Compare the second and the third operand."""
    operands = body.item.operands[1:3]
    if kind in FLOATS:
        values = [body.read_float(item, kind, form) for item in operands]
        return _compare_floats(body, kind, relation, form, values, is_flushed=is_flushed)
    # Packed floats are compared half by half (`set_predicate`); integers have no NaN.
    if is_float(kind) or is_flushed or relation in _UNORDERED:
        raise body.item.unknown()
    bits = BITS[kind]
    if relation in ("eq", "ne"):
        code = relation
    else:
        code = _UNSIGNED.get(relation) or ("s" if is_signed(kind) else "u") + relation
    lhs, rhs = (body.read(item, bits, form) for item in operands)
    return body.op(f"icmp {code} {form.ints(bits)} {lhs}, {rhs}")


def _compare_floats(
    body: Body, kind: str, relation: str, form: ValueForm, values: Sequence[str], *, is_flushed: bool
) -> str:
    # PTX ISA, "setp": `.ftz` is defined for f32 and f16 only.
    if relation not in _ORDERED | _UNORDERED or (is_flushed and kind not in ("f32", "f16")):
        raise body.item.unknown()
    if is_flushed:
        values = [flush(body, value, form, FLOATS[kind]) for value in values]
    code = (_ORDERED | _UNORDERED)[relation]
    return body.op(f"fcmp {code} {form.type(FLOATS[kind])} {values[0]}, {values[1]}")


@opcode("setp")
def set_predicate(body: Body, modifiers: Modifiers) -> None:
    """Lower a comparison, combined with another predicate if there is one.

    A second result is the first one's complement, and of packed halves the comparison of the upper ones.
    """
    kind, form, is_flushed = modifiers.type(), body.form(), modifiers.has("ftz")
    relation = modifiers.need("eq", "ne", "lt", "le", "gt", "ge", *_UNSIGNED, *_UNORDERED)
    combined = modifiers.take("and", "or", "xor")
    results = body.item.operands[0]
    targets = (results.first, results.second) if isinstance(results, Pair) else (results,)
    if kind in PACKED:
        # Two results of one lane: a pair has no uniform form.
        form = WIDE
        pairs = zip(*(halves_of(body, item, kind) for item in body.item.operands[1:3]), strict=True)
        compare_halves = partial(_compare_floats, body, kind[:-2], relation, form, is_flushed=is_flushed)
        truths = [compare_halves(values) for values in pairs]
    else:
        truths = [compare(body, kind, relation, form, is_flushed)]
        truths.append(body.op(f"xor {form.ints(1)} {truths[0]}, {form.const(1, 1)}"))
    values = [_combined(body, value, combined, form) for value in truths[: len(targets)]]  # before a result is written
    for target, value in zip(targets, values, strict=True):
        body.write(target, value, 1, form)


@opcode("set")
def set_number(body: Body, modifiers: Modifiers) -> None:
    """Lower a comparison whose result is all bits, or 1.0, where it holds, and else 0."""
    form, is_flushed = body.form(), modifiers.has("ftz")
    source, target = modifiers.type(), modifiers.need("u32", "s32", "f32")
    relation = modifiers.need("eq", "ne", "lt", "le", "gt", "ge", *_UNSIGNED, *_UNORDERED)
    holds = compare(body, source, relation, form, is_flushed)
    yes = form.const(32, 0x3F800000 if target == "f32" else -1)
    chosen = body.op(f"select {form.ints(1)} {holds}, {form.ints(32)} {yes}, {form.ints(32)} {form.const(32, 0)}")
    body.write(body.item.operands[0], chosen, 32, form)


@opcode("slct")
def select_by_sign(body: Body, modifiers: Modifiers) -> None:
    """Select the first operand where the third is not negative, else the second."""
    sign_kind, bits, form = modifiers.need("s32"), BITS[modifiers.type()], body.form()
    yes, no = (body.read(item, bits, form) for item in body.item.operands[1:3])
    sign = body.read(body.item.operands[3], BITS[sign_kind], form)
    holds, numbers = body.op(f"icmp sge {form.ints(32)} {sign}, {form.const(32, 0)}"), form.ints(bits)
    chosen = body.op(f"select {form.ints(1)} {holds}, {numbers} {yes}, {numbers} {no}")
    body.write(body.item.operands[0], chosen, bits, form)


def _combined(body: Body, holds: str, operation: str | None, form: ValueForm) -> str:
    if operation is None:
        return holds
    return body.op(f"{operation} {form.ints(1)} {holds}, {body.read(body.item.operands[3], 1, form)}")


@opcode("selp")
def select(body: Body, modifiers: Modifiers) -> None:
    """Select one of two operands by a predicate."""
    bits, form = BITS[modifiers.type()], body.form()
    yes, no = (body.read(item, bits, form) for item in body.item.operands[1:3])
    holds, numbers = body.read(body.item.operands[3], 1, form), form.ints(bits)
    body.write(
        body.item.operands[0], body.op(f"select {form.ints(1)} {holds}, {numbers} {yes}, {numbers} {no}"), bits, form
    )
