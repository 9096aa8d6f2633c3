# SPDX-License-Identifier: Apache-2.0
"""Samples of a launch's programs count as all of them, and windows of neighbours tell what is read again."""

import re

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, buffer, counted, entry
from tests.env.emulator.test_traffic import FAR, MEGABYTE, NEAR, launches
from tests.env.processes import ROOT, printed
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.execution.block_sampling import AGREEMENT, MOVED, WHOLE, Sampler, SamplesDisagree, Windows, strata
from verl_kernel.env.execution.launch_summary import tally
from verl_kernel.env.ipc.execution_messages import furthest

# Each block of one warp loads as often as its number says, at places of its own.
LOOP = (
    ".reg .b64 %in, %a; .reg .b32 %b, %t, %x, %n, %i; .reg .pred %p; ld.param.u64 %in, [p0]; mov.u32 %b, %ctaid.x;"
    "mov.u32 %t, %tid.x; shl.b32 %x, %b, 7; mul.wide.u32 %a, %t, 4; add.u64 %a, %a, %in; {TURNS} mov.u32 %i, 0;"
    "$again: ld.global.b32 %x, [%a]; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra $again; ret;"
)
# Each block of one warp stores a byte a lane to a row of its own, which ends within a sector.
ROWS = (
    ".reg .b64 %out, %a; .reg .b32 %b, %t, %x; ld.param.u64 %out, [p0]; mov.u32 %b, %ctaid.x; mov.u32 %t, %tid.x;"
    "mad.lo.s32 %x, %b, 48, %t; cvt.u64.u32 %a, %x; add.u64 %a, %a, %out; st.global.b8 [%a], %t; ret;"
)
# A block of one warp copies four times, once of these before its loop, whose last turn copies nothing.
COPIES = (
    '.file 1 "/folder" "kernel.py"\n.reg .b64 %in, %a; .reg .b32 %t, %x, %i; .reg .pred %p; ld.param.u64 %in, [p0];'
    "mov.u32 %t, %tid.x; shl.b32 %x, %t, 2; cvt.u64.u32 %a, %x; add.u64 %a, %a, %in; mov.u32 %i, 0;\n.loc 1 7 3\n"
    "cp.async.ca.shared.global [%x], [%a], 4;\n.loc 1 6 1\n$again: setp.lt.u32 %p, %i, {MOST};\n.loc 1 7 3\n"
    "@%p cp.async.ca.shared.global [%x], [%a], 4;\n.loc 1 6 1\nadd.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4;"
    "@%p bra $again; cp.async.commit_group; cp.async.wait_group 0; ret;"
)
# A block of one warp loads once with all lanes, and six times where only the first lane does.
IDLE = (
    ".reg .b64 %in, %a; .reg .b32 %t, %x, %i; .reg .pred %p, %q; ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x;"
    "mul.wide.u32 %a, %t, 4; add.u64 %a, %a, %in; ld.global.b32 %x, [%a]; setp.eq.u32 %p, %t, 0; mov.u32 %i, 0;"
    "$again: @%p ld.global.b32 %x, [%a]; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 6; @%q bra $again; ret;"
)
# A block of one warp loads a row of 40 numbers by one access of the source, of which two instructions are idle.
SHORT_ROW = (
    '.file 1 "/folder" "kernel.py"\n.reg .b64 %in, %a; .reg .b32 %t, %x; .reg .pred %p; ld.param.u64 %in, [p0];'
    "mov.u32 %t, %tid.x; mul.wide.u32 %a, %t, 4; add.u64 %a, %a, %in;\n.loc 1 7 3\n"
    "setp.lt.u32 %p, %t, 40; @%p ld.global.b32 %x, [%a]; setp.lt.u32 %p, %t, 8; @%p ld.global.b32 %x, [%a+128];"
    "setp.gt.u32 %p, %t, 99; @%p ld.global.b32 %x, [%a]; @%p ld.global.b32 %x, [%a]; ret;"
)
STRIPES = "shr.u32 %x, %b, 6; mul.lo.u32 %x, %x, 32; and.b32 %tile, %b, 31; add.u32 %tile, %tile, %x;"
"""Each tile is read again 32 blocks later."""
LITTLE_AGAIN = "setp.gt.u32 %p, %b, {0}; @%p and.b32 %b, %b, 15; mov.u32 %tile, %b; mov.u32 %b, %ctaid.x;"
"""The first half of the blocks read all tiles, the other half a few, over and over."""
SIZE = 512


