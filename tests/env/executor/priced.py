# SPDX-License-Identifier: Apache-2.0
"""Kernels whose prices have to stand in an order; run by test_programs.py in a process of its own.

Prints a line of JSON: the price of each, in microseconds on an H100 by the machine model, without the start of a
kernel.
"""

import json
from dataclasses import replace

import torch
import triton
import triton.language as tl

from tests.env.executor.programs import matmul_kernel
from verl_kernel.env.executor import driver
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.executor.work.steps import facts_of, launch_work, remember
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import step_ms

driver.activate()
MACHINE = Machine.of("h100")
PRICES, COUNTS, LAUNCH = {}, [], Kernel.launch


def counted(self, *args, **kwargs):
    COUNTS.append(LAUNCH(self, *args, **kwargs))
    return COUNTS[-1]


Kernel.launch = counted


def price(name, kernel, grid, *args, spills=0, **kwargs):
    kernel[grid](*args, **kwargs)
    count = COUNTS.pop()
    known = facts_of(count.program, count.module)
    remember(count.program, replace(known, spills=spills))
    work = launch_work(count)
    remember(count.program, known)
    PRICES[name] = 1e3 * sum(step_ms(step, MACHINE) for step in work.steps) - constant("launch_us")


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + where, tl.load(x_ptr + where * STEP, mask=where < n), mask=where < n)


def copies():
    n = 1 << 19
    for step in (1, 2, 8):
        price(f"stride {step}", copy_kernel, (n // 1024,), zeros(8 * n), zeros(n), n, STEP=step, BLOCK=1024)
    price("half of it masked out", copy_kernel, (n // 1024,), zeros(8 * n), zeros(n), n // 2, STEP=1, BLOCK=1024)
    price("a half", copy_kernel, (n // 2048,), zeros(8 * n), zeros(n), n // 2, STEP=1, BLOCK=1024)
    price("spilled", copy_kernel, (n // 1024,), zeros(8 * n), zeros(n), n, STEP=1, BLOCK=1024, spills=400)


@triton.jit
def chunked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first, columns = tl.program_id(0) * n, tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        tl.store(out_ptr + first + start + columns, tl.load(x_ptr + first + start + columns))


def grids():
    n = 1 << 20
    for blocks in (1, 16, 512):
        price(f"{blocks} blocks", chunked_kernel, (blocks,), zeros(n), zeros(n), n // blocks, BLOCK=1024)


@triton.jit
def passes_kernel(x_ptr, out_ptr, n, PASSES: tl.constexpr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0) * n, tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(PASSES):
        for start in range(0, n, BLOCK):
            total += tl.load(x_ptr + row + start + columns) * turn
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


def passes():
    for rows, n in ((512, 1 << 15), (16384, 512)):
        for turns in (1, 2):
            name = f"{turns} of {'long' if n > 1000 else 'short'} rows"
            price(name, passes_kernel, (rows,), zeros(rows, n), zeros(rows), n, PASSES=turns, BLOCK=min(n, 2048))


@triton.jit
def naive_matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, B: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(K):
        a, b = tl.load(a_ptr + rows * K + k), tl.load(b_ptr + k * N + columns)
        total += a[:, None].to(tl.float32) * b[None, :].to(tl.float32)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


def matmuls():
    n = 512
    for name, dtype, precision, tile in (
        ("half", torch.float16, "ieee", 64), ("half, small tiles", torch.float16, "ieee", 16),
        ("tf32", torch.float32, "tf32", 64), ("tf32x3", torch.float32, "tf32x3", 64),
        ("ieee", torch.float32, "ieee", 64),
    ):  # fmt: skip
        a, b, grid = zeros(n, n, dtype=dtype), zeros(n, n, dtype=dtype), (n // tile, n // tile)
        price(name, matmul_kernel, grid, a, b, zeros(n, n), n, n, n, BM=tile, BN=tile, BK=32, P=precision)
    a, b = zeros(n, n, dtype=torch.float16), zeros(n, n, dtype=torch.float16)
    price("naive half", naive_matmul_kernel, (n // 32, n // 32), a, b, zeros(n, n), n, n, B=32)


@triton.jit
def busy_kernel(x_ptr, out_ptr, TURNS: tl.constexpr, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + where)
    for turn in range(TURNS):
        if WHAT == "integer":
            x = (x ^ (x >> 3)) & 0x7FFFFFFF
            x = x + (x << 5)
        if WHAT == "division":
            x = x // (turn + 3) + 77777
        if WHAT == "float":
            x = (x.to(tl.float32, bitcast=True) * 1.5 + 0.5).to(tl.int32, bitcast=True)
        if WHAT == "exp":
            x = tl.exp(x.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    tl.store(out_ptr + where, x)


def instructions():
    n = 1 << 18
    for what, turns in (("integer", 8), ("integer", 256), ("float", 256), ("exp", 256), ("division", 256)):
        x, out = zeros(n, dtype=torch.int32), zeros(n, dtype=torch.int32)
        price(f"{turns} {what}", busy_kernel, (n // 1024,), x, out, TURNS=turns, WHAT=what, BLOCK=1024)


@triton.jit
def bias_kernel(x_ptr, b_ptr, out_ptr, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    bias = tl.load(b_ptr + row * STRIDE + columns)
    tl.store(out_ptr + row * n + columns, tl.load(x_ptr + row * n + columns) + bias)


def broadcasts():
    rows, n = 2048, 1024
    for name, stride in (("one row for all", 0), ("a row for each", n)):
        price(name, bias_kernel, (rows,), zeros(rows, n), zeros(rows, n), zeros(rows, n), n, STRIDE=stride, BLOCK=1024)


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + where, tl.load(table_ptr + tl.load(index_ptr + where)))


def gathers():
    n = 1 << 19
    torch.manual_seed(0)
    for name, index in (("in order", torch.arange(n)), ("at random", torch.randperm(n)), ("few", torch.arange(n) % 64)):
        price(f"gather {name}", gather_kernel, (n // 1024,), zeros(n), index, zeros(n), BLOCK=1024)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, n, THROUGH: tl.constexpr, B: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    x = tl.load(x_ptr + rows[:, None] * n + columns[None, :])
    if THROUGH:
        tl.store(out_ptr + columns[:, None] * n + rows[None, :], tl.trans(x))
    else:
        tl.store(out_ptr + columns[None, :] * n + rows[:, None], x)


def transposes():
    n = 1024
    x = zeros(n, n)
    price("transposed", transpose_kernel, (n // 64, n // 64), x, zeros(n, n), n, THROUGH=True, B=64)
    price("copied", copy_kernel, (n,), x, zeros(n, n), n * n, STEP=1, BLOCK=1024)


@triton.jit
def twice_kernel(x_ptr, out_ptr, tiles, APART: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0) // APART // 2 * APART + tl.program_id(0) % APART
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + tile * BLOCK + tl.arange(0, BLOCK)), axis=0))


def twice():
    for size, n in (("small", 1 << 21), ("large", 1 << 25)):
        tiles, x = n // 4096, zeros(n)
        for name, apart in (("near", 1), ("far", tiles)):
            out = zeros(2 * tiles)
            price(f"{size}, twice {name}", twice_kernel, (2 * tiles,), x, out, tiles, APART=apart, BLOCK=4096)


if __name__ == "__main__":
    for group in (copies, grids, passes, matmuls, instructions, broadcasts, gathers, transposes, twice):
        group()
    print(json.dumps(PRICES))
