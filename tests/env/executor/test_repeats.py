# SPDX-License-Identifier: Apache-2.0
"""Instructions that repeat on other registers become a loop, which does what they do one by one."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.env.executor.ptx import entry, launch
from tests.env.executor.test_flow import graph
from tests.env.executor.test_pieces import found_repeats
from verl_kernel.env.executor.flow import repeats
from verl_kernel.env.executor.kernel import Kernel

COUNT = 8
OPCODES = ["add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "min.u32"]
FUNCTIONS = [np.add, np.subtract, np.bitwise_xor, np.multiply, np.minimum]


def found(body, many=1):
    return [(item.start, item.period, item.rounds) for row in found_repeats(graph(body), many) for item in row]


def lines(*items, rounds):
    return "\n".join(
        item.format(*(place % 9 for place in range(turn, turn + 9))) for turn in range(rounds) for item in items
    )


def test_the_longest_repetition_is_found():
    body = "mov.b32 %r1, 0;\n" + lines("add.s32 %r{0}, %r{1}, %r{2};", "xor.b32 %r{1}, %r{3}, 7;", rounds=6)
    assert found(body) == [(1, 2, 6)]


@pytest.mark.parametrize("body", [
    "add.s32 %r{0}, %r{1}, %r{2};\n@%p1 xor.b32 %r{1}, %r{3}, 7;", "st.global.b32 [%rd1], %r{0};",
    "add.cc.u32 %r{0}, %r{1}, %r{2};\naddc.u32 %r{1}, %r{3}, 0;",
])  # fmt: skip
def test_what_does_more_than_to_calculate_is_left_alone(body):
    assert not found(lines(body, rounds=9))


def test_different_literals_or_registers_are_no_repetition():
    assert not found(lines("add.s32 %r{0}, %r{1}, %r{2};", "xor.b32 %r{1}, %r{3}, 7;", "not.b32 %r1, %r2;", rounds=3))
    assert not found("\n".join(f"add.s32 %r1, %r2, {number};" for number in range(9)))
    assert not found(
        "\n".join(f"add.s32 %r1, %r2, %r{2 + number % 2};" for number in range(9))
    )  # the same register twice


def test_kernels_of_few_instructions_have_none():
    body = lines("add.s32 %r{0}, %r{1}, %r{2};", rounds=20)
    assert found(body)
    assert not found(body, 100)


def test_those_whose_lanes_part_have_some():
    body = lines("add.s32 %r{0}, %r{1}, %r{2};", rounds=20)
    parting = "mov.u32 %r1, %tid.x;\nsetp.eq.b32 %p1, %r1, 0;\n@%p1 bra $L1;\n"
    assert found(parting + body + "\n$L1:") == [(3, 1, 20)]


@st.composite
def repeated(draw):
    """Rounds of a few instructions, each with registers of its own; and their numbers in each round."""
    shape = draw(st.lists(st.integers(0, len(OPCODES) - 1), min_size=1, max_size=4))
    place = st.integers(0, COUNT - 1)
    rounds = draw(st.integers(2, 12))
    if draw(st.booleans()):  # the same registers of each round, moved on
        row, step = [[draw(place) for _ in range(3)] for _ in shape], draw(st.integers(0, 3))
        rows = [[[(one + turn * step) % COUNT for one in names] for names in row] for turn in range(rounds)]
    else:
        rows = [[[draw(place) for _ in range(3)] for _ in shape] for _ in range(rounds)]
    return shape, rows


@example(([0] * 4, [[[5 + turn & 7, turn, turn], *[[turn] * 3] * 3] for turn in range(4)]), True, {0})
@given(repeated(), st.booleans(), st.sets(st.integers(0, COUNT - 1), min_size=1))
def test_a_loop_does_what_its_instructions_do(case, parts, read):
    """In all lanes, or in the odd ones only; some of the registers are read after it.

    The example keeps the register of its last round for the even lanes, and none of the others.
    """
    shape, rows = case
    code, values = [], [np.arange(32, dtype=np.uint32) * 3 + np.uint32(place) for place in range(COUNT)]
    for row in rows:
        for number, (target, left, right) in zip(shape, row, strict=True):
            code.append(f"{OPCODES[number]} %r{target}, %r{left}, %r{right};")
            values[target] = FUNCTIONS[number](values[left], values[right])
    if parts:
        before, is_odd = np.arange(32, dtype=np.uint32) * 3, np.arange(32) % 2 == 1
        values = [np.where(is_odd, value, before + np.uint32(place)) for place, value in enumerate(values)]
        code = ["and.b32 %bit, %lane, 1; setp.eq.b32 %even, %bit, 0; @%even bra $AFTER;", *code, "$AFTER:"]
    kept = [place in read for place in range(COUNT)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "MANY", 1)
        assert (run(code, sorted(read)) == values)[kept].all()


def run(code, read):
    """Some registers after code that begins with three times the lane's number plus their own."""
    begin = ["mov.u32 %lane, %tid.x;", *(f"mad.lo.u32 %r{place}, %lane, 3, {place};" for place in range(COUNT))]
    end = ["ld.param.u64 %at, [p0]; mad.wide.u32 %at, %lane, 4, %at;"]
    end += [f"st.global.b32 [%at+{128 * place}], %r{place};" for place in read]
    out = np.zeros((COUNT, 32), np.uint32)
    declared = f".reg .b32 %r<{COUNT}>, %lane, %bit; .reg .b64 %at; .reg .pred %even;"
    launch(entry("\n".join([*begin, *code, *end, "ret;"]), 1, declared), [out])
    return out


