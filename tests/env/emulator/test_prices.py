# SPDX-License-Identifier: Apache-2.0
"""What a launch costs: loads that wait together, units of instructions, chains, registers, and products of zeros."""

from itertools import pairwise

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, counted, entry, kernel
from tests.env.emulator.test_matrices import laid_out, written
from verl_kernel.env.emulator.flow.graph import pressure
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.ptx.program import Instruction
from verl_kernel.env.emulator.work import costs
from verl_kernel.env.emulator.work.steps import chains, facts_of, groups, launch_work, spilling

REGISTERS = (
    ".reg .b64 %in, %out, %a, %b, %o, %p1; .reg .b32 %t, %x, %y, %z; .reg .b16 %h; ld.param.u64 %in, [p0];"
    "ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %a, %in, %o; add.u64 %b, %out, %o;"
)
FIRST, SECOND = "ld.global.b32 %x, [%a];", "ld.global.b32 %y, [%a+128];"
NEXT = "mul.wide.u32 %p1, %x, 0; add.u64 %p1, %p1, %a;"
COPY = "shl.b32 %x, %t, 2; cp.async.ca.shared.global [%x], [%a], 4; cp.async.commit_group; cp.async.wait_group {};"
SHAPES = [("m16n8k16", "f16", 0), ("m16n8k8", "bf16", 0), ("m16n8k8", "tf32", 1), ("m16n8k4", "tf32", 1)]
LOOP = ".reg .pred %r; .reg .f32 %f<3>; mov.u32 %z, 0;" + (
    "AGAIN: {} add.u32 %z, %z, 1; setp.lt.u32 %r, %z, 500; @%r bra AGAIN;"
)
SHARED = "shl.b32 %x, %t, 2; "
OWN = "fma.rn.f32 %f1, %f1, %f1, %f1;"
TO_OTHERS = "ld.shared.f32 %f1, [%x]; add.f32 %f1, %f1, %f1; st.shared.f32 [%x], %f1; bar.sync 0;"
CHAIN = (
    ".reg .pred %r; mov.u32 %z, 0; AGAIN: ld.global.b32 %x, [%p1]; mul.wide.u32 %o, %x, 0; add.u64 %p1, %p1, %o;"
    "add.u64 %p1, %p1, 128; add.u32 %z, %z, 1; setp.lt.u32 %r, %z, 64; @%r bra AGAIN;"
)
"""64 loads, each of which needs the one before."""
WIDE = "mov.u64 %p1, %in;" + "".join(f"ld.global.b32 %y, [%a+{128 * number}];" for number in range(64))
VALUES = ".reg .b32 %x, %y, %z; .reg .b64 %a, %b; .reg .pred %p; .reg .b16 %h;"
LOADED = "ld.param.u64 %a, [p0]; ld.global.b32 %x, [%a];"
TURN = "mov.b32 %y, 0;\nAGAIN: add.u32 %y, %y, %x; setp.lt.u32 %p, %y, 9; @%p bra AGAIN; st.global.b32 [%a], %y;"
BODIES = {
    "an address and what it leads to": ("st.global.b32 [%a], %x;", 3),
    "what is read no more is free": ("mov.b32 %y, %x; mov.b32 %z, %y; st.global.b32 [%a], %z;", 3),
    "three at a time": ("add.u32 %y, %x, 1; add.u32 %z, %x, %y; st.global.b32 [%a], %z;", 4),
    "a predicate has no register": ("setp.eq.u32 %p, %x, 0; @%p st.global.b32 [%a], %x;", 3),
    "half a register is one": ("cvt.u16.u32 %h, %x; st.global.b16 [%a], %h;", 3),
    "what a loop needs lives through it": (TURN, 4),
}


def ready(code, shared=0):
    return Kernel(entry(f"{REGISTERS} {code} ret;", 2), 1, shared)


def together(code):
    made = ready(code, 128)
    return [(len(one.sites), one.turns) for one in groups(made.program, made.module)]


@pytest.mark.parametrize(("code", "wanted"), [
    (FIRST + SECOND, [(2, 1)]),
    (FIRST + "add.u32 %z, %x, 1;" + SECOND, [(2, 1)]),
    (FIRST + NEXT + "ld.global.b32 %y, [%p1];", [(1, 1), (1, 1)]),
    (FIRST + "st.global.b32 [%b], %x;" + SECOND, [(1, 1), (1, 1)]),
    (FIRST + "bar.sync 0;" + SECOND, [(1, 1), (1, 1)]),
    *((COPY.format(left), [(1, 1 + left)]) for left in (0, 1, 3)),
])  # fmt: skip
def test_loads_wait_together_until_one_is_needed(code, wanted):
    """And copies until the kernel waits for them."""
    assert together(code) == wanted


