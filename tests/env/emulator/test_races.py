# SPDX-License-Identifier: Apache-2.0
"""Races in small pieces of PTX: between blocks, between warps, in memory that is watched part by part; and what is
given up and said."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.emulator.ptx import aligned, buffer, entry, kernel, launch
from tests.env.emulator.test_memory import HEAD, REGISTERS
from tests.tiers import thinned
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.kernel import Watch
from verl_kernel.env.emulator.races import memory, rehearsal, vector_clocks

OWN = "mul.wide.u32 %off, %x1, 4; add.u64 %w1, %out, %off;"
LOAD, STORE, ADD = "ld.global.b32 %x2, [%out];", "st.global.b32 [%out], %x1;", "red.global.add.u32 [%out], %x1;"
STRONG, STRONG_STORE = "ld.relaxed.gpu.global.b32 %x2, [%out];", "st.relaxed.gpu.global.b32 [%out], %x1;"
EXCHANGE = "mul.lo.u32 %s, %t, 4; st.shared.b32 [%s], %t; {} xor.b32 %s, %s, 128; ld.shared.b32 %x2, [%s]; {}"
ACCESS = st.tuples(st.sampled_from(["ld", "st", "red", "bar"]), st.integers(0, 5), st.booleans())
RANGES = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 700)), max_size=8)
BLOCK_ATOMIC = "red.relaxed.cta.global.add.u32 [%out], %x1;"
BLOCK_STORE = "st.relaxed.cta.global.b32 [%out], %x1;"
HANDOVER = (
    "setp.eq.u32 %p1, %x1, 0; @%p1 bra FIRST; LOOP: {look}; setp.eq.u32 %p2, %x2, 0; @%p2 bra LOOP; {heard}"
    "ld.global.b32 %x3, [%in]; ret; FIRST: mul.wide.u32 %off, %t, 4; st.global.b32 [%in], %x1; {fence} {tell};"
)
TELL, LOOK = "st.release.gpu.global.b32 [%out], 1", "ld.acquire.gpu.global.b32 %x2, [%out]"
RELAXED_TELL, RELAXED_LOOK = TELL.replace("release", "relaxed"), LOOK.replace("acquire", "relaxed")
FENCE = "fence.acq_rel.gpu;"
BYTES = 1 << 16
LAST = f"[%out+{BYTES - 1}]"
STORE_BYTE = "cvt.u16.u32 %h1, %x1; st.global.b8 {}, %h1;"
COUNT = "ld.global.b32 %x2, [%w1]; add.u32 %x2, %x2, 1; st.global.b32 [%w1], %x2;"
TICKET = "mov.u32 %x4, 1; atom.acq_rel.gpu.global.add.u32 %x3, [%in], %x4;"


def run(code, arrays, **more):
    """`%x1` is the number of the block."""
    return launch(entry(f"{HEAD} mov.u32 %x1, %ctaid.x; {code} ret;", 2, REGISTERS), arrays, **more)


def found(code, watch, *, size=4096, blocks=2, **more):
    """The race in code that may access `[%in]`, of 4 kB, and `[%out]`, of so many bytes; or None."""
    try:
        run(code, [aligned(4096), aligned(size)], watch=watch, blocks=blocks, **more)
    except Fault as fault:
        assert fault.kind == "race", fault
        return fault
    return None


def watched(code, *, between_warps=True, most_bytes=1 << 30, **more):
    watch = Watch(between_warps=between_warps, most_bytes=most_bytes)
    fault = found(code, watch, **more)
    assert fault or not watch.not_watched + watch.not_decided
    return fault


@pytest.mark.parametrize("first, second, is_race", [
    (LOAD, LOAD, False), (LOAD, STORE, True), (STORE, STORE, True), (STORE, LOAD, True), (ADD, ADD, False),
    (ADD, LOAD, True), (LOAD, ADD, True), (ADD, STORE, True), (STORE, ADD, True), (STRONG, ADD, False),
    (ADD, STRONG, False), (STRONG, STORE, True), (STORE, STRONG, True), (STRONG, LOAD, False),
    (STRONG_STORE, STRONG, False), (STRONG_STORE, STRONG_STORE, False), (STRONG_STORE, LOAD, True),
    (LOAD, STRONG_STORE, True), (STRONG_STORE, ADD, False), (STRONG_STORE, STORE, True),
])  # fmt: skip
def test_pairs_of_accesses_by_two_blocks(first, second, is_race):
    assert bool(watched(f"setp.eq.u32 %p1, %x1, 0; @!%p1 bra OTHER; {first} ret; OTHER: {second}")) == is_race
    assert watched(f"{first} {second}", blocks=1) is None


def test_the_sentence_of_a_race():
    fault = watched("setp.eq.u32 %p1, %t, 5; @%p1 st.global.b32 [%out+8], %x1;", blocks=3, order=[2, 0, 1])
    assert "`@%p1 st.global.b32 [%out+8], %x1` accesses address 0x" in str(fault)
    assert "which block 2 (warp 0) has stored to, and nothing orders the two (block 0, warp 0, lane 5)" in str(fault)


@pytest.mark.parametrize("bits, register", [(8, "%h1"), (16, "%h1"), (32, "%x1")])
def test_bytes_of_one_word_are_told_apart(bits, register):
    code = f"cvt.u16.u32 %h1, %x1; mul.wide.u32 %off, %x1, {bits // 8}; add.u64 %w1, %out, %off;"
    code += f"st.global.b{bits} [%w1], {register};"
    assert watched(f"{code} ld.global.b{bits} {register}, [%w1];", blocks=16) is None
    wide = "setp.eq.u32 %p1, %x1, 15; @%p1 ld.global.v4.b32 {%x2, %x3, %x4, %x5}, [%out];"
    assert watched(f"{code} {wide}", blocks=16)


def test_a_buffer_that_is_given_twice_is_watched_once():
    array, both = aligned(256), "st.global.b32 [%in], %x1; st.global.b32 [%out+4], %x1;"
    made = kernel(entry(f"{HEAD} mov.u32 %x1, %ctaid.x; {both} ret;", 2, REGISTERS))
    for second in (array, array[4:]):
        addresses = [array.ctypes.data, second.ctypes.data - 4]
        with pytest.raises(Fault, match="which block 0"):
            made.launch((2,), addresses, [buffer(array), buffer(second)], watch=Watch())


@pytest.mark.parametrize("ending", ["", "st.shared.b32 [%s], %x2;", "bar.sync 0; st.shared.b32 [%s], %x2;"])
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_warps_exchange_through_shared_memory(barrier, ending):
    is_race = not barrier or ending.startswith("st")
    fault = watched(EXCHANGE.format(barrier, ending), warps=2, shared=256)
    assert bool(fault) == bool(not barrier)  # lanes store where they have loaded themselves
    turned = EXCHANGE.format(barrier, ending.replace("st.", "xor.b32 %s, %s, 128; st."))
    fault = watched(turned, warps=2, shared=256)
    assert bool(fault) == is_race
    if fault:
        assert "byte " in str(fault)
        assert "of shared memory, which warp" in str(fault)
        assert "with no barrier between" in str(fault)


EQUAL = "mov.u32 %x3, 7; st.global.b32 [%out], %x3;"
SHARED_EQUAL = "mov.u32 %x3, 3; st.shared.b32 [0], %x3; bar.sync 0;"
BOTH = f"{EQUAL} ld.global.b32 %x4, [%out];"
DOUBLE = (
    "mov.u32 %x3, 0; mov.u32 %x7, 0; LOOP: and.b32 %x4, %x3, 1; shl.b32 %x4, %x4, 8; mad.lo.u32 %s, %t, 4, %x4;"
    "st.shared.b32 [%s], %x3; {} xor.b32 %s, %s, 128; ld.shared.b32 %x5, [%s]; add.u32 %x7, %x7, %x5; {}"
    "add.u32 %x3, %x3, 1; setp.lt.u32 %p1, %x3, 6; @%p1 bra LOOP;"
)
SINGLE = DOUBLE.replace("shl.b32 %x4, %x4, 8", "mov.u32 %x4, 0")
COPY = (
    "mul.wide.u32 %off, %t, 16; add.u64 %w1, %in, %off; cvt.u32.u64 %s, %off; cp.async.cg.shared.global [%s], [%w1],"
    "16; cp.async.commit_group; cp.async.wait_group 0; {} xor.b32 %s, %s, 512; ld.shared.b32 %x2, [%s];"
)
SHARED_ADD, FIRST_WARP = "atom.shared.add.u32 %x2, [0], %x1;", "setp.lt.u32 %p1, %t, 32; @%p1"
SHARED_LOAD, SHARED_STORE = "ld.shared.b32 %x2, [0];", "st.shared.b32 [0], %t;"
OWN_STORE = f"{FIRST_WARP} st.shared.b32 [0], %x1;"
WRITE_BACK = f"{LOAD} setp.eq.u32 %p1, %t, 0; @%p1 add.u32 %x2, %x2, 1; @%p1 st.global.b32 [%out], %x2;"
THROWN = (
    "setp.ne.u32 %p1, %x1, 0; @%p1 bra NEXT; st.global.b32 [%in], %x1; NEXT: mov.u32 %x4, 1;"
    "atom.acq_rel.gpu.global.add.u32 %x2, [%out], %x4; ld.global.b32 %x3, [%in];"
)
ROUNDED = (  # 0x40134c16 in two steps, 0x40134c15 in one
    "setp.lt.u32 %p1, %t, 32; mov.b32 %x3, 0x3f8fbbdc; mov.b32 %x4, 0x3f8658bc; mul.rn.f32 %x5, %x3, %x4;"
    "add.rn.f32 %x5, %x5, %x3; @%p1 fma.rn.f32 %x5, %x3, %x4, %x3; st.shared.b32 [0], %x5;"
)
ENTER = (
    "mov.u32 %x4, 1; mov.u32 %x5, 0; setp.eq.u32 %p1, %t, 0; LOOP: mov.u32 %x3, 0;"
    "@%p1 atom.{}.gpu.global.cas.b32 %x3, [%in], %x5, %x4; setp.ne.u32 %p2, %x3, 0; @%p2 bra LOOP;"
)
LEAVE = "@%p1 atom.{}.gpu.global.exch.b32 %x3, [%in], %x5;"
LOCKED = f"mul.wide.u32 %off, %t, 4; add.u64 %w1, %out, %off; {ENTER} bar.sync 0; {COUNT} {{}} {LEAVE}"
LAST_LOOKS = (
    f"{OWN} setp.eq.u32 %p1, %t, 0; @!%p1 bra END; st.global.b32 [%w1], %x1; mov.u32 %x4, 1; mov.u32 %x5, 0;"
    "atom.{}.gpu.global.add.u32 %x3, [%in], %x4; {} ld.global.v4.b32 {{%x4, %x5, %x6, %x7}}, [%out]; {} END:"
)
"""The last of four blocks loads what all have stored."""
CHOICE = "setp.ne.u32 %p2, %x3, 3; @%p2 bra END;"
MEET = OWN + (
    "st.global.b32 [%w1], %x1; mov.u32 %x4, 1; setp.eq.u32 %p1, %t, 0;"
    "@%p1 red.{0}.gpu.global.add.u32 [%in], %x4; LOOP: ld.{1}.gpu.global.b32 %x3, [%in];"
    "setp.lt.u32 %p2, %x3, 4; @%p2 bra LOOP; ld.global.b32 %x5, [%out+8];"
)
IN_TURN = (
    "LOOP: ld.{1}.gpu.global.b32 %x3, [%in]; setp.ne.u32 %p2, %x3, %x1; @%p2 bra LOOP; ld.global.b32 %x5, [%out];"
    "add.u32 %x5, %x5, %x1; st.global.b32 [%out], %x5; mov.u32 %x4, 1; setp.eq.u32 %p1, %t, 0;"
    "@%p1 red.{0}.gpu.global.add.u32 [%in], %x4;"
)
TURNED = (
    "mul.wide.u32 %off, %t, 4; add.u64 %w1, %out, %off; st.global.b32 [%w1], %t; {} xor.b32 %s, %t, 32;"
    "mul.wide.u32 %off, %s, 4; add.u64 %w1, %out, %off; ld.global.b32 %x2, [%w1];"
)
BARRIER, TWO_WARPS, FOUR = "bar.sync 0;", {"warps": 2, "shared": 1024}, {"blocks": 4, "warps": 2, "shared": 64}
RACES = {
    "equal stores": (EQUAL, {"blocks": 5}, False),
    "different stores": (EQUAL.replace(" 7;", " %x1;"), {"blocks": 5}, True),
    "a block loads what all store": (BOTH, {"blocks": 3}, False),
    "a third block loads": (f"setp.lt.u32 %p1, %x1, 2; @%p1 bra BOTH; {LOAD} ret; BOTH: {BOTH}", {"blocks": 3}, True),
    "another value after equal ones": (f"{EQUAL} setp.eq.u32 %p1, %x1, 1; @%p1 {STORE}", {"blocks": 2}, True),
    "in one block": (f"{EQUAL} setp.eq.u32 %p1, %x1, 1; @%p1 {STORE}", {"blocks": 1}, False),
    "a double buffer": (DOUBLE.format(BARRIER, ""), TWO_WARPS, False),  # the next barrier is between
    "its barrier at the end": (DOUBLE.format("", BARRIER), TWO_WARPS, True),
    "a single buffer, two barriers": (SINGLE.format(BARRIER, BARRIER), TWO_WARPS, False),
    "a single buffer, one barrier": (SINGLE.format(BARRIER, ""), TWO_WARPS, True),
    "copies and a barrier": (COPY.format(BARRIER), TWO_WARPS, False),
    "copies of another warp": (COPY.format(""), TWO_WARPS, True),
    "shared atomics": (SHARED_ADD, {"warps": 4, "shared": 64}, False),
    **{
        f"shared atomics, {name}": (code, {"warps": 2, "shared": 64}, is_race)
        for other in (SHARED_LOAD, SHARED_STORE)
        for name, code, is_race in (
            (f"then {other}", f"{SHARED_ADD} {other}", True),
            (f"apart from {other}", f"{FIRST_WARP} {other} bar.sync 0; {SHARED_ADD} bar.sync 0; @%p1 {other}", False),
        )
    },
    "shared memory of each block": (OWN_STORE, FOUR, False),
    "after an equal store": (f"{SHARED_EQUAL} {OWN_STORE}", FOUR, False),
    "beside an equal store": (f"{SHARED_EQUAL} st.shared.b32 [4], %x1;", FOUR, False),
    "warps in global memory": (WRITE_BACK, {"blocks": 1, "warps": 2}, True),
    "a turn of warps, and a barrier": (TURNED.format(BARRIER), {"blocks": 1, "warps": 2}, False),
    "a turn of warps": (TURNED.format(""), {"blocks": 1, "warps": 2}, True),
    "a lock": (LOCKED.format("acquire", BARRIER, "release"), {"blocks": 5, "warps": 2}, False),
    "a lock of both orders": (LOCKED.format("acq_rel", BARRIER, "acq_rel"), {"blocks": 5, "warps": 2}, False),
    "a relaxed lock": (LOCKED.format("relaxed", BARRIER, "relaxed"), {"blocks": 5, "warps": 2}, True),
    "a lock that is left relaxed": (LOCKED.format("acquire", BARRIER, "relaxed"), {"blocks": 5, "warps": 2}, True),
    "left before another warp has stored": (LOCKED.format("acquire", "", "release"), {"blocks": 5, "warps": 2}, True),
    "the last one looks": (LAST_LOOKS.format("acq_rel", CHOICE, ""), {"blocks": 4}, False),
    "and resets the count": (LAST_LOOKS.format("acq_rel", CHOICE, "st.global.b32 [%in], %t;"), {"blocks": 4}, False),
    "by a relaxed count": (LAST_LOOKS.format("relaxed", CHOICE, ""), {"blocks": 4}, True),
    "all look": (LAST_LOOKS.format("acq_rel", "", ""), {"blocks": 4}, True),
    "all wait for all": (MEET.format("release", "acquire"), {"blocks": 4}, False),
    "all wait for all relaxed": (MEET.format("relaxed", "relaxed"), {"blocks": 4}, True),
    "one after the other": (IN_TURN.format("release", "acquire"), {"blocks": 4}, False),
    "one after the other relaxed": (IN_TURN.format("relaxed", "relaxed"), {"blocks": 4}, True),
    "a look that does not wait": (
        HANDOVER.replace("@%p2 bra LOOP;", "").format(look=LOOK, tell=TELL[:-1] + "%x1", heard="", fence=""), {}, True,
    ),
    "that are left together": (WRITE_BACK, {"blocks": 1, "warps": 2, "between_warps": False}, False),
    "of two blocks": (WRITE_BACK, {"blocks": 2, "warps": 2, "between_warps": False}, True),
    "left together in shared memory": (EXCHANGE.format("", ""), {**TWO_WARPS, "between_warps": False}, True),
    "a result that nobody reads teaches nothing": (THROWN, {}, True),
    "copies that round differently": (ROUNDED, TWO_WARPS, False),
    "and pass registers and shared memory": (
        ROUNDED.replace("st.shared", "shfl.sync.bfly.b32 %x5, %x5, 1, 31, -1; st.shared")
        + "bar.sync 0; ld.shared.b32 %x5, [0]; @%p1 add.rn.f32 %x5, %x5, %x3; @!%p1 add.rn.f32 %x5, %x5, %x3;"
        "st.shared.b32 [4], %x5;", TWO_WARPS, False,
    ),
    "unequal sums": (ROUNDED.replace("%x4, %x3; st", "%x4, %x4; st"), TWO_WARPS, True),
    "a thousandth apart": (ROUNDED.replace("0x3f8fbbdc", "0x3f8fbbdc; @%p1 mov.b32 %x3, 0x3f8fe000"), TWO_WARPS, True),
    "the same bits without arithmetic": (
        f"mov.b32 %x5, 0x40134c16; {FIRST_WARP} mov.b32 %x5, 0x40134c15; st.shared.b32 [0], %x5;", TWO_WARPS, True,
    ),
    "global copies": (ROUNDED.replace("st.shared.b32 [0]", "st.global.b32 [%out]"), {"blocks": 1, **TWO_WARPS}, True),
}  # fmt: skip


@pytest.mark.parametrize("code, options, is_race", RACES.values(), ids=RACES)
def test_what_races(code, options, is_race):
    assert bool(watched(code, **options)) == is_race


@pytest.mark.parametrize("tell, look, fence, heard, is_race", [
    (TELL, LOOK, "", "", False), (RELAXED_TELL, LOOK, "", "", True), (TELL, RELAXED_LOOK, "", "", True),
    (RELAXED_TELL, LOOK, FENCE, "", False), (TELL, RELAXED_LOOK, "", FENCE, False),
    (RELAXED_TELL, RELAXED_LOOK, FENCE, FENCE, False),
    (RELAXED_TELL, RELAXED_LOOK, "membar.gl;", "membar.gl;", False),
    (RELAXED_TELL, RELAXED_LOOK, "membar.cta;", "membar.cta;", True), (RELAXED_TELL, RELAXED_LOOK, FENCE, "", True),
    ("red.release.gpu.global.add.u32 [%out], 1", LOOK, "", "", False),
    ("st.global.b32 [%out], 1", LOOK, "", "", True),
    ("red.relaxed.gpu.global.add.u32 [%out], 1", LOOK, "", "", True),
])  # fmt: skip
@pytest.mark.parametrize("most_bytes", [1 << 30, 1 << 14])
def test_orders_of_memory(tell, look, fence, heard, is_race, most_bytes):
    """Also where memory is watched part by part."""
    code = HANDOVER.format(tell=tell, look=look, fence=fence, heard=heard).replace("], 1", "], %x4")
    assert bool(watched(f"mov.u32 %x4, 1; {code}", most_bytes=most_bytes)) == is_race


def test_memory_is_as_it_was_after_the_rehearsal():
    array, out = aligned(64, np.uint32), aligned(64, np.uint32)
    code = "mov.u32 %x4, 1; setp.eq.u32 %p1, %t, 0; @%p1 atom.acq_rel.gpu.global.add.u32 %x2, [%out], %x4;"
    code += "@%p1 st.global.b32 [%w1], %x2;"
    place = "mul.wide.u32 %off, %x1, 4; add.u64 %w1, %in, %off;"
    made = run(f"{place} {code}", [array, out], blocks=5, watch=Watch())
    assert [*array[:5]] == [0, 1, 2, 3, 4]
    assert out[0] == 5
    assert sum(item.accesses for item in made.site_counts() if item.site.kind == "global atomic") == 5


def test_a_fault_among_waiting_blocks_names_its_block():
    wait = "LOOP: ld.relaxed.gpu.global.b32 %x2, [%out]; setp.lt.u32 %p1, %x2, %x1; @%p1 bra LOOP;"
    code = f"{wait} setp.eq.u32 %p2, %x1, 1; @%p2 add.u64 %in, %in, 65536; ld.global.b32 %x3, [%in];"
    code += "red.global.add.u32 [%out], %x4;"
    with pytest.raises(Fault, match=r"block 1, warp 0"):
        run(f"mov.u32 %x4, 1; {code}", [aligned(64), aligned(64)], blocks=6)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), ACCESS), min_size=1, max_size=10))
def test_random_accesses_are_judged_as_a_list_of_pairs_is(items):
    """Accesses by block and warp; a word of four bytes, or a byte of it, at one of a few addresses.

    They are the same on both sides of the place where one part of the memory ends.
    """
    for start, most_bytes in ((0, 1 << 30), (60, 2000)):
        assert bool(watched(written_out(items, start), blocks=3, warps=2, most_bytes=most_bytes)) == races(items)


def written_out(items, start):
    code = "shr.u32 %x2, %t, 5; mad.lo.u32 %x2, %x1, 2, %x2;"
    for number, (block, warp, (verb, place, is_byte)) in enumerate(items):
        if verb == "bar":
            code += "bar.sync 0;"
            continue
        value = f"mov.u32 %x3, {number + 1}; cvt.u16.u32 %h1, %x3;"
        at = f"[%out+{start + (place if is_byte and verb != 'red' else place // 4 * 4)}]"
        instruction = {
            "ld": f"ld.global.b8 %h2, {at};" if is_byte else f"ld.global.b32 %x4, {at};",
            "st": f"st.global.b8 {at}, %h1;" if is_byte else f"st.global.b32 {at}, %x3;",
            "red": f"red.global.add.u32 {at}, %x3;",
        }[verb]
        code += f"{value} setp.eq.u32 %p1, %x2, {block * 2 + warp}; @%p1 {instruction}"
    return code


def races(items):
    """Whether two of them, by two warps, touch the same byte with nothing between; the slow and plain way."""
    seen, moment = [], 0
    for block, warp, (verb, place, is_byte) in items:
        if verb == "bar":
            moment += 1
            continue
        start = place if is_byte and verb != "red" else place // 4 * 4
        touched = {start} if is_byte and verb != "red" else {*range(start, start + 4)}
        for other_block, other_warp, other_verb, other_touched, other_moment in seen:
            is_apart = block != other_block or (warp != other_warp and moment == other_moment)
            clash = {verb, other_verb} not in ({"ld"}, {"red"})
            if is_apart and clash and touched & other_touched:
                return True
        seen.append((block, warp, verb, touched, moment))
    return False


in_parts = partial(found, size=BYTES, blocks=3)


@pytest.mark.parametrize("most_bytes", [0, 1000, BYTES, 1 << 30])
@pytest.mark.parametrize("place", thinned([40_000, 0, BYTES - 1], 3))
def test_a_race_anywhere_in_large_memory_is_in_parts(place, most_bytes):
    code = STORE_BYTE.format(f"[%out+{place}]")
    assert "which block 0 (warp 0) has stored to" in str(in_parts(code, Watch(most_bytes=most_bytes)))


def test_large_memory_is_watched_and_counted_once():
    watch, out = Watch(most_bytes=1000), aligned(BYTES, np.uint32)
    code = f"setp.eq.u32 %p1, %t, 0; @!%p1 bra END; {OWN} {COUNT} setp.eq.u32 %p1, %x1, 0; @!%p1 bra END;"
    made = run(f"{code} {STORE_BYTE.format(LAST)} END:", [aligned(64), out], blocks=3, watch=watch)
    assert watch.not_watched == watch.not_decided == []
    assert [*out[:3]] == [1, 1, 1]
    assert [item.accesses for item in made.site_counts() if item.site.kind == "global load"] == [3]


def test_one_schedules_order_is_no_order_in_any_part():
    look = f"{TICKET} setp.eq.u32 %p1, %x1, 0; @%p1 st.global.b8 {LAST}, %h1; @!%p1 ld.global.b8 %h2, {LAST};"
    first = f"setp.eq.u32 %p1, %x1, 0; @%p1 st.global.b8 {LAST}, %h1; {TICKET} @!%p1 ld.global.b8 %h2, {LAST};"
    use = "mul.wide.u32 %off, %x1, 128; add.u64 %w1, %out, %off; mul.wide.u32 %off, %t, 4; add.u64 %w1, %w1, %off;"
    use += "st.global.b32 [%w1], %x3;"
    for code in (look, first):
        assert in_parts(f"mov.u16 %h1, 1; {code} {use}", Watch(most_bytes=1 << 17))


@given(RANGES, st.integers(0, 3000))
def test_parts_cover_all_and_no_part_is_too_large(ranges, most):
    parts = memory.parts(ranges, most)
    covered = [byte for part in parts for start, length in part for byte in range(start, start + length)]
    wanted = {byte for start, length in ranges for byte in range(start, start + length)}
    assert len({*covered}) == len(covered)
    assert wanted <= {*covered}
    assert {byte // 16 for byte in covered} == {byte // 16 for byte in wanted}
    cells = [[at // 16 for start, length in part for at in (start, start + length - 1)] for part in parts]
    assert all(sum(length for _, length in part) <= max(64, most) for part in parts)
    assert all(max(one) < min(two) for one, two in pairwise(cells))


def test_a_launch_of_too_many_blocks_is_not_watched_and_says_so():
    watch = Watch(most_bytes=1000)
    assert in_parts(f"{TICKET} mov.u32 %x2, %x3; st.global.b32 [%out], %x2;", watch, blocks=40) is None
    assert watch.not_watched == ["races: what its 40 blocks know of each other takes too many bytes; launch fewer"]


def test_memory_that_cannot_be_kept_is_not_watched_and_says_so(monkeypatch):
    def fail(*arguments):
        raise MemoryError

    watch, out = Watch(most_bytes=1000), aligned(BYTES, np.uint32)
    monkeypatch.setattr(rehearsal, "Saved", fail)
    run(f"{OWN} st.global.b32 [%w1], %x1;", [aligned(64), out], blocks=3, watch=watch)
    assert "cannot be kept" in watch.not_watched[0]
    assert [*out[:3]] == [0, 1, 2]


@pytest.mark.slow
def test_who_is_watched_no_longer_is_taken_for_no_race(monkeypatch):
    def fail(*arguments):
        raise OverflowError("releases tell too much")

    monkeypatch.setattr(vector_clocks.PublishedClocks, "publish", fail)
    watch = Watch()
    add = "@%p1 ld.global.b32 %x2, [%out]; add.u32 %x2, %x2, 1; @%p1 st.global.b32 [%out], %x2;"
    locked = ENTER.format("acquire") + add + LEAVE.format("release")
    assert in_parts(locked, watch, blocks=1100) is None
    assert watch.not_watched == ["races from some block on: releases tell too much; launch fewer blocks"]


def test_too_many_barriers_are_reported_as_unwatched(monkeypatch):
    monkeypatch.setattr(vector_clocks, "STAMPS", 40)
    watch, code = Watch(), f"{TICKET} mov.u32 %x2, %x3; {{}} st.global.b32 [%out+4], %x2;"
    assert in_parts(code.format(""), watch, blocks=1) is None
    assert watch.not_watched == []
    assert in_parts(code.format("mov.u32 %x2, 1;"), watch, blocks=50) is None
    assert "more barriers and releases than stamps" in watch.not_watched[0]


@pytest.mark.parametrize("other", [BLOCK_ATOMIC, ADD.replace("red.", "red.relaxed.gpu."), STORE, LOAD, STRONG])
@pytest.mark.parametrize("order", thinned([[0, 1], [1, 0]]))
@pytest.mark.parametrize("own", [BLOCK_ATOMIC, BLOCK_STORE])
def test_what_is_atomic_for_its_block_races_with_other_blocks(own, other, order):
    code = f"setp.eq.u32 %p1, %x1, 0; @!%p1 bra OTHER; {own} ret; OTHER: {other}"
    assert in_parts(code, Watch(between_warps=False), blocks=2, order=order)


def test_warps_of_a_block_may_share_what_is_atomic_for_it():
    watch = Watch(between_warps=False)
    assert in_parts(f"{BLOCK_ATOMIC} ld.global.b32 %x2, [%out];", watch, blocks=1, warps=4) is None
    assert watch.not_watched == watch.not_decided == []
    watch = Watch()
    assert in_parts(BLOCK_ATOMIC, watch, blocks=1, warps=4) is None
    assert watch.not_decided == ["races between warps of a block with its atomics of scope cta"]
    apart = f"setp.lt.u32 %p1, %t, 32; @%p1 {BLOCK_ATOMIC} @!%p1 ld.global.b32 %x2, [%out];"
    assert in_parts(apart, Watch(), blocks=1, warps=4)
