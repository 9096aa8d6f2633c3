# SPDX-License-Identifier: Apache-2.0
"""What a launch asks of the caches: by buffer, by block, and what the first level has already."""

import pytest

from tests.env.executor.ptx import aligned, buffer, entry
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.executor.rereads import Use

REGISTERS = (
    ".reg .b64 %in, %out, %at, %to, %off, %big; .reg .b32 %t, %b, %x, %i, %j, %n; .reg .pred %p, %q;"
    "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x;"
)


def lines(count):
    """Whole lines of the cache."""
    raw = aligned(128 * count + 64)
    return raw[-raw.ctypes.data % 128 :][: 128 * count]


def launched(code, arrays, *, blocks=1, warps=1, times=1):
    made = Kernel(entry(f"{REGISTERS} {code}", 2), warps, 0)
    arguments, buffers = [array.ctypes.data for array in arrays], [buffer(array) for array in arrays]
    return [made.launch((blocks,), arguments, buffers) for _ in range(times)]


def used(array, total, own, low, high):
    start = array.ctypes.data
    return Use(total, own, start + low, start + high)


OWN = "mad.lo.u32 %i, %b, %ntid.x, %t; mul.wide.u32 %off, %i, 4; add.u64 %at, %in, %off; add.u64 %to, %out, %off;"


def test_reads_and_writes_of_each_buffer_are_counted_by_launch():
    source, target = aligned(4096), aligned(4096)
    code = f"{OWN} ld.global.b32 %x, [%at]; st.global.b32 [%to], %x; ret;"
    for count in launched(code, [source, target], blocks=4, warps=2, times=2):
        assert count.reads[0] == used(source, 1024, 1024, 0, 1024)
        assert count.writes[1] == used(target, 1024, 1024, 0, 1024)
        assert count.reads[1] == count.writes[0] == count.reads[-1] == count.writes[-1] == Use()
        assert [item.accesses for item in count.sites] == [256, 256]
        assert count.shape == (4, 1, 1)
        assert count.heaviest_bytes == 512


def test_an_atomic_reads_and_writes():
    code = f"{OWN} red.global.add.u32 [%at], 1; ret;"
    array, other = aligned(1024), aligned(64)
    (count,) = launched(code, [array, other], blocks=2)
    assert count.reads[0] == count.writes[0] == used(array, 256, 256, 0, 256)


def test_an_access_that_spreads_over_buffers_is_of_none():
    code = f"{OWN} and.b32 %j, %t, 1; setp.eq.u32 %p, %j, 0; selp.b64 %at, %at, %to, %p; ld.global.b32 %x, [%at]; ret;"
    (count,) = launched(code, [aligned(4096), aligned(4096)])
    assert count.reads[0] == count.reads[1] == Use()
    assert count.reads[-1].total == 8 * 32


LOOP = "mov.u32 %j, 0; AGAIN: {step} add.u32 %j, %j, 1; setp.lt.u32 %p, %j, {turns}; @%p bra AGAIN; ret;"


def test_rereads_by_other_blocks_are_told_apart():
    code = "mul.wide.u32 %off, %t, 4; add.u64 %at, %in, %off; ld.global.b32 %x, [%at]; ret;"
    array = aligned(4096)
    (count,) = launched(code, [array, array], blocks=8)
    assert count.reads[0] == used(array, 8 * 128, 8 * 128, 0, 128)  # each asks for its own


def sweep(count, turns):
    """Read so many lines one after the other, so many times."""
    step = f"rem.u32 %i, %j, {count}; shl.b32 %i, %i, 5; add.u32 %i, %i, %t; mul.wide.u32 %off, %i, 4;"
    step += "add.u64 %at, %in, %off; ld.global.b32 %x, [%at];"
    return LOOP.format(step=step, turns=count * turns)


@pytest.mark.parametrize("size, is_kept", [(16, True), (30, True), (64, False), (1000, False)])
def test_the_first_level_keeps_what_fits(size, is_kept):
    array = lines(size)
    (count,) = launched(sweep(size, 5), [array, array])
    once = 128 * size
    assert count.reads[0] == used(array, once if is_kept else 5 * once, once, 0, once)
    site = count.sites[0]
    assert site.sectors == 5 * 4 * size
    assert site.missed == (1 if is_kept else 5) * 4 * size


def test_the_first_level_holds_more_for_more_warps():
    array = lines(256)
    kept, lost = (launched(sweep(size, 3), [array, array], warps=4)[0].reads[0] for size in (120, 250))
    assert kept.total <= 1.1 * 128 * 120
    assert lost.total > 2 * 128 * 250


