# SPDX-License-Identifier: Apache-2.0
"""Kernels that read what nobody wrote; see `faults`."""

import torch
import triton
import triton.language as tl

from tests.env.devices.cpu.memory.faults import N, counter, fault, given

read = fault("uninitialised_read")


@triton.jit
def added(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    before = tl.load(o + i, mask=i < n)  # FAULT
    tl.store(o + i, before + tl.load(x + i, mask=i < n), mask=i < n)


@read
def added_to_empty():
    added[(3,)](given(), torch.empty(N), N, B=8)


@read
def added_to_empty_like():
    added[(3,)](given(), torch.empty_like(given()), N, B=8)


@read
def added_to_new_empty():
    added[(3,)](given(), given().new_empty(N), N, B=8)


@read
def added_to_empty_strided():
    added[(3,)](given(), torch.empty_strided((4, 5), (1, 4)), N, B=8)


@read
def added_to_half_a_tensor():
    out = torch.empty(N)
    out[:10].zero_()
    added[(3,)](given(), out, N, B=8)


@read
def added_where_a_column_is_missing():
    out = torch.empty(4, 5)
    out[:, 1:] = 0.0
    added[(3,)](given(), out, N, B=8)


@triton.jit
def counted(index, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    where = tl.load(index + c, mask=c < n, other=0)
    tl.atomic_add(o + where, 1, mask=c < n)  # FAULT


@read
def counted_in_empty_bins():
    counted[(1,)](torch.tensor([0, 3, 1]), torch.empty(4, dtype=torch.int32), 3, B=4)


@triton.jit
def largest(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_max(o, tl.max(tl.load(x + i, mask=i < n, other=0.0), 0))  # FAULT


@read
def largest_of_empty():
    largest[(3,)](given(), torch.empty(1), N, B=8)


@triton.jit
def first_half(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def all_of_it(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)  # FAULT
    tl.store(o + i, v * 2, mask=i < n)


@read
def second_kernel_reads_more_than_the_first_wrote():
    between = torch.empty(N)
    first_half[(3,)](given(), between, 10, B=8)
    all_of_it[(3,)](between, torch.empty(N), N, B=8)


@read
def padding_of_a_workspace():
    padded = torch.empty(24)
    padded[:N].copy_(given())
    all_of_it[(3,)](padded, torch.empty(24), 24, B=8)


@triton.jit
def spaced(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + 2 * i, tl.load(x + i, mask=i < n), mask=i < n)


@read
def half_of_each_word():
    wide = torch.empty(N, dtype=torch.int32)
    spaced[(3,)](torch.arange(N, dtype=torch.int16), wide.view(torch.int16), N, B=8)
    all_of_it[(3,)](wide, torch.empty(N, dtype=torch.int32), N, B=8)


@triton.jit
def locked(x, o, lock):
    while tl.atomic_cas(lock, 0, 1) == 1:  # FAULT
        break
    tl.store(o + tl.program_id(0), tl.load(x))
    tl.atomic_xchg(lock, 0)


@read
def lock_of_empty():
    lock = torch.empty(1, dtype=torch.int32)
    locked[(1,)](given(), torch.empty(1), lock)


@triton.jit
def loaded_first(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    behind = tl.load(o + n - 1 - c, mask=c < n)  # FAULT
    tl.store(o + c, tl.load(x + c, mask=c < n), mask=c < n)
    tl.store(x + c, behind, mask=c < n)


@read
def loaded_before_it_is_stored():
    loaded_first[(1,)](given(8), torch.empty(8), 8, B=8)


@read
def counter_of_empty():
    counted[(1,)](torch.tensor([0, 0, 0]), torch.empty_like(counter(4)), 3, B=4)
