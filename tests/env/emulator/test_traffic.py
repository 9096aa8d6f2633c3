# SPDX-License-Identifier: Apache-2.0
"""What a launch asks of memory: of caches by buffer and block, again and how far apart, of banks, and without waste."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.emulator.ptx import aligned, counted, entry, executed, kernel
from tests.env.emulator.test_prices import ready
from tests.tiers import thinned
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.reuse_distance import Use, _distinct_between
from verl_kernel.env.emulator.work.changed_counts import accesses, coalesced, multiplied, read_once
from verl_kernel.env.emulator.work.steps import launch_work

REGISTERS = (
    ".reg .b64 %in, %out, %at, %to, %off, %big; .reg .b32 %t, %b, %x, %i, %j, %n; .reg .pred %p, %q;"
    "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x;"
)
OWN = "mad.lo.u32 %i, %b, %ntid.x, %t; mul.wide.u32 %off, %i, 4; add.u64 %at, %in, %off; add.u64 %to, %out, %off;"
LOOP = "mov.u32 %j, 0; AGAIN: {step} add.u32 %j, %j, 1; setp.lt.u32 %p, %j, {turns}; @%p bra AGAIN; ret;"
SPREAD = f"{OWN} and.b32 %j, %t, 1; setp.eq.u32 %p, %j, 0; selp.b64 %at, %at, %to, %p; ld.global.b32 %x, [%at]; ret;"
ONE_WARP = (
    ".reg .b64 %in, %at, %off; .reg .b32 %t, %x, %y<4>; .reg .b16 %h; .reg .b64 %w; .reg .pred %p;"
    "ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; add.u64 %at, %in, %off;"
)
SHARED_LOADS = {2: "ld.shared.b16 %h", 4: "ld.shared.b32 %y0", 8: "ld.shared.b64 %w",
                16: "ld.shared.v4.b32 {%y0,%y1,%y2,%y3}"}  # fmt: skip
LOAD, MATRICES = SHARED_LOADS[4], "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%y0,%y1,%y2,%y3}"
TOGETHER = "ld.global.b32 %x, [%a];"
APART = "mul.wide.u32 %o, %t, {}; add.u64 %a, %in, %o; ld.global.b32 %x, [%a];"
ONE_LANE = ".reg .pred %q; setp.eq.u32 %q, %t, 0; @%q ld.global.b32 %x, [%a];"
POLL = "WAIT: ld.volatile.global.b32 %x, [%in]; setp.{how}.u32 %p, %x, {what}; @%p bra WAIT; bar.sync 0;"
TELL = "setp.eq.u32 %q, %t, 0; selp.b32 %n, 1, 0, %q; red.global.add.u32 [%in], %n;"
WORK = "mov.u32 %j, 0; {name}: add.u32 %j, %j, 1; setp.lt.u32 %p, %j, 500; @%p bra {name};"
# A warp reads 64 kB once or twice: more than it has of a first-level cache.
TURNS = (
    ".reg .pred %r; .reg .pred %s; mov.u32 %z, 0; OUTER: mov.u32 %y, 0; AGAIN: mul.wide.u32 %o, %y, 128;"
    "add.u64 %p1, %a, %o; ld.global.b32 %x, [%p1]; add.u32 %y, %y, 1; setp.lt.u32 %r, %y, 512; @%r bra AGAIN;"
    "add.u32 %z, %z, 1; setp.lt.u32 %s, %z, {}; @%s bra OUTER;"
)


def launched(code, arrays, *, blocks=1, warps=1, times=1):
    made = Kernel(entry(f"{REGISTERS} {code}", 2), warps, 0)
    return [counted(made, arrays, blocks) for _ in range(times)]


def used(array, total, own, low, high):
    start = array.ctypes.data
    return Use(total, own, start + low, start + high)


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


def test_the_kind_and_the_place_of_an_access_say_whose_it_is():
    array, other = aligned(4096), aligned(4096)
    (count,) = launched(f"{OWN} red.global.add.u32 [%at], 1; ret;", [array, other], blocks=2)
    assert count.reads[0] == count.writes[0] == used(array, 256, 256, 0, 256)
    (count,) = launched(SPREAD, [array, other])
    assert count.reads[0] == count.reads[1] == Use()
    assert count.reads[-1].total == 8 * 32
    code = "mul.wide.u32 %off, %t, 4; add.u64 %at, %in, %off; ld.global.b32 %x, [%at]; ret;"
    (count,) = launched(code, [array, array], blocks=8)
    assert count.reads[0] == used(array, 8 * 128, 8 * 128, 0, 128)  # each asks for its own


def sweep(count, turns):
    """Read so many lines one after the other, so many times."""
    step = f"rem.u32 %i, %j, {count}; shl.b32 %i, %i, 5; add.u32 %i, %i, %t; mul.wide.u32 %off, %i, 4;"
    step += "add.u64 %at, %in, %off; ld.global.b32 %x, [%at];"
    return LOOP.format(step=step, turns=count * turns)


@pytest.mark.parametrize("size, passes", [(16, 1), (30, 1), (64, 5), (1000, 5)])
def test_the_first_level_keeps_what_fits(size, passes):
    array = aligned(128 * size, multiple=128)
    (count,) = launched(sweep(size, 5), [array, array])
    assert count.reads[0] == used(array, passes * 128 * size, 128 * size, 0, 128 * size)
    assert (count.sites[0].sectors, count.sites[0].missed) == (5 * 4 * size, passes * 4 * size)


def test_the_first_level_holds_more_for_more_warps():
    array = aligned(128 * 256, multiple=128)
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
    (count,) = launched(code, [aligned(128 * 33, multiple=128)] * 2)
    assert count.sites[0].sectors == 5 * 32
    assert 4 * 32 <= count.sites[0].missed <= 4 * 32 + 8


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
    assert executed(count)["xor.b32"] == 3 * 20
    assert executed(count, by_warp=True)["xor.b32"] == 3
    (whole,) = launched(f"{OWN} xor.b32 %x, %t, 1; ret;", [aligned(4096)] * 2, blocks=3, warps=2)
    assert executed(whole, by_warp=True)["xor.b32"] == 6


def test_the_heaviest_block_is_known():
    step = "mul.wide.u32 %off, %j, 128; add.u64 %at, %in, %off; ld.global.b32 %x, [%at];"
    array = aligned(128 * 40, multiple=128)
    loop = LOOP.format(step=step, turns="%n")
    codes = (f"{turns} {loop}" for turns in ("mov.u32 %n, 3;", "mul.lo.u32 %n, %b, 10;"))
    first, second = (launched(code, [array, array], blocks=4)[0] for code in codes)
    assert first.heaviest_bytes == 3 * 32
    assert first.heaviest_work * 4 == sum(executed(first).values())
    assert second.heaviest_bytes == 30 * 32
    assert 2 * second.heaviest_work < sum(executed(second).values())


def test_blocks_that_take_turns_are_counted_as_blocks():
    """Each waits for the one before; what a block does over its turns counts as one block's."""
    code = (
        f"{REGISTERS} {OWN} setp.eq.u32 %q, %t, 0; selp.b32 %n, 1, 0, %q; WAIT: ld.volatile.global.b32 %x, [%in];"
        "setp.ne.u32 %p, %x, %b; @%p bra WAIT; bar.sync 0; red.global.add.u32 [%in], %n; st.global.b32 [%to], %x; ret;"
    )
    number, target = aligned(64), aligned(4096)
    count = counted(Kernel(entry(code, 2), 1, 0), [number, target], 6, order=[5, 4, 3, 2, 1, 0])
    assert count.writes[1] == used(target, 6 * 128, 6 * 128, 0, 6 * 128)
    assert count.heaviest_work < sum(executed(count).values())


