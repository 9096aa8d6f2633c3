# SPDX-License-Identifier: Apache-2.0
"""Atomics: every operation with all lanes on one address, and on addresses of their own."""

import functools
import itertools

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, entry, fails, launch
from tests.env.emulator.rounding import F32, FORMATS, calculated
from tests.env.emulator.test_integers import signed
from tests.tiers import one_of_each
from verl_kernel.env.emulator.errors import Fault, NotKnown
from verl_kernel.env.emulator.kernel import Kernel

CHANGES = {
    "add": lambda old, value: old + value, "min": min, "max": max, "and": lambda old, value: old & value,
    "or": lambda old, value: old | value, "xor": lambda old, value: old ^ value, "exch": lambda old, value: value,
    "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
}  # fmt: skip
KINDS = {
    "add": ["u32", "s32", "u64"], "min": ["u32", "s32", "u64", "s64"], "max": ["u32", "s32", "u64", "s64"],
    "and": ["b32", "b64"], "or": ["b32", "b64"], "xor": ["b32", "b64"], "exch": ["b32", "b64"],
    "inc": ["u32"], "dec": ["u32"],
}  # fmt: skip
CASES = [(change, kind, room) for change, kinds in KINDS.items() for kind in kinds for room in ("global", "shared")]
WORDS_OF_HALVES = """
ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x; mul.wide.u32 %p, %t, 2; add.u64 %p, %p, %in; and.b64 %w, %p, -4;
sub.u64 %off, %p, %w; cvt.u32.u64 %s, %off; shl.b32 %s, %s, 3; shl.b32 %one, 1, %s; setp.ge.u32 %out, %t, 5;
@%out ret; ld.global.b32 %a, [%w];
AGAIN: add.u32 %b, %a, %one; atom.global.cas.b32 %c, [%w], %a, %b; setp.ne.b32 %q, %c, %a; mov.b32 %a, %c;
@%q bra AGAIN; ret;
"""
HALVES = ".reg .b64 %in, %p, %w, %off; .reg .b32 %t, %s, %one, %a, %b, %c; .reg .pred %q, %out;"


def kernel(room, instruction, bits, stride, values=1):
    """Lanes change `[%p]` by `%b` (and `%c`); what was there goes to p2. Shared memory is filled and read by lane 0."""
    kind = {16: "b16", 32: "b32", 64: "b64"}[bits]
    size = bits // 8
    before, after = "", ""
    if room == "shared":
        before = f"ld.global.{kind} %a, [%in]; st.shared.{kind} [0], %a;"
        after = f"ld.shared.{kind} %a, [0]; st.global.{kind} [%in], %a;"
    place = "mov.b64 %p, 0;" if room == "shared" else f"mul.wide.u32 %p, %t, {stride}; add.u64 %p, %p, %in;"
    return entry(
        f"ld.param.u64 %in, [p0]; ld.param.u64 %from, [p1]; ld.param.u64 %out, [p2]; mov.u32 %t, %tid.x;"
        f"mul.wide.u32 %off, %t, {size}; add.u64 %from, %from, %off; add.u64 %out, %out, %off;"
        f"ld.global.{kind} %b, [%from]; ld.global.{kind} %c, [%from+{32 * size * (values - 1)}]; {before} {place}"
        f"{instruction} st.global.{kind} [%out], %a; {after} ret;",
        3, f".reg .{kind} %a, %b, %c; .reg .b64 %in, %from, %out, %off, %p; .reg .b32 %t; .reg .pred %q;",
    )  # fmt: skip


