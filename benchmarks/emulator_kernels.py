# SPDX-License-Identifier: Apache-2.0
"""Kernels that the emulator's benchmarks compile and run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) + tl.load(y_ptr + offsets, mask=inside), inside)


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, scale, A: tl.constexpr, B: tl.constexpr, D: tl.constexpr):
    rows, columns, deep = tl.program_id(0) * A + tl.arange(0, A), tl.arange(0, B), tl.arange(0, D)
    head = tl.program_id(1) * n * D
    q = tl.load(q_ptr + head + rows[:, None] * D + deep[None, :])
    highest, total = tl.full((A,), -float("inf"), tl.float32), tl.zeros((A,), tl.float32)
    out = tl.zeros((A, D), tl.float32)
    for start in range(0, n, B):
        k = tl.load(k_ptr + head + (start + columns)[None, :] * D + deep[:, None])
        v = tl.load(v_ptr + head + (start + columns)[:, None] * D + deep[None, :])
        scores = tl.dot(q, k) * scale
        higher = tl.maximum(highest, tl.max(scores, 1))
        parts, kept = tl.exp(scores - higher[:, None]), tl.exp(highest - higher)
        total = total * kept + tl.sum(parts, 1)
        out = tl.dot(parts.to(tl.float16), v, out * kept[:, None])
        highest = higher
    tl.store(out_ptr + head + rows[:, None] * D + deep[None, :], (out / total[:, None]).to(tl.float16))


@triton.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=inside, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + columns, x / tl.sum(x, 0), mask=inside)


@triton.jit
def layernorm(x_ptr, weight_ptr, bias_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=inside, other=0.0)
    x = tl.where(inside, x - tl.sum(x, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / n + eps)
    weight, bias = tl.load(weight_ptr + columns, mask=inside), tl.load(bias_ptr + columns, mask=inside)
    tl.store(out_ptr + row * n + columns, x * scale * weight + bias, mask=inside)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total, input_precision=P)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(c_ptr.dtype.element_ty))


@triton.jit
def functions(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    y = tl.sin(x) + tl.math.erf(x) + tl.math.log(tl.abs(x) + 1)
    tl.store(out_ptr + offsets, y, mask=offsets < n)


@triton.jit
def group_norm(x_ptr, out_ptr, n, eps, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    base, columns = tl.program_id(0) * GROUP * n, tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for channel in tl.static_range(GROUP):
        x = tl.load(x_ptr + base + channel * n + columns, mask=columns < n, other=0.0)
        total += x
        squares += x * x
    mean = tl.sum(total, 0) / (GROUP * n)
    scale = tl.rsqrt(tl.sum(squares, 0) / (GROUP * n) - mean * mean + eps)
    for channel in tl.static_range(GROUP):
        place = base + channel * n + columns
        x = tl.load(x_ptr + place, mask=columns < n, other=0.0)
        tl.store(out_ptr + place, (x - mean) * scale, mask=columns < n)


@triton.jit
def sort(x_ptr, out_ptr, N: tl.constexpr):
    place = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + place, tl.sort(tl.load(x_ptr + place)))


@triton.jit
def histogram(x_ptr, out_ptr, N: tl.constexpr, BINS: tl.constexpr):
    counts = tl.histogram(tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N)), BINS)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), counts)


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :])
    index = tl.load(index_ptr + tl.arange(0, C)[:, None] * D + tl.arange(0, D)[None, :])
    tl.store(out_ptr + tl.arange(0, C)[:, None] * D + tl.arange(0, D)[None, :], tl.gather(x, index, 1))


def _product(size: int, dtype: torch.dtype, precision: str, tile: tuple[int, int, int], **more: int) -> Any:
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    blocks = (size // tile[0], size // tile[1])
    return matmul, blocks, (a, b, torch.empty(size, size).to(dtype), size, size, size, *tile, precision), more


def launches() -> Iterator[tuple[str, Any]]:
    """Names of launches, and for each the kernel, the grid, the arguments and the options."""
    x, weight = torch.randn(4096, 1024), torch.randn(1024)
    out = torch.empty_like(x)
    many = torch.randn(1 << 22)
    yield "add, 4 million", (add, (4096,), (many, many, torch.empty_like(many), 1 << 22, 1024), {})
    yield "softmax 4096x1024", (softmax, (4096,), (x, out, 1024, 1024), {})
    yield "softmax, 4096 a row", (softmax, (1024,), (x, out, 4096, 4096), {})
    yield "layernorm 4096x1024", (layernorm, (4096,), (x, weight, weight, out, 1024, 1e-5, 1024), {})
    yield "layernorm, 8192 a row", (layernorm, (512,), (x, x, x, out, 8192, 1e-5, 8192), {})
    yield "matmul 1024 fp16 64x64x32", _product(1024, torch.float16, "ieee", (64, 64, 32))
    yield "matmul 512 fp16 64x64x32", _product(512, torch.float16, "ieee", (64, 64, 32))
    yield "matmul 512 fp16 128x128x64", _product(512, torch.float16, "ieee", (128, 128, 64), num_warps=8)
    yield "matmul 512 bf16 64x64x32", _product(512, torch.bfloat16, "ieee", (64, 64, 32))
    yield "matmul 512 tf32 64x64x32", _product(512, torch.float32, "tf32", (64, 64, 32))
    yield "matmul 512 ieee 64x64x32", _product(512, torch.float32, "ieee", (64, 64, 32))
    yield "matmul 512 ieee 128x64x32", _product(512, torch.float32, "ieee", (128, 64, 32))
    yield "sin + erf + log", (functions, (1024,), (x, out, 1 << 20, 1024), {})
    yield "sin + erf + log, 4 a lane", (functions, (256,), (x, out, 1 << 20, 4096), {"num_warps": 32})
    yield "group_norm 32 channels", (group_norm, (128,), (x, out, 1000, 1e-5, 32, 1024), {})
    yield "sort 1024", (sort, (64,), (x, out, 1024), {})
    yield "sort 4096", (sort, (16,), (x, out, 4096), {})
    yield (
        "histogram 4096",
        (
            histogram,
            (4,),
            (torch.randint(0, 64, (4, 4096), dtype=torch.int32), torch.zeros(64, dtype=torch.int32), 4096, 64),
            {},
        ),
    )
    index = torch.randint(0, 64, (128, 128))
    yield "gather 128x64", (gather, (1,), (x, index, out, 128, 64, 128, 128), {})
    q, k, v = (torch.randn(8, 1024, 64).half() for _ in range(3))
    yield "attention 8x1024x64", (attention, (16, 8), (q, k, v, torch.empty_like(q), 1024, 0.125, 64, 64, 64), {})