@pytest.mark.parametrize("name, total", [("ld.global.b32 %x, [%at]", 128), ("st.global.b32 [%at], %x", 4 * 128)])
def test_stores_go_to_the_second_level_each_time(name, total):
    code = LOOP.format(step=f"mul.wide.u32 %off, %t, 4; add.u64 %at, %in, %off; {name};", turns=4)
    array = aligned(4096)
    (count,) = launched(code, [array, array])
    assert (count.reads if "ld" in name else count.writes)[0] == used(array, total, 128, 0, 128)


def test_sectors_of_a_line_come_one_by_one():
    """Lanes 128 bytes apart: four loads of neighbours use the four sectors of the same lines, a fifth finds one."""
    step = "mul.wide.u32 %off, %t, 128; add.u64 %at, %in, %off; and.b32 %i, %j, 3; mul.wide.u32 %big, %i, 32;"
    code = LOOP.format(step=f"{step} add.u64 %at, %at, %big; ld.global.b32 %x, [%at];", turns=5)
    array = lines(33)
    (count,) = launched(code, [array, array])
    site = count.sites[0]
    assert site.sectors == 5 * 32
    assert 4 * 32 <= site.missed <= 4 * 32 + 8


def test_lanes_in_no_order_and_few_lanes_use_the_cache_too():
    step = "xor.b32 %i, %t, 21; mul.wide.u32 %off, %i, 32; add.u64 %at, %in, %off; setp.lt.u32 %q, %t, {n};"
    array = aligned(1024)
    for lanes in (32, 7, 0):
        code = LOOP.format(step=step.format(n=lanes) + "@%q ld.global.b32 %x, [%at];", turns=3)
        (count,) = launched(code, [array, array])
        assert (count.sites[0].sectors, count.sites[0].missed) == (3 * lanes, lanes)
        assert count.reads[0].total == 32 * lanes


def test_warps_are_counted_where_lanes_part():
    code = f"{OWN} setp.ge.u32 %p, %t, 20; @%p bra END; xor.b32 %x, %t, 1; END: ret;"
    (count,) = launched(code, [aligned(4096)] * 2, blocks=3)
    assert count.instructions()["xor.b32"] == 3 * 20
    assert count.warp_instructions()["xor.b32"] == 3
    (whole,) = launched(f"{OWN} xor.b32 %x, %t, 1; ret;", [aligned(4096)] * 2, blocks=3, warps=2)
    assert whole.warp_instructions()["xor.b32"] == 6


def test_the_heaviest_block_is_known():
    step = "mul.wide.u32 %off, %j, 128; add.u64 %at, %in, %off; ld.global.b32 %x, [%at];"
    array = lines(40)
    first, second = (
        launched(LOOP.format(step=f"mov.u32 %n, {n}; {step}", turns="%n").replace("mov.u32 %j", f"{pick} mov.u32 %j"),
                 [array, array], blocks=4)[0]
        for n, pick in ((3, ""), ("%n", "mul.lo.u32 %n, %b, 10;"))
    )  # fmt: skip
    assert first.heaviest_bytes == 3 * 32
    assert first.heaviest_work * 4 == sum(first.instructions().values())
    assert second.heaviest_bytes == 30 * 32
    assert 2 * second.heaviest_work < sum(second.instructions().values())


def test_blocks_that_take_turns_are_counted_as_blocks():
    """Each waits for the one before; what a block does over its turns counts as one block's."""
    wait = "WAIT: ld.volatile.global.b32 %x, [%in]; setp.ne.u32 %p, %x, %b; @%p bra WAIT;"
    code = f"{OWN} {wait} bar.sync 0; red.global.add.u32 [%in], {{one}}; st.global.b32 [%to], %x; ret;"
    code = code.format(one="%n").replace("WAIT:", "setp.eq.u32 %q, %t, 0; selp.b32 %n, 1, 0, %q; WAIT:", 1)
    number, target = aligned(64), aligned(4096)
    made = Kernel(entry(f"{REGISTERS} {code}", 2), 1, 0)
    count = made.launch(
        (6,), [number.ctypes.data, target.ctypes.data], [buffer(number), buffer(target)], order=[5, 4, 3, 2, 1, 0]
    )
    assert count.writes[1] == used(target, 6 * 128, 6 * 128, 0, 6 * 128)
    assert count.heaviest_work < sum(count.instructions().values())