@pytest.mark.parametrize(("code", "least", "most"), [
    (f"{{chain}} {WORK.format(name='ONE')} {TELL}", 12, 40),
    (f"{WORK.format(name='ONE')} {{chain}} {TELL}", 1, 1.5),
    (f"{WORK.format(name='ONE')} {TELL} {{all}} {WORK.format(name='TWO')}", 1, 1.05),
    (f"{WORK.format(name='ONE')} {TELL} {WORK.format(name='TWO')}", 1, 1),
])  # fmt: skip
def test_blocks_that_wait_for_each_other_follow_one_another(code, least, most):
    """Of 24: all of them, only at their ends, once for all, and never."""
    chain, every = POLL.format(how="ne", what="%b"), POLL.format(how="lo", what="24")
    made = Kernel(entry(f"{REGISTERS} {OWN} {code.format(chain=chain, all=every)} ret;", 2), 1, 0)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(24)
        assert least <= counted(made, [aligned(64), aligned(4096)], 24, order=order).serial <= most


MEGABYTE, TILE = 1 << 20, 4096
READ = (
    ".reg .b64 %in, %out, %o; .reg .b32 %t, %b, %x, %tile; .reg .pred %p;"
    "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; {tile}"
    "mul.wide.u32 %o, %tile, 4096; add.u64 %in, %in, %o; mul.wide.u32 %o, %t, 16; add.u64 %in, %in, %o;"
    "{loads} mul.wide.u32 %o, %b, 4; add.u64 %out, %out, %o; setp.eq.u32 %p, %t, 0; @%p st.global.b32 [%out], %x; ret;"
)
LOADS = "".join(f"ld.global.b32 %x, [%in+{at}];" for at in range(0, TILE, 512))
COPIES = ".reg .b32 %s; mul.lo.u32 %s, %t, 16; {} cp.async.wait_all; mov.u32 %x, 0;".format(
    "".join(f"cp.async.cg.shared.global [%s], [%in+{at}], 16;" for at in range(0, TILE, 512))
)
NEAR, FAR = "shr.u32 %tile, %b, 1;", "and.b32 %tile, %b, {};"


