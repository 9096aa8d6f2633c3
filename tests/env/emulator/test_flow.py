# SPDX-License-Identifier: Apache-2.0
"""What is known of a kernel before it runs, long blocks that are cut, and repeated instructions that become loops."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.env.emulator.ptx import entry, evaluate, fails, launch
from tests.env.emulator.test_parser import kernel
from verl_kernel.env.emulator.flow import repeats
from verl_kernel.env.emulator.flow.graph import Graph, live, normal
from verl_kernel.env.emulator.flow.repeats import lanes
from verl_kernel.env.emulator.kernel import Kernel

REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;\n"
BRANCH = "setp.eq.b32 %p1, %r1, 0;\nmov.b32 %r2, 0;\n@%p1 bra $L1;\nmov.b32 %r2, 1;\n$L1:"
EXCHANGES = "mov.b32 %r1, 0;\nshfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\natom.global.add.u32 %r3, [%rd1], 1;"
LANES = np.arange(32, dtype=np.uint32)
MANY_REGISTERS = 40
LOOP = "$L:\n{}\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, {};\n@%p bra $L;"
COUNT = 8
OPCODES = ["add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "min.u32"]
FUNCTIONS = [np.add, np.subtract, np.bitwise_xor, np.multiply, np.minimum]
ADD, XOR = "add.s32 %r{0}, %r{1}, %r{2};", "xor.b32 %r{1}, %r{3}, 7;"
PARTING = "mov.u32 %r1, %tid.x;\nsetp.eq.b32 %p1, %r1, 0;\n@%p1 bra $L1;\n"
JUMP = """
rem.u32 %i, %lane, {};
$T: .branchtargets $A, $B,
  $C;
