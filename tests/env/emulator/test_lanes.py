# SPDX-License-Identifier: Apache-2.0
"""Exchanges between lanes, and lanes that part and come together again, against scalar simulations."""

import re

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, entry, evaluate, fails, launch
from verl_kernel.env.emulator.code import Library, compiled
from verl_kernel.env.emulator.errors import NotKnown

LANES = np.arange(32, dtype=np.uint32)
MODES = ["up", "down", "bfly", "idx"]
CLAMPS = [0x1F, 0, 0x0F, 0x181F, 0x1800, 0x1C03, 0x1E1F, 0x1007, 0x101F]
AMOUNTS = [0, 1, 5, 16, 31, 33]
SHUFFLES = {
    "an amount of each lane": ("shfl.sync.idx.b32 %d, %a, %b, 31, 0xFFFFFFFF;", (LANES * 13 + 5) % 32),
    "the register that is read": ("mov.b32 %d, %a; shfl.sync.bfly.b32 %d, %d, 1, 31, -1;", LANES ^ 1),
    "a mask in a register": (".reg .b32 %m, %n; mov.b32 %m, -1; mov.b32 %n, 1; shfl.sync.bfly.b32 %d, %a, %n, 31, %m;",
                             LANES ^ 1),
    "a sum by such a mask": (".reg .b32 %m; mov.b32 %m, -1; redux.sync.add.u32 %d, %a, %m;", LANES * 0 + 496),
}  # fmt: skip


def exchanged(lane, mode, amount, clamp):
    """PTX ISA, "shfl.sync": the lane that is read, and whether it is within range."""
    segment, limit, amount = clamp >> 8 & 31, clamp & 31, amount & 31
    most = lane & segment | limit & ~segment & 31
    least = lane & segment
    other = {
        "up": lane - amount, "down": lane + amount, "bfly": lane ^ amount, "idx": least | amount & ~segment & 31,
    }[mode]  # fmt: skip
    holds = other >= most if mode == "up" else other <= most
    return (other if holds else lane), holds


@pytest.mark.slow
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "register"])
@pytest.mark.parametrize("mode", MODES)
def test_shuffles_in_segments(mode, is_constant):
    values, code, outputs = LANES * 7 + 3, [".reg .b32 %x, %y;"], {}
    for row, (amount, clamp) in enumerate((amount, clamp) for amount in AMOUNTS for clamp in CLAMPS):
        place = (str(amount), str(clamp))
        if not is_constant:
            code.append(f"add.u32 %x, %zero, {amount}; add.u32 %y, %zero, {clamp};")
            place = ("%x", "%y")
        code.append(f"shfl.sync.{mode}.b32 %d{row}|%p{row}, %a, {place[0]}, {place[1]}, -1;")
        outputs |= {f"d{row}": np.uint32, f"p{row}": bool}
    found = evaluate("\n".join(code), {"a": values, "zero": LANES * 0}, outputs)
    for row, (amount, clamp) in enumerate((amount, clamp) for amount in AMOUNTS for clamp in CLAMPS):
        wanted = [exchanged(lane, mode, amount, clamp) for lane in range(32)]
        assert [int(item) for item in found[f"d{row}"]] == [7 * other + 3 for other, _ in wanted], (amount, clamp)
        assert [bool(item) for item in found[f"p{row}"]] == [holds for _, holds in wanted], (amount, clamp)


@pytest.mark.parametrize("code, wanted", SHUFFLES.values(), ids=SHUFFLES)
def test_exchanges_with_registers(code, wanted):
    found = evaluate(code, {"a": LANES, "b": (LANES * 13 + 5) % 32}, {"d": np.uint32})
    assert (found["d"] == wanted).all()


