# SPDX-License-Identifier: Apache-2.0
"""Kernels whose programs race; see `faults`. The line is a load's where it races with a store."""

import torch
import triton
import triton.language as tl

from tests.env.devices.cpu.memory.faults import N, counter, fault, given

race = fault("race")


@triton.jit
def one_cell(x, o):
    tl.store(o, tl.load(x + tl.program_id(0)))  # FAULT


@race
def all_store_to_one_cell():
    one_cell[(4,)](given(), torch.empty(1))


@triton.jit
def overlapping(x, o, n, step, B: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + i, v * tl.program_id(0), mask=i < n)  # FAULT


@race
def blocks_that_overlap():
    overlapping[(5,)](given(), torch.empty(N), N, 4, B=8)


@triton.jit
def shifted(x, n):
    i = tl.program_id(0)
    after = tl.load(x + (i + 1) % n)  # FAULT
    tl.store(x + i, after)


@race
def shifted_in_place():
    shifted[(4,)](given(), 4)


@triton.jit
def summed(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0)
    tl.store(o, tl.load(o) + part)  # FAULT


@race
def sum_without_an_atomic():
    summed[(3,)](given(), torch.zeros(1), N, B=8)


@triton.jit
def first_one_clears(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(o, 0.0)  # FAULT
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@race
def cleared_by_the_first():
    first_one_clears[(3,)](given(), torch.empty(1), N, B=8)


@triton.jit
def last_one_scales(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
    if tl.program_id(0) == tl.num_programs(0) - 1:
        total = tl.load(o)  # FAULT
        tl.store(o + 1, total * 2)


@race
def sum_read_by_the_last_in_the_grid():
    last_one_scales[(3,)](given(), torch.zeros(2), N, B=8)


@triton.jit
def parts(x, part, count, o, P: tl.constexpr):
    i = tl.program_id(0)
    tl.store(part + i, tl.load(x + i))
    tl.atomic_add(count, 1)
    if i == P - 1:
        all_parts = tl.load(part + tl.arange(0, P))  # FAULT
        tl.store(o, tl.sum(all_parts, 0))


@race
def parts_read_by_the_last_in_the_grid():
    parts[(4,)](given(), torch.empty(4), counter(), torch.empty(1), P=4)


@triton.jit
def counted_early(x, part, count, o, P: tl.constexpr):
    i = tl.program_id(0)
    before = tl.atomic_add(count, 1)
    tl.store(part + i, tl.load(x + i))
    if before == P - 1:
        all_parts = tl.load(part + tl.arange(0, P))  # FAULT
        tl.store(o, tl.sum(all_parts, 0))


@race
def counted_before_it_is_stored():
    counted_early[(4,)](given(), torch.empty(4), counter(), torch.empty(1), P=4)


@triton.jit
def relaxed(x, part, count, o, P: tl.constexpr):
    i = tl.program_id(0)
    tl.store(part + i, tl.load(x + i))
    if tl.atomic_add(count, 1, sem="relaxed") == P - 1:
        all_parts = tl.load(part + tl.arange(0, P))  # FAULT
        tl.store(o, tl.sum(all_parts, 0))


@race
def counted_without_an_order():
    relaxed[(4,)](given(), torch.empty(4), counter(), torch.empty(1), P=4)


@triton.jit
def counters(x, part, count, o, P: tl.constexpr):
    i = tl.program_id(0)
    tl.store(part + i, tl.load(x + i))
    before = tl.atomic_add(count + i, 1)
    if (before == 0) & (i == P - 1):
        all_parts = tl.load(part + tl.arange(0, P))  # FAULT
        tl.store(o, tl.sum(all_parts, 0))


@race
def counted_in_counters_of_their_own():
    counters[(4,)](given(), torch.empty(4), counter(4), torch.empty(1), P=4)


@triton.jit
def unlocked_early(x, o, lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    v = tl.load(o)  # FAULT
    tl.atomic_xchg(lock, 0)
    tl.store(o, v + tl.load(x + tl.program_id(0)))


@race
def stored_after_the_lock_is_given_back():
    unlocked_early[(4,)](given(), torch.zeros(1), counter())


@triton.jit
def many_locks(x, o, locks):
    lock = locks + tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    v = tl.load(o)  # FAULT
    tl.store(o, v + tl.load(x + tl.program_id(0)))
    tl.atomic_xchg(lock, 0)


@race
def every_program_has_its_lock():
    many_locks[(4,)](given(), torch.zeros(1), counter(4))


@triton.jit
def plain_flag(x, flag, o):
    if tl.program_id(0) == 0:
        tl.store(o, tl.load(x))
        tl.store(flag, 1)
    else:
        while tl.load(flag) == 0:  # FAULT
            pass
        tl.store(o + tl.program_id(0), tl.load(x + 1))


@race
def flag_that_is_no_atomic():
    plain_flag[(3,)](given(), counter(), torch.empty(3))


@triton.jit
def smoothed(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    right = tl.load(x + i + 1, mask=i + 1 < n, other=0.0)  # FAULT
    tl.store(x + i, (tl.load(x + i, mask=i < n) + right) / 2, mask=i < n)


@race
def neighbours_in_place():
    smoothed[(3,)](given(), N, B=8)


@triton.jit
def turned(x, W: tl.constexpr, B: tl.constexpr):
    i, j = tl.program_id(0), tl.arange(0, B)
    column = tl.load(x + j * W + i, mask=j < W)  # FAULT
    tl.store(x + i * W + j, column, mask=j < W)


@race
def transposed_in_place():
    turned[(4,)](given(16), W=4, B=4)


@triton.jit
def axis_forgotten(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v + tl.program_id(1), mask=i < n)  # FAULT


@race
def second_axis_of_the_grid_forgotten():
    axis_forgotten[(3, 2)](given(), torch.empty(N), N, B=8)


@triton.jit
def slots(x, o, count):
    tl.atomic_add(count, 1)
    place = tl.load(count) - 1  # FAULT
    tl.store(o + place, tl.load(x + tl.program_id(0)))


@race
def counter_read_after_it_was_raised():
    slots[(4,)](given(), torch.empty(4), counter())


@triton.jit
def wide_and_narrow(x, o):
    i = tl.program_id(0)
    if i == 0:
        tl.store(o.to(tl.pointer_type(tl.int32)), 0x07070707)
    else:
        v = tl.load(o + i)  # FAULT
        tl.store(x + i, v)


@race
def bytes_of_a_word():
    wide_and_narrow[(4,)](torch.zeros(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8))


@triton.jit
def rows_of_a_scratch(x, scratch, o, B: tl.constexpr):
    i, c = tl.program_id(0), tl.arange(0, B)
    tl.store(scratch + c, tl.load(x + i * B + c))  # FAULT
    tl.store(o + i * B + c, tl.load(scratch + B - 1 - c))  # FAULT


@race
def one_scratch_for_all():
    rows_of_a_scratch[(2,)](given(16), torch.zeros(8), torch.empty(16), B=8)