brx.idx %i, $T;
$A: add.u32 %sum, %sum, 1; bra.uni $D;
$B: add.u32 %sum, %sum, 10; bra.uni $D;
$C: add.u32 %sum, %sum, 100;
$D:
"""


def graph(body):
    return Graph(kernel(REGISTERS + body))


def test_blocks_end_at_branches_barriers_and_labels():
    made = graph("mov.b32 %r1, 0;\n$L1:\nbar.sync 0;\nadd.s32 %r1, %r1, 1;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra $L1;")
    assert [(block.start, block.end, block.successors) for block in made.blocks] == [
        (0, 1, (1,)), (1, 2, (2,)), (2, 5, (1, 3)), (5, 6, ()),
    ]  # fmt: skip


@pytest.mark.parametrize(("body", "shared", "own", "may_part"), [
    ("mov.u32 %r1, %tid.x;\nadd.s32 %r2, %r1, 1;", "", "%r1 %r2", False),
    ("mov.u32 %r3, %ctaid.x;\nadd.s32 %r4, %r3, 1;", "%r3 %r4", "", False),
    ("ld.param.b32 %r1, [k_param_1];\n" + BRANCH, "%r1", "", False),
    ("mov.u32 %r1, %tid.x;\n" + BRANCH, "", "%r1 %r2", True),
    (EXCHANGES, "%r1", "%r2 %r3", False),
])  # fmt: skip
def test_what_all_lanes_share_and_where_they_part(body, shared, own, may_part):
    known = lanes(graph(body))
    assert {*shared.split()} <= known.uniform
    assert not {*own.split()} & known.uniform
    assert known.may_diverge == may_part


@st.composite
def programs(draw):
    """Straight and branching code over four registers."""
    lines = []
    for number in range(draw(st.integers(2, 12))):
        a, b, c = (draw(st.integers(1, 4)) for _ in range(3))
        guard, back = f"@%p{a % 3 + 1}", draw(st.integers(0, number))
        kinds = [f"add.s32 %r{a}, %r{b}, %r{c};", f"mov.b32 %r{a}, {b};", f"{guard} mov.b32 %r{b}, %r{c};"]
        lines += [f"$L{number}:", draw(st.sampled_from([*kinds, f"{guard} bra $L{back};"]))]
    return "\n".join(lines)


@given(programs())
def test_what_is_still_read_is_what_some_path_reads_first(body):
    made = graph(body)
    found = live(made)
    for number, block in enumerate(made.blocks):
        for name in made.program.registers:
            assert (name in found[number]) == reads_first(made, block.start, name), (number, name)


def reads_first(made, place, name):
    ends = {block.end - 1: block.successors for block in made.blocks}
    seen, waiting = set(), [place]
    while waiting:
        place = waiting.pop()
        if place in seen or place >= len(made.program.instructions):
            continue
        seen.add(place)
        if name in made.reads[place]:
            return True
        if name not in made.writes[place]:
            after = [made.blocks[block].start for block in ends.get(place, ()) if block < len(made.blocks)]
            waiting += after if place in ends else [place + 1]
    return False


@pytest.fixture(params=[(5, 1500), (96, 1500), (96, 1), (5, 1)], ids=["short", "long", "loops", "short loops"])
def longest(request, monkeypatch):
    monkeypatch.setattr(repeats, "LONGEST", request.param[0])
    monkeypatch.setattr(repeats, "MANY", request.param[1])


@pytest.mark.slow
@given(programs())
def test_pieces_keep_the_last_write_of_what_is_read_later(body):
    made = graph("\n".join([body, *(f"add.s32 %r{place % 5}, %r{place % 3}, %r{place % 7};" for place in range(250))]))
    known = found_repeats(made)
    for block, rows, parts in zip(made.blocks, known, repeats.pieces(made, live(made), known), strict=True):
        assert [place for part in parts for place in range(part.start, part.end)] == list(range(block.start, block.end))
        assert [part.repeat for part in parts if part.repeat is not None] == rows
        assert all(part.end - part.start <= repeats.LONGEST for part in parts if part.repeat is None)
        for part in parts[:-1]:
            assert part.after == {name for name in made.program.registers if reads_first(made, part.end, name)}
        for part in parts:
            for name in part.after:
                writes = [place for place in range(part.start, part.end) if name in made.writes[place]]
                assert [place for place, names in part.saved.items() if name in names] == writes[-1:]


def found_repeats(made, many=1):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "MANY", many)
        return repeats.repeats(made, lanes(made), normal(made))


def steps(first, second):
    """Each register from the one before it."""
    return "\n".join(
        f"mad.lo.u32 %r{place}, %r{place - 1 if place else MANY_REGISTERS - 1}, {first}, {second};"
        for place in range(MANY_REGISTERS)
    )


def stepped(values, first, second):
    for place in range(MANY_REGISTERS):
        values[place] = values[place - 1] * np.uint32(first) + second
    return values


def summed(code, *, warps=1):
    """The sum of all registers, which begin with the lane's number plus their own; `%n` is 3."""
    declared = f".reg .b32 %r<{MANY_REGISTERS}>, %lane, %sum, %n, %i; .reg .b64 %at; .reg .pred %p;"
    begin = ["mov.u32 %lane, %tid.x;", "mov.u32 %n, %nctaid.x; add.u32 %n, %n, 2; mov.u32 %i, 0; mov.u32 %sum, 0;"]
    begin += [f"add.u32 %r{place}, %lane, {place};" for place in range(MANY_REGISTERS)]
    end = [f"add.u32 %sum, %sum, %r{place};" for place in range(MANY_REGISTERS)]
    end += ["ld.param.u64 %at, [p0]; mad.wide.u32 %at, %lane, 4, %at; st.global.b32 [%at], %sum; ret;"]
    out = np.zeros(32 * warps, np.uint32)
    launch(entry("\n".join([*begin, code, *end]), 1, declared), [out], warps=warps)
    return out


def begun(warps=1):
    return [np.arange(32 * warps, dtype=np.uint32) + np.uint32(place) for place in range(MANY_REGISTERS)]


