# SPDX-License-Identifier: Apache-2.0
"""Long blocks are cut, and what outlives a piece is where the next one looks for it."""

import numpy as np
import pytest
from hypothesis import given

from tests.env.executor.ptx import entry, launch
from tests.env.executor.test_flow import graph, programs, reads_first
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.flow import repeats
from verl_kernel.env.executor.flow.graph import live, normal
from verl_kernel.env.executor.flow.repeats import lanes

LANES = np.arange(32, dtype=np.uint32)
REGISTERS = 40


@pytest.fixture(params=[(5, 1500), (96, 1500), (96, 1), (5, 1)], ids=["short", "long", "loops", "short loops"])
def longest(request, monkeypatch):
    monkeypatch.setattr(repeats, "LONGEST", request.param[0])
    monkeypatch.setattr(repeats, "MANY", request.param[1])


@given(programs())
def test_pieces_keep_the_last_write_of_what_is_read_later(body):
    body += "\n" + "\n".join(f"add.s32 %r{place % 5}, %r{place % 3}, %r{place % 7};" for place in range(250))
    made = graph(body)
    known = found_repeats(made)
    found = repeats.pieces(made, live(made), known)
    for block, rows, parts in zip(made.blocks, known, found, strict=True):
        assert [place for part in parts for place in range(part.start, part.end)] == list(range(block.start, block.end))
        assert [part.repeat for part in parts if part.repeat is not None] == rows
        assert all(part.end - part.start <= repeats.LONGEST for part in parts if part.repeat is None)
        for part in parts[:-1]:
            read = {name for name in made.program.registers if reads_first(made, part.end, name)}
            assert part.after == read
        for part in parts:
            for name in part.after:
                writes = [place for place in range(part.start, part.end) if name in made.writes[place]]
                assert [place for place, names in part.kept.items() if name in names] == writes[-1:]


def found_repeats(made, many=1):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "MANY", many)
        return repeats.repeats(made, lanes(made), normal(made))


def steps(first, second):
    """Each register from the one before it."""
    return "\n".join(
        f"mad.lo.u32 %r{place}, %r{place - 1 if place else REGISTERS - 1}, {first}, {second};"
        for place in range(REGISTERS)
    )


def stepped(values, first, second):
    for place in range(REGISTERS):
        values[place] = values[place - 1] * np.uint32(first) + second
    return values


def run(code, *, warps=1):
    """The sum of all registers, which begin with the lane's number plus their own; `%n` is 3."""
    declared = f".reg .b32 %r<{REGISTERS}>, %lane, %sum, %n, %i; .reg .b64 %at; .reg .pred %p;"
    begin = ["mov.u32 %lane, %tid.x;", "mov.u32 %n, %nctaid.x; add.u32 %n, %n, 2; mov.u32 %i, 0; mov.u32 %sum, 0;"]
    begin += [f"add.u32 %r{place}, %lane, {place};" for place in range(REGISTERS)]
    end = [f"add.u32 %sum, %sum, %r{place};" for place in range(REGISTERS)]
    end += ["ld.param.u64 %at, [p0]; mad.wide.u32 %at, %lane, 4, %at; st.global.b32 [%at], %sum; ret;"]
    out = np.zeros(32 * warps, np.uint32)
    launch(entry("\n".join([*begin, code, *end]), 1, declared), [out], warps=warps)
    return out


def start(warps=1):
    return [np.arange(32 * warps, dtype=np.uint32) + np.uint32(place) for place in range(REGISTERS)]


def test_a_loop_that_all_lanes_share(longest):
    found = run(f"$L:\n{steps(3, '%lane')}\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %n;\n@%p bra $L;")
    values = start()
    for _ in range(3):
        stepped(values, 3, LANES)
    assert (found == sum(values)).all()


def test_a_loop_that_each_lane_leaves_by_itself(longest):
    found = run(f"$L:\n{steps(5, '%i')}\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %lane;\n@%p bra $L;")
    values = start()
    for turn in range(32):
        moved = stepped([value.copy() for value in values], 5, np.uint32(turn))
        runs = (turn == 0) | (turn < LANES)
        values = [np.where(runs, new, old) for new, old in zip(moved, values, strict=True)]
    assert (found == sum(values)).all()


def test_floating_literals_may_be_decimal():
    code = """.reg .f32 %f<4>; mov.f32 %f1, 20.; add.f32 %f1, %f1, 1.4426950408889634;
mul.f32 %f1, %f1, 0d3FE0000000000000; fma.rn.f32 %f1, %f1, 2.5e-1, 1E2; mov.b32 %sum, %f1;"""
    sum_ = np.float32(20) + np.float32(1.4426950408889634)
    wanted = sum_ * np.float32(0.5) * np.float32(0.25) + np.float32(100)
    assert (run(code) == wanted.view(np.uint32) + sum(start())).all()


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


def test_a_jump_by_a_table_goes_where_each_lane_says():
    assert (run(JUMP.format(3)) == sum(start()) + np.array([1, 10, 100], np.uint32)[LANES % 3]).all()


def test_a_jump_beyond_its_table_is_a_fault():
    with pytest.raises(Fault) as caught:
        run(JUMP.format(4))
    assert caught.value.kind == "stopped"
    assert "lane 3" in str(caught.value)


def test_a_loop_with_a_barrier(longest):
    found = run(
        f"$L:\n{steps(3, '%n')}\nbar.sync 0;\n{steps(7, '%i')}\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %n;\n"
        "@%p bra $L;", warps=2,
    )  # fmt: skip
    values = start(2)
    for turn in range(3):
        stepped(stepped(values, 3, np.uint32(3)), 7, np.uint32(turn))
    assert (found == sum(values)).all()


def test_lanes_with_a_guard_write_alone(longest):
    code = ["setp.lt.u32 %p, %lane, 9;", *(f"@%p add.u32 %r{place}, %r{place}, {place};" for place in range(REGISTERS))]
    found = run("\n".join(code))
    assert (found == sum(start()) + np.where(LANES < 9, sum(range(REGISTERS)), 0)).all()