def launches(megabytes, tile, loads=LOADS):
    """What runs blocks of a launch of which two read each tile, all without their numbers; and how many there are."""
    tiles = megabytes * MEGABYTE // TILE
    made = kernel(entry(READ.format(tile=tile.format(tiles - 1), loads=loads), 2), 1, 512)
    source, out = aligned(megabytes * MEGABYTE), aligned(8 * tiles, np.uint32)
    return lambda order: counted(made, [source, out], 2 * tiles, order=order), 2 * tiles


def read(megabytes, tile, seed=None, loads=LOADS):
    """What `Rereads` finds where two blocks read each tile."""
    run, blocks = launches(megabytes, tile, loads)
    return run(None if seed is None else np.random.default_rng(seed).permutation(blocks)).rereads


@pytest.mark.parametrize("case", thinned([(8, NEAR), (64, NEAR), (2, FAR)]))
def test_what_is_near_or_fits_into_every_cache_is_no_reread(case):
    assert read(*case) == ()


@pytest.mark.parametrize("loads", [LOADS, COPIES], ids=["loads", "copies"])
@pytest.mark.parametrize("megabytes", thinned([8, 64]))
def test_a_reread_after_all_else_is_as_far_as_all_else(megabytes, loads):
    ((others, again),) = read(megabytes, FAR, loads=loads)
    assert others == pytest.approx(megabytes * MEGABYTE, rel=0.25)
    assert again == pytest.approx(megabytes * MEGABYTE, rel=0.15)


@pytest.mark.parametrize("tile", [NEAR, FAR])
def test_the_order_of_blocks_changes_only_the_sample(tile):
    plain, drawn = read(64, tile), read(64, tile, seed=1)
    assert [others for others, _ in drawn] == pytest.approx([others for others, _ in plain], rel=0.2)
    assert [size for _, size in drawn] == pytest.approx([size for _, size in plain], rel=0.15)


ON = (
    "add.u32 %tile, %tile, {step}; and.b32 %tile, %tile, {mask}; ld.param.u64 %in, [p0]; mul.wide.u32 %o, %tile, 4096;"
    "add.u64 %in, %in, %o; mul.wide.u32 %o, %t, 16; add.u64 %in, %in, %o;"
)
TILES = 8 * MEGABYTE // TILE