def test_a_wide_load_hides_no_chain_of_loads():
    """65 waits, or 64, or one."""
    arrays = [aligned(1 << 17), aligned(4096)]
    after = "add.u64 %p1, %in, 65536;"
    codes = {"both": WIDE + after + CHAIN, "chain": after + CHAIN, "wide": WIDE}
    waits = {}
    for name, code in codes.items():
        (step,) = launch_work(counted(ready(code), arrays)).steps
        waits[name] = step.bytes / step.in_flight
    assert waits == pytest.approx({"both": 65, "chain": 64, "wide": 1}, rel=0.02)


def test_loops_that_look_for_others_wait_for_nothing_else():
    """A loop that reads one place until it changes; not one that follows what it reads, nor one that works."""
    loop = ".reg .pred %r; AGAIN: {} setp.ne.u32 %r, %x, 0; @%r bra AGAIN;"
    bodies = {
        "ld.volatile.global.b32 %x, [%in];": True, "atom.global.add.u32 %x, [%in], 0;": True,
        "ld.volatile.global.b32 %x, [%p1]; mul.wide.u32 %o, %x, 4; add.u64 %p1, %p1, %o;": False,
        "atom.global.add.u32 %x, [%in], 0; st.global.b32 [%b], %x;": False,
        "atom.global.add.u32 %x, [%in], 0; ld.global.b32 %y, [%a];": False, "ld.global.b32 %x, [%in];": False,
        "atom.global.add.u32 %x, [%in], 0;" + 40 * "add.u32 %x, %x, 0;": False,
    }  # fmt: skip
    found = {body: bool(ready("mov.u64 %p1, %a;" + loop.format(body)).module.polls) for body in bodies}
    assert found == bodies


APART = (
    "mul.wide.u32 %o, %t, 16; add.u64 %b, %out, %o; add.s64 %p1, %b, 8; ld.global.b32 %x, [%a]; shl.b32 %z, %t, 2;"
    ".reg .b64 %c<4>, %d<4>; .reg .b32 %v<4>;"
) + "".join(
    f"or.b32 %v{lane}, %z, {512 + lane}; mul.wide.u32 %c{lane}, %v{lane}, 4; add.s64 %d{lane}, %out, %c{lane};"
    for lane in range(4)
)
"""Each lane has 16 bytes of its own."""
PLACES = ("%b", "%b+4", "%p1", "%p1+4")


@pytest.mark.parametrize(("codes", "times"), [
    ([f"red.global.add.f32 [{place}], %x;" for place in PLACES], 1),
    ([f"atom.global.add.f32 %y, [{place}], %x;" for place in PLACES], 1),
    ([f"red.global.add.f32 [{place}], %x;" for place in ("%d0", "%d1", "%d2", "%d3")], 1),
    ([f"red.global.add.u32 [{place}], %x;" for place in PLACES], 4),
    ([f"red.global.max.s32 [{place}], %x;" for place in PLACES], 4),
    ([f"red.global.add.f32 [{place}], %x;" for place in PLACES[::2]], 2),
    ([f"red.global.add.f32 [{place}], %x;" for place in (*PLACES[:2], *PLACES[:2])], 2),
    (["red.global.add.f32 [%b], %x; red.global.add.u32 [%b+4], %x;"], 2),
    (["red.global.add.f32 [%b], %x; bar.sync 0; red.global.add.f32 [%b+4], %x;"], 2),
])  # fmt: skip
def test_sums_of_neighbouring_floats_request_their_sectors_once(codes, times):
    """As code for an H100 makes one vector of them; of other atomics it makes none."""
    (step,) = launch_work(counted(ready(APART + "".join(codes)), [aligned(4096), aligned(4096)])).steps
    assert step.l2_bytes == 128 + times * 2 * 32 * 16
    assert step.blocks == 1


