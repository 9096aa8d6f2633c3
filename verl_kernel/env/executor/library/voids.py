# SPDX-License-Identifier: Apache-2.0
"""How much of a product of matrices is of nothing, in native code.

A row of A, a column of B or a place along k counts as nothing where the product has zeros there only, as where a tile
reaches beyond a tensor. Single zeros are data. The lanes' registers are those of library/matrices.py.
"""

from __future__ import annotations

from functools import reduce

from verl_kernel.env.executor.library import context, traffic
from verl_kernel.env.executor.library.function import Function
from verl_kernel.env.executor.lowering.writer import LANES, WIDE, Key

_ROWS, _COLUMNS, _TOGETHER = 16, 8, 4
"""Of a product; lanes that hold a row, or a column."""


def voids_text(key: Key) -> tuple[Function, str]:
    """`voids_<k>_<count>_<word>(a..., b..., ctx)`: add the operations on nothing to a word of the launch's work.

    A register holds `count` elements along k.
    """
    made, (depth, count, word) = Function(), map(int, key[1:4])
    halves = depth // (_TOGETHER * count)
    first = [_filled(made, f"%a{place}") for place in range(2 * halves)]
    second = [_filled(made, f"%b{place}") for place in range(halves)]
    rows = made.op(f"add i32 {_groups(made, first[::2])}, {_groups(made, first[1::2])}")
    area = made.op(f"mul i32 {rows}, {_groups(made, second)}")
    places = [
        _counted(made, made.op(f"and i32 {_along(made, pair)}, {_along(made, [other])}"))
        for pair, other in zip(zip(first[::2], first[1::2], strict=True), second, strict=True)
    ]
    used = made.op(f"mul i32 {area}, {reduce(lambda one, other: made.op(f'add i32 {one}, {other}'), places)}")
    total = _ROWS * _COLUMNS * _TOGETHER * halves
    void = made.op(f"mul i32 {made.op(f'sub i32 {total}, {used}')}, {2 * count}")
    made.add_to(made.word(made.context(context.WORK), traffic.WORK_VOID + word), made.op(f"zext i32 {void} to i64"))
    made.do("ret void")
    names = [f"%a{place}" for place in range(2 * halves)] + [f"%b{place}" for place in range(halves)]
    return made, made.text("void", key, [*(f"{WIDE.ints(32)} {name}" for name in names), "ptr %ctx"])


def _filled(made: Function, register: str) -> str:
    """A bit for each lane whose register is not zero."""
    return made.bits(made.op(f"icmp ne {WIDE.ints(32)} {register}, zeroinitializer"))


def _any(made: Function, masks: list[str]) -> str:
    return reduce(lambda one, other: made.op(f"or i32 {one}, {other}"), masks)


def _groups(made: Function, masks: list[str]) -> str:
    """How many rows, or columns, hold anything."""
    found = _any(made, masks)
    for step in (1, 2):
        found = made.op(f"or i32 {found}, {made.op(f'lshr i32 {found}, {step}')}")
    return _counted(made, made.op(f"and i32 {found}, {0x11111111}"))


def _along(made: Function, masks: list[str] | tuple[str, ...]) -> str:
    """A bit for each place along k that holds anything."""
    found = _any(made, list(masks))
    for step in (LANES // 2, LANES // 4, LANES // 8):
        found = made.op(f"or i32 {found}, {made.op(f'lshr i32 {found}, {step}')}")
    return made.op(f"and i32 {found}, {(1 << _TOGETHER) - 1}")


def _counted(made: Function, mask: str) -> str:
    return made.overloaded("ctpop", "i32", mask)
