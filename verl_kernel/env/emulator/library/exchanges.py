# SPDX-License-Identifier: Apache-2.0
"""Exchanges values between lanes, where the source lane is known only at run time."""

from __future__ import annotations

from verl_kernel.env.emulator.library.accesses import gathered
from verl_kernel.env.emulator.library.context import MASK, FunctionWriter, stride
from verl_kernel.env.emulator.lowering.writer import WIDE, Key

_WORDS = WIDE.ints(32)
_LANE = stride(1, 32)
RESULT = f"{{{_WORDS}, i32}}"
"""The values that lanes get, and the lanes whose source was within range."""


def exchange_text(key: Key) -> tuple[FunctionWriter, str]:
    """`exchange_<mode>(value, places, clamps)` (PTX ISA, "shfl.sync")."""
    body, mode = FunctionWriter(), str(key[1])

    def op(code: str, lhs: str, rhs: str) -> str:
        return body.op(f"{code} {_WORDS} {lhs}, {rhs}")

    # PTX ISA, "shfl.sync": five bits of the lane operand, and of the clamp; the segment mask begins at bit 8.
    amount, clamp = op("and", "%places", WIDE.const(32, 31)), op("and", "%clamps", WIDE.const(32, 31))
    segment = op("and", op("lshr", "%clamps", WIDE.const(32, 8)), WIDE.const(32, 31))
    outside = op("xor", segment, WIDE.const(32, 31))
    lowest = op("and", _LANE, segment)
    highest = op("or", lowest, op("and", clamp, outside))
    if mode == "idx":
        source = op("or", lowest, op("and", amount, outside))
    else:
        source = op({"bfly": "xor", "up": "sub", "down": "add"}[mode], _LANE, amount)
    holds = body.op(f"icmp {'sge' if mode == 'up' else 'sle'} {_WORDS} {source}, {highest}")
    # A lane whose source is out of range keeps its own value.
    source = body.op(f"select {MASK} {holds}, {_WORDS} {source}, {_WORDS} {_LANE}")
    # LLVM shuffles by constant lanes only: here the values go through memory.
    body.do(f"%all = alloca {_WORDS}, align 64")
    body.do(f"store {_WORDS} %value, ptr %all, align 64")
    pointers = body.op(f"getelementptr i32, ptr %all, {_WORDS} {op('and', source, WIDE.const(32, 31))}")
    value = gathered(body, pointers, WIDE.const(1, 1), 32)
    part = body.op(f"insertvalue {RESULT} poison, {_WORDS} {value}, 0")
    body.do(f"ret {RESULT} {body.op(f'insertvalue {RESULT} {part}, i32 {body.bits(holds)}, 1')}")
    return body, body.text(RESULT, key, tuple(f"{_WORDS} %{name}" for name in ("value", "places", "clamps")))
