# SPDX-License-Identifier: Apache-2.0
"""Kernels with one fault each, in the line that says so, and launches that show it."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

N = 20
FAULTS: dict[str, tuple[str, Callable[[], object]]] = {}
"""Kind of the finding and a launch, by name."""


def fault(kind: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Add a launch that shows a fault of this kind."""

    def add(launch: Callable[[], object]) -> Callable[[], object]:
        FAULTS[launch.__name__] = kind, launch
        return launch

    return add


def given(size: int = N) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) + 1


def counter(size: int = 1) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32)


@triton.jit
def unmasked_load(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i)  # FAULT
    tl.store(o + i, v, mask=i < n)


@fault("out_of_bounds_load")
def tail_without_a_mask():
    unmasked_load[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def one_too_many(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i <= n, other=0.0)  # FAULT
    tl.store(o + i, v, mask=i < n)


@fault("out_of_bounds_load")
def mask_that_is_one_too_long():
    one_too_many[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def left_neighbour(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    v += tl.load(x + i - 1, mask=i < n, other=0.0)  # FAULT
    tl.store(o + i, v, mask=i < n)


@fault("out_of_bounds_load")
def neighbour_before_the_first():
    left_neighbour[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def rows(x, o, n, step, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * step + c, mask=c < n, other=0.0)  # FAULT
    tl.store(o + row * n + c, v, mask=c < n)


@fault("out_of_bounds_load")
def rows_too_far_apart():
    rows[(4,)](given(), torch.empty(N), 5, 8, B=8)


@fault("out_of_bounds_load")
def one_row_too_many():
    rows[(5,)](given(), torch.empty(25), 5, 5, B=8)


@triton.jit
def gathered(x, index, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    where = tl.load(index + c, mask=c < n, other=0)
    v = tl.load(x + where, mask=c < n, other=0.0)  # FAULT
    tl.store(o + c, v, mask=c < n)


@fault("out_of_bounds_load")
def index_behind_the_table():
    gathered[(1,)](given(4), torch.tensor([0, 3, 4]), torch.empty(3), 3, B=4)


@fault("out_of_bounds_load")
def index_of_minus_one():
    gathered[(1,)](given(4), torch.tensor([0, -1, 2]), torch.empty(3), 3, B=4)


@fault("out_of_bounds_load")
def index_far_away():
    gathered[(1,)](given(4), torch.tensor([0, 2**40, 2]), torch.empty(3), 3, B=4)


@triton.jit
def block_pointer(x, o, M: tl.constexpr, K: tl.constexpr, B: tl.constexpr):
    source = tl.make_block_ptr(x, (M, K), (K, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    target = tl.make_block_ptr(o, (M, K), (K, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    v = tl.load(source, boundary_check=(1,))  # FAULT
    tl.store(target, v, boundary_check=(0, 1))


@fault("out_of_bounds_load")
def block_pointer_with_half_a_check():
    block_pointer[(2,)](given(30), torch.empty(30), M=6, K=5, B=4)


@triton.jit
def swapped(x, o, M: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    i, j = tl.arange(0, A)[:, None], tl.arange(0, B)[None, :]
    inside = (i < M) & (j < K)
    v = tl.load(x + i * M + j * K, mask=inside, other=0.0)  # FAULT
    tl.store(o + i * K + j, v, mask=inside)


@fault("out_of_bounds_load")
def strides_exchanged():
    swapped[(1,)](given(15), torch.empty(15), M=3, K=5, A=4, B=8)


@triton.jit
def summed(x, o, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        total += tl.load(x + start + tl.arange(0, B))  # FAULT
    tl.store(o, tl.sum(total, 0))


@fault("out_of_bounds_load")
def loop_without_a_mask():
    summed[(1,)](given(), torch.empty(1), N, B=8)


@triton.jit
def half_masked(x, o, M: tl.constexpr, K: tl.constexpr, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + i * K + j, mask=j < K, other=0.0)  # FAULT
    tl.store(o + i * K + j, v, mask=(i < M) & (j < K))


@fault("out_of_bounds_load")
def mask_of_one_axis():
    half_masked[(1,)](given(15), torch.empty(15), M=3, K=5, B=8)


@triton.jit
def fetch(x, i):
    return tl.load(x + i)  # FAULT


@triton.jit
def by_helper(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, fetch(x, i), mask=i < n)


@fault("out_of_bounds_load")
def in_a_function_of_the_kernel():
    by_helper[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def either_mask(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(  # FAULT
        x + i,
        mask=(i < n) | (i >= 0),
        other=0.0,
    )
    tl.store(o + i, v, mask=i < n)


@fault("out_of_bounds_load")
def masks_joined_by_or():
    either_mask[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def unmasked_store(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + i, v)  # FAULT


@fault("out_of_bounds_store")
def tail_stored_without_a_mask():
    unmasked_store[(3,)](given(), torch.empty(N), N, B=8)


@triton.jit
def shifted_store(x, o, n, by, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + i + by, v, mask=i < n)  # FAULT


@fault("out_of_bounds_store")
def stored_one_behind():
    shifted_store[(3,)](given(), torch.empty(N), N, 1, B=8)


@fault("out_of_bounds_store")
def stored_one_before():
    shifted_store[(3,)](given(), torch.empty(N), N, -1, B=8)


@triton.jit
def scattered(x, index, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    where = tl.load(index + c, mask=c < n, other=0)
    tl.store(o + where, tl.load(x + c, mask=c < n), mask=c < n)  # FAULT


@fault("out_of_bounds_store")
def scattered_behind_the_end():
    scattered[(1,)](given(3), torch.tensor([0, 5, 2]), torch.zeros(5), 3, B=4)


@triton.jit
def block_pointer_store(x, o, M: tl.constexpr, K: tl.constexpr, B: tl.constexpr):
    source = tl.make_block_ptr(x, (M, K), (K, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    target = tl.make_block_ptr(o, (M, K), (K, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    v = tl.load(source, boundary_check=(0, 1))
    tl.store(target, v, boundary_check=(1,))  # FAULT


@fault("out_of_bounds_store")
def block_pointer_stored_with_half_a_check():
    block_pointer_store[(2,)](given(30), torch.empty(30), M=6, K=5, B=4)


@triton.jit
def bins(index, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    where = tl.load(index + c, mask=c < n, other=0)
    tl.atomic_add(o + where, 1, mask=c < n)  # FAULT


@fault("out_of_bounds_store")
def counted_in_a_bin_that_is_not_there():
    bins[(1,)](torch.tensor([0, 4, 1]), counter(4), 3, B=4)


@triton.jit
def locked_elsewhere(x, lock, o):
    while tl.atomic_cas(lock + tl.program_id(0), 0, 1) == 1:  # FAULT
        pass
    tl.store(o + tl.program_id(0), tl.load(x))
    tl.atomic_xchg(lock + tl.program_id(0), 0)


@fault("out_of_bounds_store")
def lock_behind_the_locks():
    locked_elsewhere[(3,)](given(), counter(2), torch.empty(3))