def test_a_loop_of_numbers_of_all_kinds(monkeypatch):
    """Predicates, pairs of halves, float64, numbers that all lanes share, and results that nobody reads."""
    code = [".reg .pred %q<40>; .reg .b64 %w<40>; .reg .b32 %u<40>, %lane, %n, %x<40>; .reg .b64 %at;"]
    code += ["mov.u32 %lane, %tid.x; mov.u32 %n, %nctaid.x; cvt.rn.f64.u32 %w0, %lane; mov.u32 %x0, %lane;"]
    code += ["mov.b32 %u0, %n;"]
    for place in range(1, 30):
        code.append(f"fma.rn.f64 %w{place}, %w{place - 1}, 0d3FF8000000000000, %w0;")
        code.append(f"add.u32 %u{place}, %u{place - 1}, %n;")
        code.append(f"setp.gt.u32 %q{place}, %lane, %u{place};")
        code.append(f"selp.b32 %x{place}, %u{place}, %x{place - 1}, %q{place};")
    code += ["cvt.rzi.u32.f64 %u0, %w29; add.u32 %u0, %u0, %x29; add.u32 %u0, %u0, %u29;"]
    code += ["ld.param.u64 %at, [p0]; mad.wide.u32 %at, %lane, 4, %at; st.global.b32 [%at], %u0; ret;"]
    text, outcomes = entry("\n".join(code), 1), []
    for many in (1, 1 << 30):
        monkeypatch.setattr(repeats, "MANY", many)
        out = np.zeros(32, np.uint32)
        made = launch(text, [out])
        assert ("@vk_places" in made.module.text or "phi i64" in made.module.text) == (many == 1)
        outcomes.append(out)
    assert (outcomes[0] == outcomes[1]).all()
    lane, number, chosen = np.arange(32), np.arange(32) * 1.0, np.arange(32)
    for place in range(1, 30):
        number, chosen = number * 1.5 + lane, np.where(lane > place + 1, place + 1, chosen)
    assert (outcomes[0] == (number.astype(np.int64) + chosen + 30).astype(np.uint32)).all()


def test_what_is_written_does_not_depend_on_the_process():
    code = "\n".join(f"fma.rn.f32 %r{place}, %r{place - 3}, %r{place - 2}, %r{place - 1};" for place in range(3, 2000))
    program = (
        "import hashlib, sys\nfrom verl_kernel.env.executor.lowering.function import module\n"
        "from verl_kernel.env.executor.ptx.parser import parse\n"
        "print(hashlib.sha256(module(parse(sys.stdin.read()), 1).text.encode()).hexdigest())"
    )
    text = entry(f"{code}\nret;", 0, ".reg .b32 %r<2000>;")
    told = {
        subprocess.run(
            [sys.executable, "-c", program], input=text, env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in "012"
    }  # fmt: skip
    assert len(told) == 1


def test_a_long_kernel_takes_far_less_code(monkeypatch):
    line = "fma.rn.f32 %r{0}, %r{1}, %r{2}, %r{0};"
    body = "\n".join(line.format(place % 40, 40 + place % 13, 53 + place % 11) for place in range(2000))
    text = entry(f"{body}\nret;", 0, ".reg .b32 %r<64>;")
    sizes = []
    for many in (1500, 1 << 30):
        monkeypatch.setattr(repeats, "MANY", many)
        sizes.append(Kernel(text, 1, 0).module.text.count("\n"))
    assert 20 * sizes[0] < sizes[1]
