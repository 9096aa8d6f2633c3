# SPDX-License-Identifier: Apache-2.0
"""Kernels whose programs meet in the same memory, put in order by atomics; see `honest`."""

import torch
import triton
import triton.language as tl

from tests.env.devices.cpu.memory.faults import N, counter, given
from tests.env.devices.cpu.memory.honest import honest


@triton.jit
def total(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@honest
def sum_by_atomics():
    out = torch.zeros(1)
    total[(3,)](given(), out, N, B=8)
    total[(3,)](given(), out, N, B=8)
    return out


@triton.jit
def spread(x, index, o, n, B: tl.constexpr, OP: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    where, v = tl.load(index + i, mask=i < n, other=0), tl.load(x + i, mask=i < n, other=0.0)
    if OP == "add":
        tl.atomic_add(o + where, v, mask=i < n)
    elif OP == "max":
        tl.atomic_max(o + where, v, mask=i < n)
    else:
        tl.atomic_add(o + where, v, mask=i < n, sem="relaxed")


@honest
def histograms():
    for op in ("add", "max", "relaxed"):
        spread[(3,)](given(), torch.arange(N) % 5, torch.zeros(5), N, B=8, OP=op)


@triton.jit
def take(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


@triton.jit
def locked(x, o, lock):
    take(lock)
    tl.store(o, tl.load(o) + tl.load(x + tl.program_id(0)))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@honest
def spin_lock():
    out = torch.zeros(1)
    locked[(6,)](given(), out, counter())
    return out


@triton.jit
def gradients(x, locks, counts, part, rows, G: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    group = row % G
    lock, count, own = locks + group, counts + group, part + group * B + c
    v = tl.load(x + row * B + c)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        v += tl.load(own)
    tl.store(own, v)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def columns(part, o, G: tl.constexpr, B: tl.constexpr):
    rows, c = tl.arange(0, G), tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(o + c, tl.sum(tl.load(part + rows[:, None] * B + c[None, :]), 0))


@honest
def partial_sums_under_locks():
    part, out = torch.empty(2, 8), torch.empty(8)
    gradients[(6,)](given(48), counter(2), counter(2), part, 6, G=2, B=8)
    columns[(2,)](part, out, G=2, B=8)
    return out


@triton.jit
def last_one(x, part, count, o, P: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0)
    tl.store(part + i, tl.sum(tl.load(x + i * B + tl.arange(0, B)), 0))
    tl.debug_barrier()
    if tl.atomic_add(count, 1) == P - 1:
        tl.store(o, tl.sum(tl.load(part + tl.arange(0, P)), 0))
        tl.atomic_xchg(count, 0)


@honest
def last_program_sums_up():
    out, count = torch.empty(1), counter()
    for _ in range(2):
        last_one[(4,)](given(32), torch.empty(4), count, out, P=4, B=8)
    return out


@triton.jit
def split(a, b, part, counts, c, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr):
    tile, piece = tl.program_id(0), tl.program_id(1)
    i, j, k = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :], piece * (K // S) + tl.arange(0, K // S)
    left = tl.load(a + (tile * B + i) * K + k[None, :])
    tl.store(part + ((tile * S + piece) * B + i) * B + j, tl.dot(left, tl.load(b + k[:, None] * B + j)))
    done = tl.atomic_add(counts + tile, 1, sem="acq_rel")
    if done == S - 1:
        total = tl.zeros((B, B), tl.float32)
        for other in range(S):
            total += tl.load(part + ((tile * S + other) * B + i) * B + j)
        tl.store(c + (tile * B + i) * B + j, total)


@honest
def split_product_with_a_counter():
    out = torch.empty(8, 4)
    split[(2, 4)](torch.ones(8, 16), torch.ones(16, 4), torch.empty(2, 4, 4, 4), counter(2), out, K=16, S=4, B=4)
    return out


@triton.jit
def split_added(a, b, c, K: tl.constexpr, S: tl.constexpr, B: tl.constexpr):
    tile, piece = tl.program_id(0), tl.program_id(1)
    i, j, k = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :], piece * (K // S) + tl.arange(0, K // S)
    part = tl.dot(tl.load(a + (tile * B + i) * K + k[None, :]), tl.load(b + k[:, None] * B + j))
    tl.atomic_add(c + (tile * B + i) * B + j, part)


@honest
def split_product_by_atomics():
    out = torch.zeros(8, 4)
    split_added[(2, 4)](torch.ones(8, 16), torch.ones(16, 4), out, K=16, S=4, B=4)
    return out


@triton.jit
def chained(x, flags, carry, o, B: tl.constexpr):
    i = tl.program_id(0)
    c = i * B + tl.arange(0, B)
    sums = tl.cumsum(tl.load(x + c), 0)
    before = 0.0
    if i > 0:
        while tl.atomic_add(flags + i - 1, 0) == 0:
            pass
        before = tl.load(carry + i - 1)
    tl.store(carry + i, before + tl.sum(tl.load(x + c), 0))
    tl.debug_barrier()
    tl.atomic_xchg(flags + i, 1)
    tl.store(o + c, sums + before)


@honest
def each_waits_for_the_one_before():
    out = torch.empty(32)
    chained[(4,)](torch.ones(32), counter(4), torch.empty(4), out, B=8)
    return out


@triton.jit
def polled(x, flag, o):
    if tl.program_id(0) == 0:
        tl.store(o, tl.load(x))
        tl.atomic_xchg(flag, 1)
    else:
        while tl.load(flag, volatile=True) == 0:
            pass
        tl.store(o + tl.program_id(0), tl.load(o) + 1)


@honest
def flag_polled_by_volatile_loads():
    out = torch.empty(3)
    polled[(3,)](given(), counter(), out)
    return out


@triton.jit
def tasks(x, o, count, n, B: tl.constexpr):
    block = tl.atomic_add(count, 1)
    while block * B < n:
        i = block * B + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
        block = tl.atomic_add(count, 1)


@honest
def work_taken_from_a_counter():
    out = torch.empty(50)
    tasks[(3,)](given(50), out, counter(), 50, B=8)
    return out


@triton.jit
def kept(x, o, count, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    keep = (v > 5) & (i < n)
    places = tl.atomic_add(count + tl.zeros((B,), tl.int32), 1, mask=keep)
    tl.store(o + places, v, mask=keep)


@honest
def compacted_by_a_counter():
    kept[(3,)](given(), torch.zeros(N), counter(), N, B=8)


@triton.jit
def product_by_swaps(x, o):
    v, old = tl.load(x + tl.program_id(0)), tl.atomic_add(o, 0)
    while tl.atomic_cas(o, old, old * v) != old:
        old = tl.atomic_add(o, 0)


@honest
def product_by_compare_and_swap():
    out = torch.ones(1, dtype=torch.int32)
    product_by_swaps[(4,)](torch.full((4,), 3, dtype=torch.int32), out)
    return out


@triton.jit
def two_locks(x, o, locks):
    i = tl.program_id(0)
    for side in range(2):
        take(locks + side)
        tl.store(o + side, tl.load(o + side) + tl.load(x + i))
        tl.atomic_xchg(locks + side, 0, sem="release")


@honest
def locks_taken_in_turn():
    out = torch.zeros(2)
    two_locks[(5,)](given(), out, counter(2))
    return out


@triton.jit
def handed_on(x, o, first, second):
    i = tl.program_id(0)
    if i == 0:
        tl.store(o, tl.load(x))
        tl.atomic_xchg(first, 1)
    if i == 1:
        while tl.atomic_add(first, 0) == 0:
            pass
        tl.atomic_xchg(second, 1)
    if i == 2:
        while tl.atomic_add(second, 0) == 0:
            pass
        tl.store(o + 1, tl.load(o))


@honest
def order_through_a_third_program():
    out = torch.empty(2)
    handed_on[(3,)](given(), out, counter(), counter())
    return out