def returns(tile, loads, blocks):
    """What blocks come back to in 8 MB that begin at a multiple of 512, as the sample's places do."""
    source = aligned(TILES * TILE, multiple=512)
    made = kernel(entry(READ.format(tile=tile, loads=loads), 2), 1, 512)
    return counted(made, [source, aligned(4 * blocks, np.uint32)], blocks).returns


@pytest.mark.parametrize(("step", "comes_back"), [(1, True), (700, True), (0, False)])
def test_blocks_at_once_come_back_to_what_others_have_read(step, comes_back):
    """But reading again what they have read themselves is counted as such."""
    found = returns("mov.u32 %tile, %b;", LOADS + ON.format(step=step, mask=TILES - 1) + LOADS, TILES)
    assert all(others == pytest.approx(TILES * TILE, rel=0.25) for others, _ in found)
    assert sum(again for _, again in found) == pytest.approx(TILES * TILE * comes_back, rel=0.15)


@pytest.mark.parametrize("tile", [NEAR, FAR.format(TILES - 1)])
def test_what_blocks_at_once_read_together_is_read_once(tile):
    assert returns(tile, LOADS, 2 * TILES) == ()


@given(st.lists(st.integers(0, 6), max_size=40))
def test_other_places_between_are_counted_once(places):
    counted = []
    for number, place in enumerate(places):
        before = [other for other in range(number) if places[other] == place]
        counted.append(len({*places[before[-1] + 1 : number]}) if before else 0)
    assert _distinct_between(places) == counted