def test_a_loop_that_all_lanes_share(longest):
    values = begun()
    for _ in range(3):
        stepped(values, 3, LANES)
    assert (summed(LOOP.format(steps(3, "%lane"), "%n")) == sum(values)).all()


def test_a_loop_that_each_lane_leaves_by_itself(longest):
    values = begun()
    for turn in range(32):
        moved, runs = stepped([*values], 5, np.uint32(turn)), (turn == 0) | (turn < LANES)
        values = [np.where(runs, new, old) for new, old in zip(moved, values, strict=True)]
    assert (summed(LOOP.format(steps(5, "%i"), "%lane")) == sum(values)).all()


def test_floating_literals_may_be_decimal():
    code = """.reg .f32 %f<4>; mov.f32 %f1, 20.; add.f32 %f1, %f1, 1.4426950408889634;
mul.f32 %f1, %f1, 0d3FE0000000000000; fma.rn.f32 %f1, %f1, 2.5e-1, 1E2; mov.b32 %sum, %f1;"""
    wanted = (np.float32(20) + np.float32(1.4426950408889634)) * np.float32(0.5) * np.float32(0.25) + np.float32(100)
    assert (summed(code) == wanted.view(np.uint32) + sum(begun())).all()


def test_a_jump_by_a_table_goes_where_each_lane_says():
    assert (summed(JUMP.format(3)) == sum(begun()) + np.array([1, 10, 100], np.uint32)[LANES % 3]).all()
    with fails("stopped", "lane 3"):
        summed(JUMP.format(4))


def test_a_loop_with_a_barrier(longest):
    values = begun(2)
    for turn in range(3):
        stepped(stepped(values, 3, np.uint32(3)), 7, np.uint32(turn))
    code = LOOP.format(f"{steps(3, '%n')}\nbar.sync 0;\n{steps(7, '%i')}", "%n")
    assert (summed(code, warps=2) == sum(values)).all()


def test_lanes_with_a_guard_write_alone(longest):
    guarded = [f"@%p add.u32 %r{place}, %r{place}, {place};" for place in range(MANY_REGISTERS)]
    found = summed("\n".join(["setp.lt.u32 %p, %lane, 9;", *guarded]))
    assert (found == sum(begun()) + np.where(LANES < 9, sum(range(MANY_REGISTERS)), 0)).all()


def found(body, many=1):
    return [(item.start, item.period, item.rounds) for row in found_repeats(graph(body), many) for item in row]


def lines(*items, rounds):
    return "\n".join(item.format(*(at % 9 for at in range(turn, turn + 9))) for turn in range(rounds) for item in items)


@pytest.mark.parametrize(("body", "wanted"), [
    ("mov.b32 %r1, 0;\n" + lines(ADD, XOR, rounds=6), [(1, 2, 6)]),  # the longest one
    (PARTING + lines(ADD, rounds=20) + "\n$L1:", [(3, 1, 20)]),
    (lines(ADD, f"@%p1 {XOR}", rounds=9), []),
    (lines("st.global.b32 [%rd1], %r{0};", rounds=9), []),
    (lines("add.cc.u32 %r{0}, %r{1}, %r{2};", "addc.u32 %r{1}, %r{3}, 0;", rounds=9), []),
    (lines(ADD, XOR, "not.b32 %r1, %r2;", rounds=3), []),
    ("\n".join(f"add.s32 %r1, %r2, {number};" for number in range(9)), []),
    ("\n".join(f"add.s32 %r1, %r2, %r{2 + number % 2};" for number in range(9)), []),  # the same register twice
])  # fmt: skip
def test_instructions_that_repeat_are_found(body, wanted):
    assert found(body) == wanted


def test_kernels_of_few_instructions_have_none():
    body = lines("add.s32 %r{0}, %r{1}, %r{2};", rounds=20)
    assert found(body)
    assert not found(body, 100)


