# SPDX-License-Identifier: Apache-2.0
"""Passes of accesses to shared memory, against counting the words of each bank."""

import numpy as np
import pytest

from tests.env.executor.ptx import aligned, buffer, entry
from verl_kernel.env.executor.kernel import Kernel

REGISTERS = (
    ".reg .b64 %in, %at, %off; .reg .b32 %t, %x, %y<4>; .reg .b16 %h; .reg .b64 %w; .reg .pred %p;"
    "ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 4; add.u64 %at, %in, %off;"
)
LOADS = {2: "ld.shared.b16 %h", 4: "ld.shared.b32 %y0", 8: "ld.shared.b64 %w", 16: "ld.shared.v4.b32 {%y0,%y1,%y2,%y3}"}


def expected(addresses, size, phase=32):
    passes = 0
    for start in range(0, len(addresses), phase):
        given = {place // max(4, size) for place in addresses[start : start + phase]}
        banks = [word % (128 // max(4, size)) for word in given]
        passes += max((banks.count(bank) for bank in banks), default=0)
    return passes


def passes(load, offsets, lanes, turns=1):
    """Of accesses at offsets; lanes beyond `lanes` do not take part."""
    table = aligned(128, np.uint32)
    table[:] = offsets
    step = f"setp.lt.u32 %p, %t, {lanes}; {load.replace('PLACE', '[%x]')}"
    loop = f".reg .b32 %j; .reg .pred %q; ld.global.b32 %x, [%at]; mov.u32 %j, 0; AGAIN: {step} add.u32 %j, %j, 1;"
    loop += f"setp.lt.u32 %q, %j, {turns}; @%q bra AGAIN; ret;"
    made = Kernel(entry(REGISTERS + loop, 1), 1, 8192)
    count = made.launch((1,), [table.ctypes.data], [buffer(table)])
    return next(item.sectors for item in count.sites if item.site.kind == "shared load")


@pytest.mark.parametrize("lanes", [32, 9, 0])
@pytest.mark.parametrize("size", LOADS)
def test_passes_are_the_words_of_the_busiest_bank(size, lanes):
    numbers, lane = np.random.default_rng(size), np.arange(32)
    rows = [lane * 0, lane * size, lane[::-1] * size, lane * 128, lane // 4 * 128, lane % 4 * size]
    rows += [numbers.integers(0, 8192 // size, 32) * size for _ in range(5)]
    for number, row in enumerate(rows):
        found = passes(f"@%p {LOADS[size]}, PLACE;", row, lanes, turns=number + 1)
        assert found == (number + 1) * expected(row[:lanes], size)


def test_conflicts_are_what_they_are_known_to_be():
    lane, load = np.arange(32), "@%p ld.shared.b32 %y0, PLACE;"
    known = {1: 1, 2: 2, 8: 8, 32: 32, 33: 1}
    assert {step: passes(load, lane * 4 * step, 32) for step in known} == known


@pytest.mark.parametrize("row, passes_of_rows", [(16, 4), (32, 8), (64, 16), (80, 4), (128, 32)])
def test_matrices_are_loaded_row_by_row(row, passes_of_rows):
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%y0,%y1,%y2,%y3}, PLACE;"
    offsets = np.arange(32) * row
    assert passes(load, offsets, 32, turns=200) == 200 * passes_of_rows == 200 * expected(offsets, 16, 8)


def test_passes_of_warps_that_differ_are_taken_in_the_mean():
    """Of four warps one has conflicts of 8 lanes."""
    step = (
        "shr.u32 %j, %t, 5; setp.eq.u32 %q, %j, 2; selp.b32 %x, 32, 4, %q; and.b32 %y1, %t, 31; mul.lo.u32 %x, %x, %y1;"
    )
    loop = f".reg .b32 %j, %n; .reg .pred %q; {step} mov.u32 %n, 0; AGAIN: bar.sync 0; ld.shared.b32 %y0, [%x];"
    made = Kernel(
        entry(f"{REGISTERS} {loop} add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 600; @%p bra AGAIN; ret;", 1), 4, 8192
    )
    table = aligned(64)
    count = made.launch((1,), [table.ctypes.data], [buffer(table)])
    (found,) = [item.sectors for item in count.sites if item.site.kind == "shared load"]
    assert 0.85 < found / (600 * (3 + 8)) < 1.15
