# SPDX-License-Identifier: Apache-2.0
"""Launches of many kinds that have more programs than are run whole, for the benchmark of sampled counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import triton
import triton.language as tl

Launch = Callable[[], object]


@triton.jit
def elementwise(x_ptr, out_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + where, mask=where < n)
    if KIND == "relu":
        x = tl.maximum(x, 0.0)
    elif KIND == "gelu":
        x = 0.5 * x * (1 + tl.math.erf(x * 0.7071))
    elif KIND == "swish":
        x = x / (1 + tl.exp(-x))
    tl.store(out_ptr + where, x, mask=where < n)


@triton.jit
def bias(x_ptr, bias_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + where, mask=where < n) + tl.load(bias_ptr + where % width, mask=where < n)
    tl.store(out_ptr + where, x, mask=where < n)


@triton.jit
def strided(x_ptr, out_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + where, tl.load(x_ptr + where * STEP, mask=where < n), mask=where < n)


@triton.jit
def transpose(x_ptr, out_ptr, M, N, B: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(out_ptr + n[None, :] * M + m[:, None], tl.load(x_ptr + m[:, None] * N + n[None, :], mask=inside), inside)


@triton.jit
def rows_in_loops(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, total = tl.program_id(0) * n, tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        where = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + where, mask=where < n, other=0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total, 0) / n + 1e-6)
    for start in range(0, n, BLOCK):
        where = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + row + where, tl.load(x_ptr + row + where, mask=where < n) * scale, mask=where < n)


@triton.jit
def persistent_rows(x_ptr, out_ptr, rows, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
        x = tl.exp(x - tl.max(x, 0))
        tl.store(out_ptr + row * n + columns, x / tl.sum(x, 0), mask=columns < n)


@triton.jit
def grouped_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * columns)
    first = group * GROUP
    size = tl.minimum(rows - first, GROUP)
    m = (first + pid % (GROUP * columns) % size) * BM + tl.arange(0, BM)
    n = pid % (GROUP * columns) // size * BN + tl.arange(0, BN)
    k, total = tl.arange(0, BK), tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        a = tl.load(a_ptr + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    place = c_ptr + m[:, None] * N + n[None, :]
    tl.store(place, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def persistent_matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One loop over tiles and their turns, whose counters are carried."""
    columns, turns = tl.cdiv(N, BN), tl.cdiv(K, BK)
    tiles = tl.cdiv(M, BM) * columns
    own = (tiles - tl.program_id(0) + tl.num_programs(0) - 1) // tl.num_programs(0)
    tile, turn, k = tl.program_id(0) - tl.num_programs(0), -1, tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, own * turns):
        turn = tl.where(turn == turns - 1, 0, turn + 1)
        if turn == 0:
            tile += tl.num_programs(0)
            total = tl.zeros((BM, BN), tl.float32)
        m, n = tile // columns * BM + tl.arange(0, BM), tile % columns * BN + tl.arange(0, BN)
        at = turn * BK + k
        a = tl.load(a_ptr + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=(at[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
        if turn == turns - 1:
            place = c_ptr + m[:, None] * N + n[None, :]
            tl.store(place, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def split_matmul(a_ptr, b_ptr, c_ptr, M, N, K, B: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    k, total = tl.program_id(2) * BK + tl.arange(0, BK), tl.zeros((B, B), tl.float32)
    for start in range(0, K, BK * SPLIT):
        at = start + k
        a = tl.load(a_ptr + m[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=at[:, None] < K, other=0.0)
        total = tl.dot(a, b, total)
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], total)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, CAUSAL: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    rows, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    base = tl.program_id(1) * n * D
    q = tl.load(q_ptr + base + rows[:, None] * D + d[None, :])
    most, total = tl.full((B,), -1e30, tl.float32), tl.zeros((B,), tl.float32)
    out = tl.zeros((B, D), tl.float32)
    end = (tl.program_id(0) + 1) * B if CAUSAL else n
    for start in range(0, end, B):
        columns = start + tl.arange(0, B)
        k = tl.load(k_ptr + base + columns[None, :] * D + d[:, None])
        scores = tl.dot(q, k) * 0.1
        if CAUSAL:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1e30)
        new = tl.maximum(most, tl.max(scores, 1))
        p, fade = tl.exp(scores - new[:, None]), tl.exp(most - new)
        total, most = total * fade + tl.sum(p, 1), new
        v = tl.load(v_ptr + base + columns[:, None] * D + d[None, :])
        out = tl.dot(p.to(v.dtype), v, out * fade[:, None])
    place = out_ptr + base + rows[:, None] * D + d[None, :]
    tl.store(place, (out / total[:, None]).to(out_ptr.dtype.element_ty))


@triton.jit
def embedding(table_ptr, index_ptr, out_ptr, D: tl.constexpr):
    row, d = tl.load(index_ptr + tl.program_id(0)), tl.arange(0, D)
    tl.store(out_ptr + tl.program_id(0) * D + d, tl.load(table_ptr + row * D + d))


@triton.jit
def ragged(x_ptr, starts_ptr, out_ptr, BLOCK: tl.constexpr):
    start, end = tl.load(starts_ptr + tl.program_id(0)), tl.load(starts_ptr + tl.program_id(0) + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for place in range(start, end, BLOCK):
        where = place + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + where, mask=where < end, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def summed(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + where, mask=where < n, other=0.0), 0))


@triton.jit
def convolution(x_ptr, w_ptr, out_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, where = tl.program_id(1) * n, tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(WIDTH):
        at = where + step - WIDTH // 2
        total += tl.load(x_ptr + row + at, mask=(at >= 0) & (at < n), other=0.0) * tl.load(w_ptr + step)
    tl.store(out_ptr + row + where, total, mask=where < n)


@triton.jit
def pooled(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row, where = tl.program_id(0), tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for step in tl.static_range(4):
        at = (2 * row + step // 2) * 2 * width + 2 * where + step % 2
        best = tl.maximum(best, tl.load(x_ptr + at, mask=where < width, other=-float("inf")))
    tl.store(out_ptr + row * width + where, best, mask=where < width)


@triton.jit
def cumulated(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    where = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + where, mask=where < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0) * n + where, tl.cumsum(x, 0), mask=where < n)


@triton.jit
def dropped(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + where, mask=where < n)
    tl.store(out_ptr + where, tl.where(tl.rand(seed, where) > 0.3, x / 0.7, 0.0), mask=where < n)


@triton.jit
def hashed(x_ptr, out_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + where, mask=where < n)
    for _ in tl.static_range(ROUNDS):
        x = (x ^ (x >> 7)) * 0x9E3779B
    tl.store(out_ptr + where, x, mask=where < n)


@triton.jit
def branching(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program looks at what it has loaded."""
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + where, mask=where < n, other=0.0)
    if tl.sum(x, 0) > 0:
        for _ in range(4):
            x = tl.sin(x)
    tl.store(out_ptr + where, x, mask=where < n)


@triton.jit
def triangular(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, row + 1, BLOCK):
        where = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + where, mask=where <= row, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def locked(x_ptr, out_ptr, lock_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of columns under a lock, as in the backward pass of a norm."""
    columns, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for row in range(ROWS):
        total += tl.load(x_ptr + (tl.program_id(0) * ROWS + row) * n + columns, mask=columns < n, other=0.0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    total += tl.load(out_ptr + columns, mask=columns < n, other=0.0)
    tl.store(out_ptr + columns, total, mask=columns < n)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def _pointwise() -> Iterator[tuple[str, Launch]]:
    n = 1 << 20
    x, out = torch.randn(4 * n), torch.empty(4 * n)
    for kind in ("relu", "gelu", "swish"):
        yield kind, lambda kind=kind: elementwise[(n // 1024,)](x, out, n, kind, 1024)
    yield "relu, odd length", lambda: elementwise[(triton.cdiv(n - 77, 1024),)](x, out, n - 77, "relu", 1024)
    yield "relu, blocks of 256", lambda: elementwise[(n // 256,)](x, out, n, "relu", 256)
    half, half_out = x.half(), out.half()
    yield "relu of halves", lambda: elementwise[(n // 1024,)](half, half_out, n, "relu", 1024)
    brain, brain_out = x.bfloat16(), out.bfloat16()
    yield "relu of bfloat16", lambda: elementwise[(n // 1024,)](brain, brain_out, n, "relu", 1024)
    yield "bias", lambda: bias[(n // 1024,)](x, x, out, n, 1000, 1024)
    yield "every second element", lambda: strided[(n // 1024,)](x, out, n, 2, 1024)
    yield "every fourth element", lambda: strided[(n // 1024,)](x, out, n, 4, 1024)
    yield "transpose", lambda: transpose[(32, 32)](x, out, 1024, 1000, 32)
    yield "dropout", lambda: dropped[(n // 1024,)](x, out, n, 3, 1024)
    whole = torch.randint(0, 1 << 20, (n,), dtype=torch.int32)
    yield "hash", lambda: hashed[(n // 1024,)](whole, torch.empty_like(whole), n, 8, 1024)
    yield "branch on values", lambda: branching[(n // 512,)](x, out, n, 512)
    yield "convolution, 5 wide", lambda: convolution[(16, 64)](x, x, out, 16000, 5, 1024)
    yield "max pool", lambda: pooled[(512,)](x, out, 500, 512)


def _by_rows() -> Iterator[tuple[str, Launch]]:
    x, out = torch.randn(4096 * 1024), torch.empty(4096 * 1024)
    yield "rms norm in loops", lambda: rows_in_loops[(512,)](x, out, 5000, 1024)
    yield "rms norm, short rows", lambda: rows_in_loops[(4096,)](x, out, 200, 256)
    yield "softmax, persistent", lambda: persistent_rows[(132,)](x, out, 4000, 1000, 1024)
    yield "softmax, persistent, few rows each", lambda: persistent_rows[(132,)](x, out, 300, 1000, 1024)
    yield "cumulative sums", lambda: cumulated[(1024,)](x, out, 900, 1024)
    yield "sum by atomics", lambda: summed[(4096,)](x, torch.zeros(1), 1 << 22, 1024)
    yield "triangle", lambda: triangular[(2048,)](x, out, 2048, 128)
    lock = torch.zeros(1, dtype=torch.int32)
    yield "column sums under a lock", lambda: locked[(256,)](x, torch.zeros(1000), lock, 1000, 8, 1024)
    lengths = torch.randint(1, 4000, (1024,))
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    yield "rows of many lengths", lambda: ragged[(1024,)](x, starts, out, 256)
    index = torch.randint(0, 8000, (4096,))
    yield "embedding", lambda: embedding[(4096,)](x, index, out, 512)
    yield "embedding, sorted", lambda: embedding[(4096,)](x, index.sort()[0], out, 512)
    yield "embedding, few rows", lambda: embedding[(4096,)](x, index % 16, out, 512)


def _products() -> Iterator[tuple[str, Launch]]:
    a, b, c = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.empty(1024, 1024)
    halves = (a.half(), b.half(), c.half())
    yield "matmul, groups of 8", lambda: grouped_matmul[(256,)](*halves, 1024, 1024, 1024, 64, 64, 32, 8)
    yield "matmul, odd", lambda: grouped_matmul[(16 * 15,)](*halves, 1000, 930, 600, 64, 64, 32, 8)
    yield "matmul, tf32", lambda: grouped_matmul[(256,)](a, b, c, 1024, 1024, 512, 64, 64, 32, 8)
    yield "matmul, wide tiles", lambda: grouped_matmul[(128,)](*halves, 1024, 1024, 1024, 64, 128, 64, 4, num_warps=8)
    yield "matmul, persistent", lambda: persistent_matmul[(132,)](*halves, 1024, 1024, 512, 32, 64, 64)
    sums = torch.zeros(1024, 1024)
    yield "matmul, split", lambda: split_matmul[(8, 8, 8)](*halves[:2], sums, 512, 512, 1024, 64, 32, 8)
    q, k, v = (torch.randn(8, 1024, 64).half() for _ in range(3))
    yield "attention", lambda: attention[(16, 8)](q, k, v, torch.empty_like(q), 1024, False, 64, 64)
    yield "attention, causal", lambda: attention[(16, 8)](q, k, v, torch.empty_like(q), 1024, True, 64, 64)


def launches() -> Iterator[tuple[str, Launch]]:
    """Names, and what makes each launch."""
    yield from _pointwise()
    yield from _by_rows()
    yield from _products()