def run(room, instruction, bits, start, values, stride=0):
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    place, given, old = (aligned(64 * 8, dtype) for _ in range(3))
    place[: len(start)], given[: len(values)] = start, values
    launch(kernel(room, instruction, bits, stride, len(values) // 32), [place, given, old], shared=64)
    return [int(item) for item in place[: len(start)]], [int(item) for item in old[:32]]


@pytest.mark.parametrize("case", one_of_each(CASES, lambda case: (case[0], case[2])), ids="-".join)
def test_all_lanes_change_one_integer_in_order(case):
    change, kind, room = case
    bits, mask = int(kind[1:]), (1 << int(kind[1:])) - 1
    values = [int(item) & mask for item in np.random.default_rng(3).integers(0, 1 << 63, 32)]
    if change in ("inc", "dec"):
        values = [3 + lane % 5 for lane in range(32)]
    mark = "" if room == "shared" else ".gpu.acq_rel"
    place, old = run(room, f"atom.{room}{mark}.{change}.{kind} %a, [%p], %b;", bits, [5], values)
    now, wanted = 5, []
    typed = (lambda item: signed(item, bits)) if kind[0] == "s" else (lambda item: item)
    for value in values:
        wanted.append(now & mask)
        now = CHANGES[change](typed(now & mask), typed(value))
    assert (place, old) == ([now & mask], wanted)


@pytest.mark.parametrize("room", ["global", "shared"])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_one_lane_wins_a_comparison_and_exchange(bits, room):
    compared = [7] * 16 + [100] * 16
    place, old = run(room, f"atom.{room}.cas.b{bits} %a, [%p], %b, %c;", bits, [7], [*compared, *range(100, 132)])
    assert (place, old) == ([116], [7] + [100] * 16 + [116] * 15)


@pytest.mark.parametrize("room", ["global", "shared"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_sums_of_floats_are_rounded_at_each_step(kind, room):
    form, bits = FORMATS[kind], np.random.default_rng(5).integers(0x30000000, 0x50000000, 32)
    values = [form.rounded(F32.value(int(item))) for item in bits]
    place, old = run(room, f"atom.{room}.add.{kind} %a, [%p], %b;", form.bits, [form.rounded(1)], values)
    sums = running(form, form.rounded(1), values)
    assert (place, old) == ([sums[-1]], sums[:-1])


def running(form, start, values):
    return [*itertools.accumulate(values, lambda now, value: calculated("add", form, [now, value]), initial=start)]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_sums_of_halves(kind):
    form = FORMATS[kind]
    values = [form.rounded(lane + 1) for lane in range(32)]
    place, _ = run("global", f"atom.global.add.noftz.{kind} %a, [%p], %b;", 16, [form.rounded(1)], values)
    assert place == [running(form, form.rounded(1), values)[-1]]
    packed = [high << 16 | low for high, low in zip(values, values[::-1], strict=True)]
    both, _ = run("global", f"atom.global.add.noftz.{kind}x2 %a, [%p], %b;", 32, [0], packed)
    assert both == [running(form, 0, values)[-1] << 16 | running(form, 0, values[::-1])[-1]]


@pytest.mark.parametrize("room", ["global", "shared"])
def test_sums_of_subnormals_are_flushed_in_global_memory_only(room):
    """As the PTX ISA says of `atom.add.f32` and `red.add.f32`."""
    place, _ = run(room, f"atom.{room}.add.f32 %a, [%p], %b;", 32, [3], [5] * 32)
    assert place == [0 if room == "global" else 3 + 32 * 5]


@pytest.mark.parametrize("change, kind", [("add", "u32"), ("max", "s64"), ("xor", "b32")])
def test_reductions_give_nothing_back(change, kind):
    bits, values = int(kind[1:]), [3 * lane + 1 for lane in range(32)]
    place, _ = run("global", f"mov.b{bits} %a, 0; red.global.{change}.{kind} [%p], %b;", bits, [5], values)
    assert place == [functools.reduce(CHANGES[change], values, 5)]


def test_lanes_with_addresses_of_their_own_and_a_guard():
    code = "mov.b32 %a, 9; setp.lt.u32 %q, %t, 20; @%q atom.global.add.u32 %a, [%p], %b;"
    place, old = run("global", code, 32, list(range(32)), [100] * 32, stride=4)
    assert place == [lane + 100 * (lane < 20) for lane in range(32)]
    assert old == [*range(20), *[9] * 12]


@pytest.mark.parametrize("offset, kind", [(2, "misaligned"), (4096, "out_of_bounds")])
def test_atomics_are_checked(offset, kind):
    code = f"setp.eq.u32 %q, %t, 6; @%q add.u64 %p, %p, {offset}; atom.global.add.u32 %a, [%p], %b;"
    with fails(kind, "lane 6"):
        run("global", code, 32, [0], [1] * 32)


@pytest.mark.parametrize("opcode", ["global.inc.f32", "global.add.b128", "add.u32", "global.min.b32"])
def test_other_combinations_are_refused(opcode):
    with pytest.raises(NotKnown, match="atom"):
        Kernel(kernel("global", f"atom.{opcode} %a, [%p], %b;", 32, 0), 1, 0)


def test_an_atomic_on_several_numbers_is_aligned_as_a_whole():
    text = "setp.eq.u32 %q, %t, 6; @%q add.u64 %p, %p, {offset}; atom.global.v2.add.f32 {{%a, %c}}, [%p], {{%b, %b}};"
    run("global", text.format(offset=8), 32, [0] * 8, [0] * 32)
    with fails("misaligned", "multiple of its 8 bytes.*lane 6"):
        run("global", text.format(offset=4), 32, [0] * 8, [0] * 32)


def test_halves_change_by_the_words_that_hold_them():
    """LLVM's atomics on 16 bits: the last word of an odd number of halves goes beyond their tensor."""
    halves = aligned(16, np.uint16)
    halves[:] = 7
    launch(entry(WORDS_OF_HALVES, 1, HALVES), [halves[:5]])
    assert [*halves] == [8] * 5 + [7] * 3
    plain = WORDS_OF_HALVES.replace("%w, %p, -4", "%w, %p, -8")
    with pytest.raises(Fault, match="a load lies outside of the launch's tensors"):
        launch(entry(plain.replace("[%w]", "[%w+8]"), 1, HALVES), [halves[:5]])