@st.composite
def repeated(draw):
    """Rounds of a few instructions, each with registers of its own; and their numbers in each round."""
    shape = draw(st.lists(st.integers(0, len(OPCODES) - 1), min_size=1, max_size=4))
    rounds, row = draw(st.integers(2, 12)), st.tuples(*[st.tuples(*[st.integers(0, COUNT - 1)] * 3)] * len(shape))
    if draw(st.booleans()):  # the same registers of each round, moved on
        first, step = draw(row), draw(st.integers(0, 3))
        return shape, [[[(one + turn * step) % COUNT for one in names] for names in first] for turn in range(rounds)]
    return shape, draw(st.lists(row, min_size=rounds, max_size=rounds))


@pytest.mark.slow
@example(([0] * 4, [[[5 + turn & 7, turn, turn], *[[turn] * 3] * 3] for turn in range(4)]), True, {0})
@given(repeated(), st.booleans(), st.sets(st.integers(0, COUNT - 1), min_size=1))
def test_a_loop_does_what_its_instructions_do(case, parts, read):
    """In all lanes, or in the odd ones only; some of the registers are read after it.

    The example keeps the register of its last round for the even lanes, and none of the others.
    """
    shape, rows = case
    first = [LANES * 3 + np.uint32(place) for place in range(COUNT)]
    code, values = [], [*first]
    for row in rows:
        for number, (target, left, right) in zip(shape, row, strict=True):
            code.append(f"{OPCODES[number]} %r{target}, %r{left}, %r{right};")
            values[target] = FUNCTIONS[number](values[left], values[right])
    if parts:
        values = [np.where(LANES % 2 == 1, *both) for both in zip(values, first, strict=True)]
        code = ["and.b32 %bit, %a, 1; setp.eq.u32 %even, %bit, 0; @%even bra $AFTER;", *code, "$AFTER:"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "MANY", 1)
        found = held(code, read)
    assert {place: found[f"r{place}"].tolist() for place in read} == {place: values[place].tolist() for place in read}


def held(code, read):
    """Some registers after code that begins with three times the lane's number plus their own."""
    others = [f".reg .b32 %r{place};" for place in range(COUNT) if place not in read]
    begin = [".reg .b32 %bit; .reg .pred %even;", *(f"mad.lo.u32 %r{place}, %a, 3, {place};" for place in range(COUNT))]
    text = "\n".join([*others, *begin, *code])
    return evaluate(text, {"a": LANES}, {f"r{place}": np.uint32 for place in read})


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


@pytest.mark.exhaustive
def test_what_is_written_does_not_depend_on_the_process():
    code = "\n".join(f"fma.rn.f32 %r{place}, %r{place - 3}, %r{place - 2}, %r{place - 1};" for place in range(3, 2000))
    program = (
        "import hashlib, sys\nfrom verl_kernel.env.emulator.lowering.function import module\n"
        "from verl_kernel.env.emulator.ptx.parser import parse\n"
        "print(hashlib.sha256(module(parse(sys.stdin.read()), 1).text.encode()).hexdigest())"
    )
    text, command = entry(f"{code}\nret;", 0, ".reg .b32 %r<2000>;"), [sys.executable, "-c", program]
    seeds = ({**os.environ, "PYTHONHASHSEED": seed} for seed in "012")
    assert len({subprocess.check_output(command, input=text, env=seed, text=True) for seed in seeds}) == 1


@pytest.mark.exhaustive
def test_a_long_kernel_takes_far_less_code(monkeypatch):
    rows = [(place % 40, 40 + place % 13, 53 + place % 11) for place in range(2000)]
    body = "\n".join("fma.rn.f32 %r{0}, %r{1}, %r{2}, %r{0};".format(*row) for row in rows)
    sizes = []
    for many in (1500, 1 << 30):
        monkeypatch.setattr(repeats, "MANY", many)
        made = Kernel(entry(f"{body}\nret;", 0, ".reg .b32 %r<64>;"), 1, 0)
        sizes.append(made.module.text.count("\n"))
    assert 20 * sizes[0] < sizes[1]
