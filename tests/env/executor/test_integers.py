# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic, comparisons and carries against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.executor.ptx import cross, each, evaluate

WIDTHS = {16: np.uint16, 32: np.uint32, 64: np.uint64}
FORMS = [pytest.param(False, id="by lane"), pytest.param(True, id="uniform")]


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def quotient(a, b):
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


def corners(bits):
    return [0, 1, 2, 3, 7, -1, -2, -7, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits - 1) + 1, 0x5A5A5A5A5A5A5A5A]


def operations(bits, sign):
    """Each instruction of two operands with the function that it computes, of signed or unsigned integers."""
    kind = f"{sign}{bits}"
    found = {
        f"add.{kind}": lambda a, b: a + b,
        f"sub.{kind}": lambda a, b: a - b,
        f"mul.lo.{kind}": lambda a, b: a * b,
        f"mul.hi.{kind}": lambda a, b: a * b >> bits,
        f"min.{kind}": min,
        f"max.{kind}": max,
    }
    if sign == "u":
        logic = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
        found |= {f"{name}.b{bits}": function for name, function in logic.items()}
    return found


def check(lines, functions, values, bits, sign, is_uniform):
    found = each(lines, WIDTHS[bits], values, is_uniform=is_uniform)
    rows = list(zip(*([int(item) for item in array] for array in values.values()), strict=True))
    for name, function in functions.items():
        typed = [tuple(signed(item, bits) if sign == "s" else item for item in row) for row in rows]
        wanted = [function(*row) & (1 << bits) - 1 for row in typed]
        got = [int(item) for item in found[name]]
        wrong = [case for case in zip(rows, got, wanted, strict=True) if case[1] != case[2]]
        assert not wrong, (name, wrong[:3])


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("sign", "su")
@pytest.mark.parametrize("bits", WIDTHS)
def test_two_operands(bits, sign, is_uniform):
    a, b = cross(corners(bits), corners(bits), dtype=WIDTHS[bits])
    functions = operations(bits, sign)
    lines = {name: f"{name} {{d}}, %a, %b;" for name in functions}
    check(lines, functions, {"a": a, "b": b}, bits, sign, is_uniform)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([16, 32, 64]), st.sampled_from("su"), st.data())
