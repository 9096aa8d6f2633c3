# SPDX-License-Identifier: Apache-2.0
"""Prices of executed kernels stand in the order that every GPU has (tests/env/executor/priced.py)."""

import json

import pytest

from tests.env.executor.ptx import aligned, buffer, entry
from tests.env.executor.test_programs import run
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.executor.ptx.program import Instruction
from verl_kernel.env.executor.work import costs
from verl_kernel.env.executor.work.steps import chains, groups, launch_work


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    done = run(tmp_path_factory.mktemp("triton"), "-m", "tests.env.executor.priced")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ORDERS = [
    ("stride 1", "stride 2", 1.3, 2.1), ("stride 2", "stride 8", 2, 5), ("half of it masked out", "stride 1", 1.8, 2.2),
    ("a half", "half of it masked out", 1, 1.15), ("stride 1", "spilled", 2, 20), ("16 blocks", "1 blocks", 10, 20),
    ("512 blocks", "16 blocks", 5, 32), ("1 of long rows", "2 of long rows", 1.8, 2.2),
    ("1 of short rows", "2 of short rows", 1, 1.5), ("half", "half, small tiles", 1.5, 10),
    ("half", "naive half", 10, 200), ("half", "tf32", 1.3, 3), ("tf32", "tf32x3", 1.5, 3.5), ("tf32", "ieee", 1.5, 10),
    ("8 integer", "256 integer", 20, 40), ("256 float", "256 integer", 4, 16), ("256 float", "256 exp", 3, 12),
    ("256 integer", "256 division", 2, 10), ("one row for all", "a row for each", 1.3, 1.6),
    ("gather in order", "gather at random", 1.2, 9), ("gather few", "gather in order", 1.1, 1.6),
    ("copied", "transposed", 1, 1.3), ("large, twice near", "large, twice far", 1.6, 2),
    ("small, twice near", "small, twice far", 1, 1),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("cheaper, dearer, least, most", ORDERS)
def test_a_kernel_is_cheaper_than_another(prices, cheaper, dearer, least, most):
    assert least <= prices[dearer] / prices[cheaper] * (1 + 1e-9)
    assert prices[dearer] <= most * prices[cheaper]


REGISTERS = (
    ".reg .b64 %in, %out, %a, %b, %o, %p1; .reg .b32 %t, %x, %y, %z; .reg .b16 %h; ld.param.u64 %in, [p0];"
    "ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.u64 %a, %in, %o; add.u64 %b, %out, %o;"
)


def ready(code, shared=0):
    return Kernel(entry(f"{REGISTERS} {code} ret;", 2), 1, shared)


def together(code, shared=0):
    made = ready(code, shared)
    return [(len(one.sites), one.turns) for one in groups(made.program, made.module)]


def test_loads_wait_together_until_one_is_needed():
    load, use = "ld.global.b32 {}, [{}];", "mul.wide.u32 %p1, {}, 0; add.u64 %p1, %p1, %a;"
    first, second = load.format("%x", "%a"), load.format("%y", "%a+128")
    assert together(first + second) == [(2, 1)]
    assert together(first + "add.u32 %z, %x, 1;" + second) == [(2, 1)]
    assert together(first + use.format("%x") + load.format("%y", "%p1")) == [(1, 1), (1, 1)]
    assert together(first + "st.global.b32 [%b], %x;" + second) == [(1, 1), (1, 1)]
    assert together(first + "bar.sync 0;" + second) == [(1, 1), (1, 1)]


def test_copies_are_under_way_until_the_kernel_waits():
    copy = "shl.b32 %x, %t, 2; cp.async.ca.shared.global [%x], [%a], 4; cp.async.commit_group;"
    for left in (0, 1, 3):
        assert together(f"{copy} cp.async.wait_group {left};", 128) == [(1, 1 + left)]


def test_an_event_tells_bytes_and_operations():
    source, target = aligned(4096), aligned(4096)
    made = ready("ld.global.f32 %x, [%a]; fma.rn.f32 %x, %x, %x, %x; add.f32 %x, %x, %x; st.global.f32 [%b], %x;")
    arrays = [source, target]
    count = made.launch((3,), [array.ctypes.data for array in arrays], [buffer(array) for array in arrays])
    work = launch_work(count)
    assert (work.bytes, work.flops, work.half_flops) == (3 * 2 * 128, 3 * 32 * 3, 0)
    assert work.reads[:2] == (128, 0)
    assert work.writes[:2] == (0, 128)
    (step,) = work.steps
    assert (step.bytes, step.l2_bytes, step.blocks, step.warps, step.in_flight) == (256, 768, 3, 1, 256)


def test_a_launch_whose_work_one_block_does_counts_as_one_block():
    skip = ".reg .pred %q; mov.u32 %y, %ctaid.x; setp.ne.u32 %q, %y, 0; @%q bra END;"
    loop = ".reg .pred %r; mov.u32 %z, 0; AGAIN: ld.global.b32 %x, [%a]; add.u32 %z, %z, 1;"
    made = ready(f"{skip} {loop} setp.lt.u32 %r, %z, 500; @%r bra AGAIN; END:")
    array = aligned(4096)
    count = made.launch((64,), [array.ctypes.data] * 2, [buffer(array)])
    assert launch_work(count).steps[0].blocks == 1


def cost_of(opcode):
    return costs.cost(Instruction(opcode, (), None, False, None, opcode))


def test_instructions_cost_their_units():
    def busy(opcode):
        return cost_of(opcode).units

    assert busy("fma.rn.f32") == (1, 0, 0, 0, 0)
    assert cost_of("fma.rn.f32").flops == 2
    assert cost_of("fma.rn.f16x2").flops == 4
    assert cost_of("setp.lt.f32").flops == 0
    assert busy("add.s32") == (1, 2, 0, 0, 0)
    assert busy("add.s64") == (2, 4, 0, 0, 0)
    assert busy("mul.lo.s64")[1] > busy("mul.wide.s32")[1]
    assert busy("div.s64")[1] > busy("div.s32")[1] > 8
    assert busy("ex2.approx.ftz.f32")[costs.SPECIAL] == 8 == busy("cvt.rn.f32.s64")[costs.SPECIAL]
    assert busy("sqrt.rn.f32") > busy("sqrt.approx.f32") > busy("sqrt.approx.ftz.f32")
    assert busy("shfl.sync.bfly.b32")[costs.SHARED] == costs.PER_SHARED
    assert busy("mul.f64")[costs.DOUBLE] == 2
    assert busy("redux.sync.add.s32")[costs.SHARED] == 2 * costs.PER_SHARED
    assert not any(busy("mov.b32"))
    assert not any(busy("ld.param.u64"))
    assert not any(busy("cp.async.commit_group"))


@pytest.mark.parametrize(
    "kinds, unit, flops, size",
    [
        ("m16n8k16.row.col.f32.f16.f16.f32", "half", 4096, 2), ("m16n8k16.row.col.f32.bf16.bf16.f32", "half", 4096, 2),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", 2048, 4), ("m8n8k4.row.col.f64.f64.f64.f64", "fma", 512, 8),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "half", 8192, 1),
        ("m16n8k32.row.col.satfinite.s32.s8.s8.s32", "half", 8192, 1),
    ],
)  # fmt: skip
def test_products_have_a_unit_by_their_type(kinds, unit, flops, size):
    found = cost_of(f"mma.sync.aligned.{kinds}")
    assert (found.product, found.product_flops, found.operand_bytes) == (unit, flops, size)


LOOP = ".reg .pred %r; .reg .f32 %f<3>; mov.u32 %z, 0;" + (
    "AGAIN: {} add.u32 %z, %z, 1; setp.lt.u32 %r, %z, 500; @%r bra AGAIN;"
)
SHARED = "shl.b32 %x, %t, 2; "
OWN = "fma.rn.f32 %f1, %f1, %f1, %f1;"
TO_OTHERS = "ld.shared.f32 %f1, [%x]; add.f32 %f1, %f1, %f1; st.shared.f32 [%x], %f1; bar.sync 0;"


@pytest.mark.parametrize(
    ("turn", "cycles"),
    [
        ("fma.rn.f32 %f1, %f2, %f2, %f2; ex2.approx.f32 %f1, %f1;", 4),  # the counter's
        (OWN, 4),
        (3 * OWN, 12),
        ("ex2.approx.f32 %f1, %f1;", 22),
        ("ld.global.b32 %y, [%a]; mad.wide.u32 %p1, %y, 4, %in;", 4),
        ("ld.global.b64 %a, [%a];", 23),
        ("shfl.sync.bfly.b32 %y, %y, 1, 31, -1;", 23),
        (TO_OTHERS, 23 + 4 + 20),
        ("ld.global.b32 %y, [%a]; st.shared.b32 [%x], %y; bar.sync 0; bar.sync 0;", 40),
    ],
)
def test_a_turn_takes_as_long_as_results_wait_for_each_other(turn, cycles):
    (chain,) = chains(ready(SHARED + LOOP.format(turn), 256).program)
    assert chain.cycles == cycles


@pytest.mark.parametrize(
    "turn",
    ["ld.volatile.global.b32 %y, [%a];", "setp.lt.u32 %r, %t, 5; @%r bra ON; fma.rn.f32 %f1, %f1, %f1, %f1; ON:"],
)
def test_a_loop_that_waits_for_others_has_no_chain(turn):
    assert chains(ready(LOOP.format(turn)).program) == []


def test_a_block_takes_as_long_as_its_turns():
    made, array = ready(SHARED + LOOP.format(TO_OTHERS), 256), aligned(4096)
    count = made.launch((7,), [array.ctypes.data] * 2, [buffer(array)])
    assert launch_work(count).steps[0].block_ns == int(500 * 47 / 1.755)