def expected(addresses, size):
    banks = [word % (128 // max(4, size)) for word in {place // max(4, size) for place in addresses}]
    return max((banks.count(bank) for bank in banks), default=0)


def passes(load, offsets, lanes, turns=1):
    """Of accesses at offsets; lanes beyond `lanes` do not take part."""
    table = aligned(128, np.uint32)
    table[:] = offsets
    step = f"setp.lt.u32 %p, %t, {lanes}; {load.replace('PLACE', '[%x]')}"
    loop = f".reg .b32 %j; .reg .pred %q; ld.global.b32 %x, [%at]; mov.u32 %j, 0; AGAIN: {step} add.u32 %j, %j, 1;"
    loop += f"setp.lt.u32 %q, %j, {turns}; @%q bra AGAIN; ret;"
    count = counted(kernel(entry(ONE_WARP + loop, 1), 1, 8192), [table])
    return next(item.sectors for item in count.sites if item.site.kind == "shared load")


@pytest.mark.parametrize("lanes", thinned([9, 32, 0], 3))
@pytest.mark.parametrize("size", SHARED_LOADS)
def test_passes_are_the_words_of_the_busiest_bank(size, lanes):
    numbers, lane = np.random.default_rng(size), np.arange(32)
    rows = [lane * 0, lane * size, lane[::-1] * size, lane * 128, lane // 4 * 128, lane % 4 * size]
    rows += [numbers.integers(0, 8192 // size, 32) * size for _ in range(5)]
    for number, row in enumerate(rows):
        found = passes(f"@%p {SHARED_LOADS[size]}, PLACE;", row, lanes, turns=number + 1)
        assert found == (number + 1) * expected(row[:lanes], size)


@pytest.mark.parametrize("load, step, turns, wanted", [
    *((f"@%p {LOAD}", 4 * words, 1, known) for words, known in ((1, 1), (2, 2), (8, 8), (32, 32), (33, 1))),
    *((MATRICES, row, 200, known) for row, known in ((16, 4), (32, 8), (64, 16), (80, 4), (128, 32))),
])  # fmt: skip
def test_conflicts_are_what_they_are_known_to_be(load, step, turns, wanted):
    """Also of matrices, which are loaded row by row."""
    assert passes(f"{load}, PLACE;", np.arange(32) * step, 32, turns) == turns * wanted


def test_passes_of_warps_that_differ_are_taken_in_the_mean():
    """Of four warps one has conflicts of 8 lanes."""
    code = (
        f"{ONE_WARP} .reg .b32 %j, %n; .reg .pred %q; shr.u32 %j, %t, 5; setp.eq.u32 %q, %j, 2; selp.b32 %x, 32, 4, %q;"
        "and.b32 %y1, %t, 31; mul.lo.u32 %x, %x, %y1; mov.u32 %n, 0; AGAIN: bar.sync 0; ld.shared.b32 %y0, [%x];"
        "add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 600; @%p bra AGAIN; ret;"
    )
    count = counted(Kernel(entry(code, 1), 4, 8192), [aligned(64)])
    (found,) = [item.sectors for item in count.sites if item.site.kind == "shared load"]
    assert 0.85 < found / (600 * (3 + 8)) < 1.15


def whole(code, blocks=1, shared=0):
    return counted(ready(code, shared), [aligned(1 << 16, np.uint32), aligned(1 << 16, np.uint32)], blocks)


@pytest.mark.parametrize(("code", "blocks", "asked", "sectors", "needed"), [
    (APART.format(4), 1, 128, 4, 4), (APART.format(8), 1, 128, 8, 4), (APART.format(32), 1, 128, 32, 4),
    (APART.format(64), 1, 128, 32, 4), (ONE_LANE, 5, 4 * 5, 5, 5), ("ld.global.b32 %x, [%in];", 1, 128, 1, 1),
])  # fmt: skip
def test_lanes_that_are_apart_waste_sectors(code, blocks, asked, sectors, needed):
    """One lane alone wastes nothing, and lanes that read the same need one sector."""
    (found,) = accesses(whole(code, blocks))
    assert (found.kind, found.row, found.asked, found.sectors, found.needed) == ("load", 0, asked, sectors, needed)


def test_a_store_has_its_kind_and_buffer_in_every_launch():
    made = ready(TOGETHER + "st.global.b32 [%b], %x;")
    for _ in range(2):
        found = accesses(counted(made, [aligned(4096), aligned(4096)]))
        assert [(one.kind, one.row) for one in found] == [("load", 0), ("store", 1)]


def step(count):
    (found,) = launch_work(count).steps
    return found.bytes, found.l2_bytes, found.in_flight


def test_without_waste_the_steps_are_those_of_consecutive_lanes():
    apart, near = whole(APART.format(64) + "st.global.b32 [%b], %x;"), whole(TOGETHER + "st.global.b32 [%b], %x;")
    assert step(coalesced(apart)) == step(near)
    assert step(apart)[0] > step(near)[0]
    assert launch_work(coalesced(near)).steps == launch_work(near).steps


def test_read_once_the_traffic_is_that_of_one_pass():
    twice, single = whole(TURNS.format(2)), whole(TURNS.format(1))
    assert twice.reads[0].total == 2 * single.reads[0].total
    assert step(read_once(twice, 0)) == step(single)
    shared = whole(TOGETHER, blocks=1000)
    assert shared.reads[0].total == 128 * 1000
    assert read_once(shared, 0).reads[0].total == 128 * 132  # once on each SM


def test_multiplications_are_counted_apart_from_the_rest():
    declared = ".reg .f32 %f<3>;"
    plain = "cvt.rn.f32.u32 %f1, %t; fma.rn.f32 %f1, %f1, %f1, %f1; mul.f32 %f1, %f1, %f1; add.f32 %f1, %f1, %f1;"
    found, without = multiplied(whole(declared + plain)), multiplied(whole(declared + "cvt.rn.f32.u32 %f1, %t;"))
    assert found.flops == 32 * (2 + 1 + 1)
    assert found.rest == without.rest
    assert without.flops == 0
    bare = f"{declared} shl.b32 %x, %t, 2;"
    factors = f"{bare} ld.shared.f32 %f1, [%x]; fma.rn.f32 %f1, %f1, %f1, %f1;"
    assert multiplied(whole(factors, shared=256)).rest == multiplied(whole(bare, shared=256)).rest