@pytest.mark.parametrize("bits", [0, 1, 0xFFFFFFFF, 0x80000000, 0x0F0F1234])
def test_votes(bits):
    said = np.array([bool(bits >> lane & 1) for lane in range(32)])
    code = (
        "vote.sync.ballot.b32 %d, %a, -1; vote.sync.any.pred %y, %a, -1; vote.sync.all.pred %e, %a, -1;"
        "vote.sync.uni.pred %u, %a, -1; vote.sync.all.pred %n, !%a, -1; activemask.b32 %m;"
    )
    outputs = {"d": np.uint32, "m": np.uint32} | dict.fromkeys("yeun", bool)
    found = {name: int(row[0]) for name, row in evaluate(code, {"a": said}, outputs).items()}
    wanted = {"y": bits != 0, "e": bits == 0xFFFFFFFF, "u": bits in (0, 0xFFFFFFFF), "n": bits == 0}
    assert found == {"d": bits, "m": 0xFFFFFFFF, **wanted}


def test_reductions():
    values = [int(item) for item in np.random.default_rng(0).integers(0, 1 << 32, 32)]
    own = [item - (1 << 32) if item >> 31 else item for item in values]
    kinds = ["add.s32", "add.u32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32"]
    code = "\n".join(f"redux.sync.{kind} %d{place}, %a, -1;" for place, kind in enumerate(kinds))
    outputs = {f"d{place}": np.uint32 for place in range(len(kinds))}
    found = [int(row[0]) for row in evaluate(code, {"a": np.array(values, np.uint32)}, outputs).values()]
    logic = [np.bitwise_and, np.bitwise_or, np.bitwise_xor]
    wanted = [sum(own), sum(values), min(own), max(own), min(values), max(values)]
    wanted += [int(function.reduce(np.array(values, np.uint32))) for function in logic]
    assert found == [item & 0xFFFFFFFF for item in wanted]