@pytest.mark.parametrize("grid", [(1, 1, 1), (1000, 1, 1), (3, 500, 1), (7, 9, 11), (2, 2, 400), (1 << 20, 64, 1)])
def test_strata_cover_the_grid_once(grid):
    parts = strata(grid, 16)
    assert sum(part.size for part in parts) == np.prod(grid)
    drawn = [part.draw(np.random.default_rng(0), grid) for part in parts]
    assert len(set(drawn)) == len(drawn)
    assert {0, np.prod(grid) - 1} <= set(drawn)


def test_a_program_is_drawn_from_its_own_stratum():
    grid, seen = (10, 12, 1), set()
    for part in strata(grid, 1):
        for seed in range(1500):
            number = part.draw(np.random.default_rng(seed), grid)
            place = (number % 10, number // 10)
            assert all(start <= at < start + length for at, (start, length) in zip(place, part.part, strict=False))
            seen.add(number)
    assert len(seen) == 120


def sampler(turns, blocks, seed=0):
    kernel, data, ran = Kernel(entry(LOOP.replace("{TURNS}", turns), 1), 1, 0), aligned(16384, np.uint32), []
    grid = blocks if isinstance(blocks, tuple) else (blocks, 1, 1)

    def run(numbers):
        ran.extend(numbers)
        return kernel.launch(grid, [data.ctypes.data], [buffer(data)], order=numbers)

    def told(count):
        return tally(count, [data.nbytes], {"p0": 0}, "k", {})

    return Sampler(run, grid, np.random.default_rng(seed), told, furthest), ran, told, run


def test_a_small_grid_is_run_whole():
    one, ran, _, _ = sampler("mov.u32 %n, 3;", WHOLE)
    one.count()
    assert sorted(ran) == list(range(WHOLE))


@pytest.mark.parametrize("turns", ["mov.u32 %n, 3;", "add.u32 %n, %b, 1;", "and.b32 %n, %b, 3;"])
def test_the_count_is_that_of_the_whole_launch(turns):
    one, ran, told, run = sampler(turns, 4000)
    found = told(one.count())
    assert len(ran) < 2000
    assert furthest(found, told(run(range(4000))))[1] < 2 * AGREEMENT
    assert found["grid"] == [4000, 1, 1]


@pytest.mark.parametrize("seed", range(12))
def test_a_long_edge_of_a_grid_is_drawn_by_its_share(seed):
    one, _, told, run = sampler("and.b32 %n, %b, 1; add.u32 %n, %n, 2;", (400, 4, 1), seed)
    assert furthest(told(one.count()), told(run(range(1600))))[1] < 2 * AGREEMENT


@pytest.mark.slow
def test_samples_that_differ_are_no_count():
    """A thirtieth of the programs does nearly all of the work."""
    turns, told = "and.b32 %n, %b, 31; setp.eq.u32 %p, %n, 7; selp.b32 %n, 2000, 1, %p;", []
    for seed in range(4):
        try:
            sampler(turns, 40000, seed)[0].count()
        except SamplesDisagree as exc:
            told.append(str(exc))
    assert told
    assert all("two samples of its programs differ" in text for text in told)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder, cache = ROOT / "benchmarks", str(tmp_path_factory.mktemp("triton"))
    told = printed(folder / "bench_sampled_counts.py", TRITON_CACHE_DIR=cache, PYTHONPATH=f"{ROOT}:{folder}")
    rows = [line.strip("| ").split(" | ") for line in told.splitlines()[2:]]
    return {row[0]: [float(cell.rstrip("%")) for cell in (*row[1:5], *row[6:8])] for row in rows}


@pytest.mark.exhaustive
@pytest.mark.slow
def test_samples_of_fifty_kernels_agree_with_the_whole(table):
    assert len(table) >= 50
    off = {name: row for name, row in table.items() if row[2] > 100 * AGREEMENT or row[3] > 200 * AGREEMENT}
    assert not off
    assert all(abs(ours - theirs) < 0.07 * theirs for _, _, _, _, ours, theirs in table.values())


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_page_has_the_table(table):
    found = re.search(r"counts\s+(\d+) kernels", (ROOT / "docs" / "notes" / "emulator.md").read_text())
    assert found
    assert int(found[1]) == len(table)


def told(code, size, blocks=1):
    data = aligned(size)
    count = counted(Kernel(entry(code, 1), 1, 128), [data], blocks)
    return tally(count, [data.nbytes], {"p0": 0}, "k", {})


def test_of_a_sector_no_more_is_written_than_lanes_store():
    assert told(ROWS, 48 * 64, blocks=64)["areas"]["p0"][3] == 32 * 64


@pytest.mark.parametrize(("most", "masked"), [(3, 0), (2, 128), (4, 0)])
def test_prefetches_are_not_masked_at_a_loops_end(most, masked):
    found = told(COPIES.replace("{MOST}", str(most)), 128)
    assert found["offered"] - found["useful"] == masked


def test_idle_loads_say_nothing_about_other_lanes():
    """Else a program could make its work at a verified size seem to be padding, and leave it out at another."""
    found = told(IDLE, 128)
    assert found["useful"] == 4 * (32 + 6)
    assert found["offered"] < 1.2 * found["useful"]
    assert found["lanes"] < 1.2 * found["useful"]


def test_idle_instructions_of_an_access_are_lanes_of_it():
    found = told(SHORT_ROW, 160)
    assert found["useful"] == 4 * 40
    assert found["offered"] < 4 * 64
    assert found["lanes"] == 4 * 128


@pytest.fixture(scope="module")
def found(request):
    """Bytes that windows, and the whole launch, find further away than a cache of 50 MB."""
    run, blocks = launches(SIZE, request.param)
    ran = []

    def some(numbers):
        ran.append(len(numbers))
        return run(numbers)

    count = run(None)
    found = Windows(some, (blocks, 1, 1), np.random.default_rng(0)).rereads(count)
    far = [sum(size for distance, size in rows if distance > 50 << 20) for rows in (found, count.rereads)]
    return *far, sum(ran) / blocks


@pytest.mark.slow
@pytest.mark.parametrize("found, most", [(NEAR, 0), (STRIPES, 0), (LITTLE_AGAIN, 0.2)], indirect=["found"])
def test_what_neighbours_read_again_or_is_all_new_is_near(found, most):
    assert found[0] <= most * SIZE * MEGABYTE


@pytest.mark.parametrize("found", [FAR], indirect=True)
def test_what_is_read_again_far_away_is_found(found):
    assert found[0] == pytest.approx(SIZE * MEGABYTE, rel=0.35)  # places that two tiles share seem read again
    assert found[0] == pytest.approx(found[1], rel=0.35)


@pytest.mark.parametrize("found", [NEAR, FAR], indirect=True)
def test_windows_are_short(found):
    assert found[2] <= 3 * MOVED / (SIZE * MEGABYTE)


@pytest.mark.parametrize(("tile", "is_far"), [(NEAR, False), (FAR, True)])
def test_the_count_of_a_sampled_launch_has_them(tile, is_far):
    run, blocks = launches(SIZE, tile)
    nothing = ("nothing", 0.0)
    count = Sampler(run, (blocks, 1, 1), np.random.default_rng(0), lambda count: count, lambda *both: nothing).count()
    far = sum(size for distance, size in count.rereads if distance > 50 << 20)
    assert (far > 0.05 * SIZE * MEGABYTE) == is_far
