# SPDX-License-Identifier: Apache-2.0
"""Counts that are changed in one respect are those of a kernel that differs in that respect."""

import numpy as np
import pytest

from tests.env.executor.ptx import aligned, buffer
from tests.env.executor.test_prices import ready
from verl_kernel.env.executor.work.changed import accesses, coalesced, multiplied, read_once
from verl_kernel.env.executor.work.steps import launch_work

ROWS = 64


def launched(code, blocks=1, shared=0):
    made = ready(code, shared)
    arrays = [aligned(1 << 16, np.uint32), aligned(1 << 16, np.uint32)]
    return made.launch((blocks,), [array.ctypes.data for array in arrays], [buffer(array) for array in arrays])


NEAR = "ld.global.b32 %x, [%a];"
APART = "mul.wide.u32 %o, %t, {}; add.u64 %a, %in, %o; ld.global.b32 %x, [%a];"


@pytest.mark.parametrize(("step", "sectors"), [(4, 4), (8, 8), (32, 32), (64, 32)])
def test_lanes_that_are_apart_waste_sectors(step, sectors):
    (found,) = accesses(launched(APART.format(step)))
    assert (found.kind, found.row, found.asked, found.sectors, found.needed) == ("load", 0, 128, sectors, 4)


def test_a_store_has_a_kind_and_a_buffer_of_its_own():
    found = accesses(launched(NEAR + "st.global.b32 [%b], %x;"))
    assert [(one.kind, one.row) for one in found] == [("load", 0), ("store", 1)]


def test_a_buffer_is_named_also_after_an_earlier_launch():
    made, arrays = ready(NEAR + "st.global.b32 [%b], %x;"), [aligned(4096), aligned(4096)]
    for _ in range(2):
        count = made.launch((1,), [array.ctypes.data for array in arrays], [buffer(array) for array in arrays])
        assert [one.row for one in accesses(count)] == [0, 1]


def test_what_one_lane_accesses_is_no_waste():
    lane = ".reg .pred %q; setp.eq.u32 %q, %t, 0; @%q ld.global.b32 %x, [%a];"
    (found,) = accesses(launched(lane, blocks=5))
    assert (found.asked, found.sectors, found.needed) == (4 * 5, 5, 5)


def test_lanes_that_read_the_same_need_one_sector():
    (found,) = accesses(launched("ld.global.b32 %x, [%in];"))
    assert (found.sectors, found.needed) == (1, 1)


def test_without_waste_the_steps_are_those_of_consecutive_lanes():
    apart, near = launched(APART.format(64) + "st.global.b32 [%b], %x;"), launched(NEAR + "st.global.b32 [%b], %x;")
    (changed,), (other,) = launch_work(coalesced(apart)).steps, launch_work(near).steps
    assert (changed.bytes, changed.l2_bytes, changed.in_flight) == (other.bytes, other.l2_bytes, other.in_flight)
    assert launch_work(apart).steps[0].bytes > other.bytes


def test_a_launch_without_waste_is_not_changed():
    near = launched(NEAR + "st.global.b32 [%b], %x;")
    assert launch_work(coalesced(near)).steps == launch_work(near).steps


# A warp reads 64 kB once or twice: more than it has of a first-level cache.
TURNS = (
    ".reg .pred %r; .reg .pred %s; mov.u32 %z, 0; OUTER: mov.u32 %y, 0; AGAIN: mul.wide.u32 %o, %y, 128;"
    "add.u64 %p1, %a, %o; ld.global.b32 %x, [%p1]; add.u32 %y, %y, 1; setp.lt.u32 %r, %y, 512; @%r bra AGAIN;"
    "add.u32 %z, %z, 1; setp.lt.u32 %s, %z, {}; @%s bra OUTER;"
)


def test_read_once_the_traffic_is_that_of_one_pass():
    twice, single = launched(TURNS.format(2)), launched(TURNS.format(1))
    assert twice.reads[0].total == 2 * single.reads[0].total
    (changed,), (other,) = launch_work(read_once(twice, 0)).steps, launch_work(single).steps
    assert (changed.bytes, changed.l2_bytes, changed.in_flight) == (other.bytes, other.l2_bytes, other.in_flight)


def test_blocks_that_share_a_buffer_read_it_once_on_each_sm():
    count = launched(NEAR, blocks=1000)
    assert count.reads[0].total == 128 * 1000
    assert read_once(count, 0).reads[0].total == 128 * 132


def test_multiplications_are_counted_apart_from_the_rest():
    plain = "cvt.rn.f32.u32 %f1, %t; fma.rn.f32 %f1, %f1, %f1, %f1; mul.f32 %f1, %f1, %f1; add.f32 %f1, %f1, %f1;"
    found = multiplied(launched(".reg .f32 %f<3>;" + plain))
    without = multiplied(launched(".reg .f32 %f<3>; cvt.rn.f32.u32 %f1, %t;"))
    assert found.flops == 32 * (2 + 1 + 1)
    assert found.rest == without.rest
    assert without.flops == 0


def test_factors_from_shared_memory_belong_to_products():
    code = ".reg .f32 %f<3>; shl.b32 %x, %t, 2; ld.shared.f32 %f1, [%x]; fma.rn.f32 %f1, %f1, %f1, %f1;"
    bare = ".reg .f32 %f<3>; shl.b32 %x, %t, 2;"
    assert multiplied(launched(code, shared=256)).rest == multiplied(launched(bare, shared=256)).rest