def test_two_operands_of_any_value(bits, sign, data):
    numbers = st.lists(st.integers(0, (1 << bits) - 1), min_size=32, max_size=32)
    a, b = (np.array(data.draw(numbers), WIDTHS[bits]) for _ in range(2))
    functions = operations(bits, sign)
    lines = {name: f"{name} {{d}}, %a, %b;" for name in functions}
    check(lines, functions, {"a": a, "b": b}, bits, sign, is_uniform=False)


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("sign", "su")
@pytest.mark.parametrize("bits", WIDTHS)
def test_division_truncates(bits, sign, is_uniform):
    divisors = [value for value in corners(bits) if value & (1 << bits) - 1]
    a, b = cross(corners(bits), divisors, dtype=WIDTHS[bits])
    functions = {f"div.{sign}{bits}": quotient, f"rem.{sign}{bits}": lambda a, b: a - quotient(a, b) * b}
    check({name: f"{name} {{d}}, %a, %b;" for name in functions}, functions, {"a": a, "b": b}, bits, sign, is_uniform)


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_a_division_by_zero_does_not_stop_the_host(kind):
    zeros = np.zeros(32, WIDTHS[int(kind[1:])])
    lines = {name: f"{name}.{kind} {{d}}, %a, %b;" for name in ("div", "rem")}
    assert set(each(lines, zeros.dtype, {"a": zeros + 5, "b": zeros})) == {"div", "rem"}


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("sign", "su")
@pytest.mark.parametrize("bits", WIDTHS)
def test_one_operand(bits, sign, is_uniform):
    functions = {f"not.b{bits}": lambda a: ~a, f"cnot.b{bits}": lambda a: int(a == 0)}
    if sign == "s":
        functions |= {f"neg.s{bits}": lambda a: -a, f"abs.s{bits}": abs}
    values = {"a": cross(corners(bits), dtype=WIDTHS[bits])[0]}
    check({name: f"{name} {{d}}, %a;" for name in functions}, functions, values, bits, sign, is_uniform)


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("sign", "su")
@pytest.mark.parametrize("bits", WIDTHS)
def test_products_with_addends(bits, sign, is_uniform):
    few = [0, 1, -1, 3, (1 << bits - 1) - 1, 1 << bits - 1]
    a, b, c = cross(few, few, few, dtype=WIDTHS[bits])
    kind = f"{sign}{bits}"
    functions = {f"mad.lo.{kind}": lambda a, b, c: a * b + c, f"mad.hi.{kind}": lambda a, b, c: (a * b >> bits) + c}
    lines = {name: f"{name} {{d}}, %a, %b, %c;" for name in functions}
    check(lines, functions, {"a": a, "b": b, "c": c}, bits, sign, is_uniform)


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products(kind, is_uniform):
    bits = int(kind[1:])
    a, b = cross(corners(bits), corners(bits), dtype=WIDTHS[bits])
    addends = np.arange(len(a)).astype(WIDTHS[2 * bits]) * WIDTHS[2 * bits](0x0123)
    lines = f"mul.wide.{kind} %d, %a, %b; mad.wide.{kind} %e, %a, %b, %c;"
    outputs = dict.fromkeys("de", WIDTHS[2 * bits])
    found = evaluate(lines, {"a": a, "b": b, "c": addends}, outputs, is_uniform=is_uniform)
    mask = (1 << 2 * bits) - 1
    for x, y, c, product, total in zip(a, b, addends, found["d"], found["e"], strict=True):
        x, y = (signed(int(item), bits) if kind[0] == "s" else int(item) for item in (x, y))
        assert (int(product), int(total)) == (x * y & mask, x * y + int(c) & mask)


RELATIONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("sign", "sub")
@pytest.mark.parametrize("bits", WIDTHS)
def test_comparisons(bits, sign, is_uniform):
    a, b = cross(corners(bits), corners(bits), dtype=WIDTHS[bits])
    kept = {name: name for name in ("eq", "ne")} if sign == "b" else {name: name for name in RELATIONS}
    kept |= UNSIGNED if sign == "u" else {}
    lines = {name: f"setp.{name}.{sign}{bits} {{d}}, %a, %b;" for name in kept}
    found = each(lines, bool, {"a": a, "b": b}, is_uniform=is_uniform)
    for x, y, *got in zip(a, b, *found.values(), strict=True):
        x, y = (signed(int(item), bits) if sign == "s" else int(item) for item in (x, y))
        assert [bool(item) for item in got] == [RELATIONS[name](x, y) for name in kept.values()], (x, y)


@pytest.mark.parametrize("is_uniform", FORMS)
def test_a_comparison_combines_with_a_predicate(is_uniform):
    a, b = (np.array(values, np.uint32) for values in ([1, 1, 2, 2], [2, 2, 1, 1]))
    c = np.array([False, True] * 2)
    code = "".join(f"setp.lt.{how}.u32 %{how}1|%{how}2, %a, %b, %c;" for how in ("and", "or", "xor"))
    code += "setp.lt.and.u32 %n1|%n2, %a, %b, !%c;"
    outputs = dict.fromkeys(["and1", "and2", "or1", "or2", "xor1", "xor2", "n1", "n2"], bool)
    found = {
        name: [int(item) for item in row]
        for name, row in evaluate(code, {"a": a, "b": b, "c": c}, outputs, is_uniform=is_uniform).items()
    }
    assert found == {
        "and1": [0, 1, 0, 0], "and2": [0, 0, 0, 1], "or1": [1, 1, 0, 1], "or2": [0, 1, 1, 1],
        "xor1": [1, 0, 0, 1], "xor2": [0, 1, 1, 0], "n1": [1, 0, 0, 0], "n2": [0, 0, 1, 0],
    }  # fmt: skip