def run(body, values):
    """A kernel that makes `%d` of `%a`, one a lane, and stores it at the label DONE."""
    text = entry(
        f"ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4;"
        f"add.u64 %in, %in, %off; add.u64 %out, %out, %off; ld.global.b32 %a, [%in];\n{body}\n"
        "DONE: st.global.b32 [%out], %d; ret;",
        2, ".reg .b32 %a, %d, %t, %x<8>; .reg .b64 %in, %out, %off; .reg .pred %p<8>;",
    )  # fmt: skip
    result = np.full(len(values), 0xDEAD, np.uint32)
    launch(text, [values.astype(np.uint32), result], warps=len(values) // 32)
    return result


def collatz(value):
    steps = 0
    while value != 1:
        value, steps = (3 * value + 1 if value & 1 else value // 2), steps + 1
    return steps


WAYS = [(lane & 1 if lane < 20 else 2 if lane < 25 else 3) for lane in range(32)]
STEPS = [collatz(lane + 1) for lane in range(32)]
# Values of `%a`, code, and what each lane stores.
PROGRAMS = {
    "guards choose lanes": (
        LANES, "mov.u32 %d, 1; setp.lt.u32 %p1, %a, 10; @%p1 mov.u32 %d, 2; @!%p1 add.u32 %d, %d, 40;",
        [2] * 10 + [41] * 22,
    ),
    "guards keep stores and loads of other lanes away": (LANES, """
    mov.u32 %d, 7; setp.lt.u32 %p1, %a, 4; @%p1 ld.global.b32 %d, [%in+112]; // past the end for all others
    setp.eq.u32 %p2, %a, 3; @%p2 st.global.b32 [%out+4], %a; @!%p1 bra DONE; add.u32 %d, %d, 1000;
    """, [1028, 1029, 1030, 1031] + [7] * 28),
    "two ways and nested ones": (LANES, """
    setp.lt.u32 %p1, %a, 20; @%p1 bra LOW;
    setp.lt.u32 %p2, %a, 25; @%p2 bra MIDDLE;
    mov.u32 %d, 3; bra JOIN;
    MIDDLE: mov.u32 %d, 2; bra JOIN;
    LOW: and.b32 %x1, %a, 1; setp.eq.u32 %p3, %x1, 0; @%p3 bra EVEN;
    mov.u32 %d, 1; bra JOIN;
    EVEN: mov.u32 %d, 0;
    JOIN: shfl.sync.bfly.b32 %x2, %d, 1, 31, -1; mad.lo.u32 %d, %x2, 10, %d;
    """, [10 * WAYS[lane ^ 1] + WAYS[lane] for lane in range(32)]),
    "rounds of each lane": (LANES + 1, """
    mov.u32 %d, 0; mov.u32 %x1, %a;
    LOOP: setp.eq.u32 %p1, %x1, 1; @%p1 bra OUT;
    and.b32 %x2, %x1, 1; setp.eq.u32 %p2, %x2, 0; @%p2 bra EVEN;
    mad.lo.u32 %x1, %x1, 3, 1; bra NEXT;
    EVEN: shr.u32 %x1, %x1, 1;
    NEXT: add.u32 %d, %d, 1; bra LOOP;
    OUT: redux.sync.max.u32 %x3, %d, -1; mad.lo.u32 %d, %x3, 1000, %d;
    """, [1000 * max(STEPS) + item for item in STEPS]),
    "loops in loops": (LANES % 7, """
    mov.u32 %d, 0; mov.u32 %x1, 0;
    OUTER: setp.ge.u32 %p1, %x1, %a; @%p1 bra DONE;
    mov.u32 %x2, 0;
    INNER: add.u32 %d, %d, %x2; add.u32 %x2, %x2, 1; setp.le.u32 %p2, %x2, %x1; @%p2 bra INNER;
    add.u32 %x1, %x1, 1; bra OUTER;
    """, [sum(y for x in range(lane % 7) for y in range(x + 1)) for lane in range(32)]),
    "a rotated loop, where lanes meet before the block in which they part": (LANES, """
    mov.u32 %d, 0; mov.u32 %x1, 0; bra BODY;
    MEET: redux.sync.add.u32 %x2, %x3, -1; add.u32 %d, %d, %x2; add.u32 %x1, %x1, 1;
    setp.eq.u32 %p2, %x1, 3; @%p2 bra DONE;
    BODY: mov.u32 %x3, 1; setp.lt.u32 %p1, %a, 5; @%p1 bra MEET; add.u32 %x3, %x3, %x1; bra.uni MEET;
    """, [sum(32 + 27 * turn for turn in range(3))] * 32),
    "lanes that ended take no part": (LANES, """
    setp.ge.u32 %p1, %a, 24; @%p1 ret;
    shfl.sync.up.b32 %d|%p2, %a, 1, 0, -1; vote.sync.ballot.b32 %x1, %p2, -1;
    redux.sync.add.u32 %x2, %a, -1; redux.sync.min.u32 %x3, %a, -1; redux.sync.and.b32 %x4, %x1, -1;
    redux.sync.max.s32 %x5, -5, -1; mad.lo.u32 %d, %d, 1000, %x2;
    add.u32 %d, %d, %x3; xor.b32 %d, %d, %x1; xor.b32 %d, %d, %x4; add.u32 %d, %d, %x5;
    """, [(max(lane - 1, 0) * 1000 + sum(range(24)) - 5) & 0xFFFFFFFF for lane in range(24)] + [0xDEAD] * 8),
    "local memory of each lane": (LANES, """
    .local .align 8 .b8 depot[16]; .reg .b64 %w; mov.u64 %w, depot; st.local.b32 [%w+4], %t; add.u32 %x1, %t, 100;
    st.local.b32 [%w+8], %x1; ld.local.b32 %x2, [%w+4]; ld.local.b32 %x3, [%w+8]; mad.lo.u32 %d, %x2, 1000, %x3;
    """, [1000 * lane + 100 + lane for lane in range(32)]),
    "active lanes of a branch": (LANES, "mov.u32 %d, 0; setp.lt.u32 %p1, %a, 5; @!%p1 bra DONE; activemask.b32 %d;",
                                 [0x1F] * 5 + [0] * 27),
    "warps meet at a barrier": (3 * np.arange(64), """
    .shared .b32 box[64];
    mov.u32 %x1, box; shl.b32 %x2, %t, 2; add.u32 %x3, %x1, %x2; st.shared.b32 [%x3], %a; bar.sync 0;
    xor.b32 %x2, %x2, 128; add.u32 %x3, %x1, %x2; ld.shared.b32 %d, [%x3];
    """, [3 * (lane ^ 32) for lane in range(64)]),
    "addresses of a space are generic": (3 * np.arange(64), """
    .shared .b32 box[64]; .reg .b64 %policy, %g;
    createpolicy.fractional.L2::evict_first.b64 %policy, 1.0; prefetch.global.L2 [%in]; discard.global.L2 [%out], 128;
    applypriority.global.L2::evict_normal [%in], 128; griddepcontrol.wait; nanosleep.u32 100; membar.gl;
    cvta.global.u64 %g, %in; cvta.to.global.u64 %g, %g; ld.global.b32 %d, [%g];
    mov.u32 %x1, box; shl.b32 %x2, %t, 2; add.u32 %x3, %x1, %x2; st.shared.b32 [%x3], %d; barrier.sync 0;
    xor.b32 %x2, %x2, 128; add.u32 %x3, %x1, %x2; ld.shared.b32 %d, [%x3]; griddepcontrol.launch_dependents;
    """, [3 * (lane ^ 32) for lane in range(64)]),
}  # fmt: skip


@pytest.mark.parametrize("values, code, wanted", PROGRAMS.values(), ids=PROGRAMS)
def test_what_each_lane_stores(values, code, wanted):
    assert [*run(code, values)] == wanted


@pytest.mark.parametrize("instruction", [
    "shfl.sync.bfly.b32 %d, %a, 1, 31, -1;", "redux.sync.add.s32 %d, %a, -1;", "vote.sync.ballot.b32 %d, %p1, -1;",
    "bar.warp.sync -1;",
])  # fmt: skip
def test_what_needs_all_lanes_faults_where_some_are_away(instruction):
    with fails("divergent", rf"{re.escape(instruction[:-1])}`.*block 0, warp 0, lane 5"):
        run(f"mov.u32 %d, 0; setp.lt.u32 %p1, %a, 5; @!%p1 bra DONE;\n{instruction}", LANES)


def test_two_barriers_apart_are_a_fault():
    code = "mov.u32 %d, 0; setp.lt.u32 %p1, %a, 5; @%p1 bra OTHER; bar.sync 0; bra DONE; OTHER: bar.sync 0;"
    with fails("divergent"):
        run(code, LANES)


def test_a_lane_waits_for_a_lock_when_others_have_returned():
    held = aligned(64, np.uint32)
    code = """
    ld.param.u64 %lock, [p0]; mov.u32 %x, %tid.x; setp.ne.u32 %p, %x, 0; @%p ret;
    LOOP: atom.acq_rel.gpu.global.cas.b32 %x, [%lock], 0, 1; setp.eq.u32 %p, %x, 1; @%p bra LOOP;
    ld.volatile.global.u32 %x, [%lock+4]; add.u32 %x, %x, 1; st.volatile.global.u32 [%lock+4], %x;
    atom.acq_rel.gpu.global.exch.b32 %x, [%lock], 0; ret;
    """
    launch(entry(code, 1, ".reg .b64 %lock; .reg .b32 %x; .reg .pred %p;"), [held], blocks=5)
    assert [*held[:2]] == [0, 5]


def test_code_that_llvm_would_give_up_on_is_refused():
    Library()
    text = "define i32 @f(i1 %c) { br i1 %c, label %A, label %B\nA: %x = add i32 1, 1\nret i32 0\nB: ret i32 %x }"
    with pytest.raises(NotKnown, match="its own mistake: Instruction does not dominate all uses"):
        compiled(text)
