# SPDX-License-Identifier: Apache-2.0
"""Races in memory whose bookkeeping takes too many bytes for one run, and what is given up and said."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.executor.ptx import aligned, entry, launch
from tests.env.executor.test_memory import HEAD, REGISTERS
from tests.env.executor.test_races import (
    ACCESS,
    BLOCK,
    FENCE,
    HANDOVER,
    LOOK,
    RELAXED_LOOK,
    RELAXED_TELL,
    TELL,
    races,
    watched,
    written_out,
)  # fmt: skip
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Watch
from verl_kernel.env.executor.races import knowledge, memory, rehearsal

BYTES = 1 << 16
LAST = f"[%out+{BYTES - 1}]"
STORE_BYTE = "cvt.u16.u32 %h1, %x1; st.global.b8 {}, %h1;"
OWN = "mul.wide.u32 %off, %x1, 4; add.u64 %w1, %out, %off;"
COUNT = "ld.global.b32 %x2, [%w1]; add.u32 %x2, %x2, 1; st.global.b32 [%w1], %x2;"
TICKET = "mov.u32 %x4, 1; atom.acq_rel.gpu.global.add.u32 %x3, [%in], %x4;"


def run(code, arrays, watch, *, blocks=3, warps=1, **more):
    return launch(
        entry(f"{HEAD} {BLOCK} {code} ret;", 2, REGISTERS), arrays, blocks=blocks, warps=warps, watch=watch, **more
    )


def found(code, watch, **more):
    """The sentence of a race in code that may access `[%in]`, of 64 bytes, and `[%out]`, of 64 kB; or None."""
    try:
        run(code, [aligned(64), aligned(BYTES)], watch, **more)
    except Fault as fault:
        assert fault.kind == "race", fault
        return str(fault)
    return None


@pytest.mark.parametrize("most_bytes", [0, 1000, BYTES, 1 << 30])
@pytest.mark.parametrize("place", [0, 40_000, BYTES - 1])
def test_a_race_anywhere_in_large_memory_is_found(place, most_bytes):
    code = STORE_BYTE.format(f"[%out+{place}]")
    assert "which block 0 (warp 0) has stored to" in found(code, Watch(most_bytes=most_bytes))


def test_large_memory_is_watched_and_counted_once():
    watch, out = Watch(most_bytes=1000), aligned(BYTES, np.uint32)
    code = f"setp.eq.u32 %p1, %t, 0; @!%p1 bra END; {OWN} {COUNT} setp.eq.u32 %p1, %x1, 0; @!%p1 bra END;"
    made = run(f"{code} {STORE_BYTE.format(LAST)} END:", [aligned(64), out], watch)
    assert watch.not_watched == watch.not_decided == []
    assert [*out[:3]] == [1, 1, 1]
    assert [item.accesses for item in made.site_counts() if item.site.kind == "global load"] == [3]


@pytest.mark.parametrize(
    "tell, look, fence, heard, is_race",
    [
        (TELL, LOOK, "", "", False), (RELAXED_TELL, LOOK, "", "", True), (TELL, RELAXED_LOOK, "", "", True),
        (RELAXED_TELL, RELAXED_LOOK, FENCE, FENCE, False), (RELAXED_TELL, RELAXED_LOOK, FENCE, "", True),
    ],
)  # fmt: skip
def test_what_orders_blocks_does_so_in_each_part(tell, look, fence, heard, is_race):
    code = HANDOVER.format(tell=tell, look=look, fence=fence, heard=heard).replace("], 1", "], %x4")
    assert bool(watched(f"mov.u32 %x4, 1; {code}", watch=Watch(most_bytes=1 << 14))) == is_race


def test_one_schedules_order_is_no_order_in_any_part():
    look = f"{TICKET} setp.eq.u32 %p1, %x1, 0; @%p1 st.global.b8 {LAST}, %h1; @!%p1 ld.global.b8 %h2, {LAST};"
    first = f"setp.eq.u32 %p1, %x1, 0; @%p1 st.global.b8 {LAST}, %h1; {TICKET} @!%p1 ld.global.b8 %h2, {LAST};"
    use = "mul.wide.u32 %off, %x1, 128; add.u64 %w1, %out, %off; mul.wide.u32 %off, %t, 4; add.u64 %w1, %w1, %off;"
    use += "st.global.b32 [%w1], %x3;"
    for code in (look, first):
        assert "block" in found(f"mov.u16 %h1, 1; {code} {use}", Watch(most_bytes=1 << 17))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), ACCESS), min_size=1, max_size=10))
def test_parts_change_no_judgement(items):
    code = written_out(items)
    for number in range(6):  # addresses on both sides of where one part ends
        code = code.replace(f"%out+{number}]", f"%out+{60 + number}]")
    assert bool(watched(code, blocks=3, warps=2, watch=Watch(most_bytes=2000))) == races(items)


RANGES = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 700)), max_size=8)


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
    assert found(f"{TICKET} mov.u32 %x2, %x3; st.global.b32 [%out], %x2;", watch, blocks=40) is None
    assert watch.not_watched == ["races: what its 40 blocks know of each other takes too many bytes; launch fewer"]


def test_memory_that_cannot_be_kept_is_not_watched_and_says_so(monkeypatch):
    def fail(*arguments):
        raise MemoryError

    watch, out = Watch(most_bytes=1000), aligned(BYTES, np.uint32)
    monkeypatch.setattr(rehearsal, "Saved", fail)
    run(f"{OWN} st.global.b32 [%w1], %x1;", [aligned(64), out], watch)
    assert "cannot be kept" in watch.not_watched[0]
    assert [*out[:3]] == [0, 1, 2]


def test_who_is_watched_no_longer_is_taken_for_no_race(monkeypatch):
    def fail(*arguments):
        raise OverflowError("releases tell too much")

    monkeypatch.setattr(knowledge.Told, "tell", fail)
    watch = Watch()
    locked = "mov.u32 %x4, 1; mov.u32 %x5, 0; setp.eq.u32 %p1, %t, 0; LOOP: mov.u32 %x3, 0;"
    locked += "@%p1 atom.acquire.gpu.global.cas.b32 %x3, [%in], %x5, %x4; setp.ne.u32 %p2, %x3, 0; @%p2 bra LOOP;"
    locked += "@%p1 ld.global.b32 %x2, [%out]; add.u32 %x2, %x2, 1; @%p1 st.global.b32 [%out], %x2;"
    locked += "@%p1 atom.release.gpu.global.exch.b32 %x3, [%in], %x5;"
    assert found(locked, watch, blocks=1100) is None
    assert watch.not_watched == ["races from some block on: releases tell too much; launch fewer blocks"]


def test_too_many_barriers_are_reported_as_unwatched(monkeypatch):
    monkeypatch.setattr(knowledge, "STAMPS", 40)
    watch = Watch()
    assert found(f"{TICKET} mov.u32 %x2, %x3; st.global.b32 [%out+4], %x2;", watch, blocks=1) is None
    assert watch.not_watched == []
    assert found(f"{TICKET} mov.u32 %x2, %x3; mov.u32 %x2, 1; st.global.b32 [%out+4], %x2;", watch, blocks=50) is None
    assert "more barriers and releases than stamps" in watch.not_watched[0]


BLOCK_ATOMIC = "red.relaxed.cta.global.add.u32 [%out], %x1;"
BLOCK_STORE = "st.relaxed.cta.global.b32 [%out], %x1;"


@pytest.mark.parametrize("other", [BLOCK_ATOMIC, "red.relaxed.gpu.global.add.u32 [%out], %x1;",
                                   "st.global.b32 [%out], %x1;", "ld.global.b32 %x2, [%out];",
                                   "ld.relaxed.gpu.global.b32 %x2, [%out];"])  # fmt: skip
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("own", [BLOCK_ATOMIC, BLOCK_STORE])
def test_what_is_atomic_for_its_block_races_with_other_blocks(own, other, order):
    code = f"setp.eq.u32 %p1, %x1, 0; @!%p1 bra OTHER; {own} ret; OTHER: {other}"
    assert found(code, Watch(between_warps=False), blocks=2, order=order)


def test_warps_of_a_block_may_share_what_is_atomic_for_it():
    watch = Watch(between_warps=False)
    assert found(f"{BLOCK_ATOMIC} ld.global.b32 %x2, [%out];", watch, blocks=1, warps=4) is None
    assert watch.not_watched == watch.not_decided == []
    watch = Watch()
    assert found(BLOCK_ATOMIC, watch, blocks=1, warps=4) is None
    assert watch.not_decided == ["races between warps of a block with its atomics of scope cta"]
    apart = f"setp.lt.u32 %p1, %t, 32; @%p1 {BLOCK_ATOMIC} @!%p1 ld.global.b32 %x2, [%out];"
    assert found(apart, Watch(), blocks=1, warps=4)