def test_both_results_see_the_predicate_as_it_was():
    code = "mov.pred %p, %c; setp.lt.and.u32 %p|%q, %a, %b, %p;"
    inputs = {"a": np.full(2, 2, np.uint32), "b": np.full(2, 1, np.uint32), "c": np.array([True, False])}
    found = evaluate(code, inputs, {"p": bool, "q": bool})
    assert ([*found["p"]], [*found["q"]]) == ([False, False], [True, False])


@pytest.mark.parametrize("is_uniform", FORMS)
@pytest.mark.parametrize("bits", WIDTHS)
def test_a_choice_by_a_predicate(bits, is_uniform):
    values = np.arange(4).astype(WIDTHS[bits])
    inputs = {"a": values, "b": values + WIDTHS[bits](100), "c": np.array([True, False, True, False])}
    found = each({"selp": f"selp.b{bits} {{d}}, %a, %b, %c;"}, WIDTHS[bits], inputs, is_uniform=is_uniform)
    assert [*found["selp"]] == [0, 101, 2, 103]


@pytest.mark.parametrize("is_uniform", FORMS)
def test_predicates_are_bits(is_uniform):
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    lines = {name: f"{name}.pred {{d}}, %a, %b;" for name in ("and", "or", "xor")}
    lines |= {"not": "not.pred {d}, %a;", "mov": "mov.pred {d}, %b;", "all": "mov.pred {d}, -1;"}
    found = each(lines, bool, {"a": a, "b": b}, is_uniform=is_uniform)
    wanted = {"and": a & b, "or": a | b, "xor": a ^ b, "not": ~a, "mov": b, "all": a | True}
    assert all((found[name] == wanted[name]).all() for name in lines)


def limbs(value, count=3):
    return [value >> 32 * place & 0xFFFFFFFF for place in range(count)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, (1 << 96) - 1)] * 2), min_size=32, max_size=32))
def test_carries_run_through_integers_of_many_words(pairs):
    rows = [[*limbs(a), *limbs(b)] for a, b in [*pairs[:-2], ((1 << 96) - 1, 1), (0, 1)]]
    inputs = {name: np.array(column, np.uint32) for name, column in zip("abcxyz", zip(*rows, strict=True), strict=True)}
    code = (
        "add.cc.u32 %s0, %a, %x; addc.cc.u32 %s1, %b, %y; addc.u32 %s2, %c, %z;"
        "sub.cc.u32 %m0, %a, %x; subc.cc.u32 %m1, %b, %y; subc.u32 %m2, %c, %z;"
        "mad.lo.cc.u32 %q0, %a, %x, %b; madc.hi.cc.u32 %q1, %a, %x, %c; addc.u32 %q2, 0, 0;"
    )
    found = evaluate(code, inputs, dict.fromkeys([f"{name}{place}" for name in "smq" for place in range(3)], np.uint32))
    for place, row in enumerate(rows):
        a, b = (sum(word << 32 * shift for shift, word in enumerate(part)) for part in (row[:3], row[3:]))
        wanted = {"s": a + b, "m": a - b, "q": row[0] * row[3] + row[1] + (row[2] << 32)}
        for name, value in wanted.items():
            assert [int(found[f"{name}{part}"][place]) for part in range(3)] == limbs(value), name


def test_carries_of_words_of_64_bits():
    a, b = cross([0, 1, -1, 1 << 63], [0, 1, -1, 1 << 63], dtype=np.uint64)
    code = "add.cc.u64 %s, %a, %b; addc.u64 %c, 0, 0; sub.cc.u64 %m, %a, %b; subc.u64 %w, 0, 0;"
    found = evaluate(code, {"a": a, "b": b}, dict.fromkeys("scmw", np.uint64))
    for x, y, *got in zip(a, b, *(found[name] for name in "scmw"), strict=True):
        x, y, mask = int(x), int(y), (1 << 64) - 1
        assert [int(item) for item in got] == [x + y & mask, x + y >> 64, x - y & mask, -(x < y) & mask]
