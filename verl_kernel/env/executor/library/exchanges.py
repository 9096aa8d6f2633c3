# SPDX-License-Identifier: Apache-2.0
"""Exchanges values between lanes, where the source lane is known only at run time."""

from __future__ import annotations

from verl_kernel.env.executor.library.accesses import gathered
from verl_kernel.env.executor.library.context import MASK, Function, stride
from verl_kernel.env.executor.lowering.writer import WIDE, Key

_WORDS = WIDE.ints(32)
_LANE = stride(1, 32)
RESULT = f"{{{_WORDS}, i32}}"
"""The values that lanes get, and the lanes whose source was within range."""


def exchange_text(key: Key) -> tuple[Function, str]:
    """`exchange_<mode>(value, places, clamps)` (PTX ISA, "shfl.sync")."""
    made, mode = Function(), str(key[1])

    def op(code: str, left: str, right: str) -> str:
        return made.op(f"{code} {_WORDS} {left}, {right}")

    amount, most = op("and", "%places", WIDE.const(32, 31)), op("and", "%clamps", WIDE.const(32, 31))
    segment = op("and", op("lshr", "%clamps", WIDE.const(32, 8)), WIDE.const(32, 31))
    outside = op("xor", segment, WIDE.const(32, 31))
    lowest = op("and", _LANE, segment)
    highest = op("or", lowest, op("and", most, outside))
    if mode == "idx":
        other = op("or", lowest, op("and", amount, outside))
    else:
        other = op({"bfly": "xor", "up": "sub", "down": "add"}[mode], _LANE, amount)
    holds = made.op(f"icmp {'sge' if mode == 'up' else 'sle'} {_WORDS} {other}, {highest}")
    other = made.op(f"select {MASK} {holds}, {_WORDS} {other}, {_WORDS} {_LANE}")
    made.do(f"%all = alloca {_WORDS}, align 64")
    made.do(f"store {_WORDS} %value, ptr %all, align 64")
    pointers = made.op(f"getelementptr i32, ptr %all, {_WORDS} {op('and', other, WIDE.const(32, 31))}")
    value = gathered(made, pointers, WIDE.const(1, 1), 32)
    part = made.op(f"insertvalue {RESULT} poison, {_WORDS} {value}, 0")
    made.do(f"ret {RESULT} {made.op(f'insertvalue {RESULT} {part}, i32 {made.bits(holds)}, 1')}")
    return made, made.text(RESULT, key, tuple(f"{_WORDS} %{name}" for name in ("value", "places", "clamps")))