def test_spills_are_where_registers_do_not_suffice():
    """A branch that is never taken makes them no cheaper."""
    names = [f"%v{number}" for number in range(40)]
    crowd = "".join(f"ld.shared.b32 {name}, [{4 * at}];" for at, name in enumerate(names))
    crowd += "".join(f"st.shared.b32 [{4 * at}], {name};" for at, name in enumerate(names))
    turns = f".reg .b32 %v<40>; .reg .pred %r, %q; mov.u32 %z, 0; AGAIN: {crowd} add.u32 %z, %z, 1;"
    loop = f"{turns} setp.lt.u32 %r, %z, 50; @%r bra AGAIN;"
    never = "setp.gt.u32 %q, %t, 99; @!%q bra END;" + 4000 * "add.u32 %x, %x, 1;" + "END:"
    spilled = []
    for code in (loop, loop + never):
        made = ready(code, 256)
        count = counted(made, [aligned(4096)] * 2)
        known = spilling(facts_of(made.program, made.module), made.program, made.module, 400, 30)
        spilled.append(launch_work(count, known).steps[0].l2_bytes)
    assert spilled[0] == spilled[1] >= 2 * (400 - 128) * 32 * 50


def test_spills_cost_more_one_by_one():
    made = ready(FIRST + "st.global.b32 [%b], %x;")
    count = counted(made, [aligned(4096), aligned(4096)])
    sizes = range(96, 400, 4)
    facts = [spilling(facts_of(made.program, made.module), made.program, made.module, size, 1) for size in sizes]
    moved = [launch_work(count, each).steps[0].l2_bytes for each in facts]
    grown = [after - before for before, after in pairwise(moved)]
    assert grown[:8] == [0] * 8  # the first-level cache keeps 128 bytes a lane
    assert set(grown[8:]) == {2 * 4 * 32}


def test_an_event_tells_bytes_and_operations():
    made = ready("ld.global.f32 %x, [%a]; fma.rn.f32 %x, %x, %x, %x; add.f32 %x, %x, %x; st.global.f32 [%b], %x;")
    work = launch_work(counted(made, [aligned(4096), aligned(4096)], 3))
    assert (work.bytes, work.flops, work.half_flops) == (3 * 2 * 128, 3 * 32 * 3, 0)
    assert work.reads[:2] == (128, 0)
    assert work.writes[:2] == (0, 128)
    (step,) = work.steps
    assert (step.bytes, step.l2_bytes, step.blocks, step.warps, step.in_flight) == (256, 768, 3, 1, 256)


def test_a_launch_whose_work_one_block_does_counts_as_one_block():
    skip = ".reg .pred %q; mov.u32 %y, %ctaid.x; setp.ne.u32 %q, %y, 0; @%q bra END;"
    loop = ".reg .pred %r; mov.u32 %z, 0; AGAIN: ld.global.b32 %x, [%a]; add.u32 %z, %z, 1;"
    made = ready(f"{skip} {loop} setp.lt.u32 %r, %z, 500; @%r bra AGAIN; END:")
    assert launch_work(counted(made, [aligned(4096)] * 2, 64)).steps[0].blocks == 1


def cost_of(opcode):
    return costs.cost(Instruction(opcode, (), None, False, None, opcode))


def test_instructions_cost_their_units():
    def busy(opcode):
        return cost_of(opcode).units

    flops = {"fma.rn.f32": 2, "fma.rn.f16x2": 4, "setp.lt.f32": 0}
    assert {opcode: cost_of(opcode).flops for opcode in flops} == flops
    exact = {"fma.rn.f32": (1, 0, 0, 0, 0), "add.s32": (1, 2, 0, 0, 0), "add.s64": (2, 4, 0, 0, 0)}
    assert {opcode: busy(opcode) for opcode in exact} == exact
    assert busy("mul.lo.s64")[1] > busy("mul.wide.s32")[1]
    assert busy("div.s64")[1] > busy("div.s32")[1] > 8
    assert busy("ex2.approx.ftz.f32")[costs.SPECIAL] == 8 == busy("cvt.rn.f32.s64")[costs.SPECIAL]
    assert busy("sqrt.rn.f32") > busy("sqrt.approx.f32") > busy("sqrt.approx.ftz.f32")
    assert busy("shfl.sync.bfly.b32")[costs.SHARED] == costs.PER_SHARED
    assert busy("mul.f64")[costs.DOUBLE] == 2
    assert busy("redux.sync.add.s32")[costs.SHARED] == 2 * costs.PER_SHARED
    assert not any(sum(busy(opcode)) for opcode in ("mov.b32", "ld.param.u64", "cp.async.commit_group"))


@pytest.mark.parametrize("kinds, unit, flops, size", [
    ("m16n8k16.row.col.f32.f16.f16.f32", "half", 4096, 2), ("m16n8k16.row.col.f32.bf16.bf16.f32", "half", 4096, 2),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", 2048, 4), ("m8n8k4.row.col.f64.f64.f64.f64", "fma", 512, 8),
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "half", 8192, 1),
    ("m16n8k32.row.col.satfinite.s32.s8.s8.s32", "half", 8192, 1),
])  # fmt: skip
def test_products_have_a_unit_by_their_type(kinds, unit, flops, size):
    found = cost_of(f"mma.sync.aligned.{kinds}")
    assert (found.product, found.product_flops, found.operand_bytes) == (unit, flops, size)


@pytest.mark.parametrize(("turn", "cycles"), [
    ("fma.rn.f32 %f1, %f2, %f2, %f2; ex2.approx.f32 %f1, %f1;", [4]),  # the counter's
    (OWN, [4]),
    (3 * OWN, [12]),
    ("ex2.approx.f32 %f1, %f1;", [22]),
    ("ld.global.b32 %y, [%a]; mad.wide.u32 %p1, %y, 4, %in;", [4]),
    ("ld.global.b64 %a, [%a];", [23]),
    ("shfl.sync.bfly.b32 %y, %y, 1, 31, -1;", [23]),
    (TO_OTHERS, [23 + 4 + 20]),
    ("ld.global.b32 %y, [%a]; st.shared.b32 [%x], %y; bar.sync 0; bar.sync 0;", [40]),
    ("ld.volatile.global.b32 %y, [%a];", []),  # a loop that waits for others has no chain
    ("setp.lt.u32 %r, %t, 5; @%r bra ON; fma.rn.f32 %f1, %f1, %f1, %f1; ON:", []),
])  # fmt: skip
def test_a_turn_takes_as_long_as_results_wait_for_each_other(turn, cycles):
    assert [chain.cycles for chain in chains(ready(SHARED + LOOP.format(turn), 256).program)] == cycles


def test_a_block_takes_as_long_as_its_turns():
    made = ready(SHARED + LOOP.format(TO_OTHERS), 256)
    assert launch_work(counted(made, [aligned(4096)] * 2, 7)).steps[0].block_ns == int(500 * 47 / 1.755)


@pytest.mark.parametrize("body, most", BODIES.values(), ids=BODIES)
def test_registers_that_hold_something(body, most):
    assert pressure(parse(entry(f"{LOADED}{body}\nret;", parameters=1, declarations=VALUES))) == most


def voids(shape, kind, a, b):
    """Of a product of matrices of bits."""
    parts = [*laid_out(shape, kind, kind, "f32", a, b, np.zeros((16, 8), np.uint64))]
    given = aligned(128 * sum(part.shape[1] for part in parts), np.uint32)
    given[:] = np.concatenate(parts, axis=1).astype(np.uint32).ravel()
    made = kernel(written(shape, kind, kind, "f32", tuple(part.shape[1] for part in parts)))
    return counted(made, [given, aligned(512, np.uint32)]).voids


def full(shape):
    depth = int(shape.rpartition("k")[2])
    return np.full((16, depth), 0x3C00, np.uint64), np.full((depth, 8), 0x3C00, np.uint64), depth


@pytest.mark.parametrize(("shape", "kind", "unit"), SHAPES)
def test_products_of_zeros_are_counted_apart(shape, kind, unit):
    """By rows, by columns, and by places along k of either factor; single zeros are data."""
    for rows in (0, 1, 5, 11, 16):
        a, b, depth = full(shape)
        a[16 - rows :] = 0
        assert voids(shape, kind, a, b)[unit] == 2 * rows * 8 * depth
    a, b, _ = full(shape)
    assert voids(shape, kind, a, b) == (0, 0)
    b[:, [1, 2, 6]] = 0
    assert voids(shape, kind, a, b)[unit] == 2 * 16 * 3 * depth
    for is_left in (True, False):
        a, b, _ = full(shape)
        (a.T if is_left else b)[depth // 2 :] = 0
        assert voids(shape, kind, a, b)[unit] == 16 * 8 * depth
    a, b, _ = full(shape)
    a[::2, ::2] = a[1::2, 1::2] = 0
    assert voids(shape, kind, a, b) == (0, 0)
