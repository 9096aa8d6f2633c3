# SPDX-License-Identifier: Apache-2.0
"""Prices of honest kernels, as the emulator counts them.

    python benchmarks/bench_emulator_prices.py

A line for each kernel has its time on an H100, and with `--steps` what the machine model was told.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import emulator_kernels as kernels
import torch
import triton
import triton.language as tl

from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms
from verl_kernel.env.trace import TraceEvent

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    """Declare a program that launches one kernel."""
    PROGRAMS[function.__name__] = function
    return function


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + where, mask=where < n), tl.load(y_ptr + where, mask=where < n)
    tl.store(out_ptr + where, x + y, mask=where < n)


def _add(n: int, block: int, dtype: torch.dtype = torch.float32) -> None:
    x, y = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
    add_kernel[(triton.cdiv(n, block),)](x, y, torch.empty_like(x), n, BLOCK=block)


PROGRAMS["add"] = lambda: _add(1 << 22, 1024)
PROGRAMS["add_half"] = lambda: _add(1 << 22, 1024, torch.float16)
PROGRAMS["add_small"] = lambda: _add(1 << 14, 256)


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + where, mask=where < n), tl.load(y_ptr + where, mask=where < n)
    tl.store(out_ptr + where, x * y / (1 + tl.exp(-x)), mask=where < n)


@program
def swiglu() -> None:
    n = 1 << 22
    swiglu_kernel[(n // 1024,)](torch.randn(n), torch.randn(n), torch.empty(n), n, BLOCK=1024)


@program
def softmax() -> None:
    kernels.softmax[(4096,)](torch.randn(4096, 1024), torch.empty(4096, 1024), 1024, BLOCK=1024)


@program
def softmax_odd() -> None:
    kernels.softmax[(4096,)](torch.randn(4096, 781), torch.empty(4096, 781), 781, BLOCK=1024)


@triton.jit
def long_softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0) * n, tl.arange(0, BLOCK)
    most, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + columns)
        new = tl.maximum(most, tl.max(x, 0))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(x - new), 0)
        most = new
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + columns)
        tl.store(out_ptr + row + start + columns, tl.exp(x - most) / total)


@program
def softmax_two_passes() -> None:
    long_softmax_kernel[(256,)](torch.randn(256, 16384), torch.empty(256, 16384), 16384, BLOCK=2048)


@program
def layernorm() -> None:
    rows, n = 4096, 1024
    kernels.layernorm[(rows,)](
        torch.randn(rows, n), torch.randn(n), torch.randn(n), torch.empty(rows, n), n, 1e-5, BLOCK=1024
    )


@triton.jit
def row_sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + row * n + start + columns, mask=start + columns < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@program
def row_sums() -> None:
    row_sums_kernel[(1024,)](torch.randn(1024, 8192), torch.empty(1024), 8192, BLOCK=1024)


@triton.jit
def column_sums_kernel(x_ptr, out_ptr, rows, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, ROWS):
        where = (start + tl.arange(0, ROWS))[:, None] * n + columns[None, :]
        total += tl.sum(tl.load(x_ptr + where), 0)
    tl.store(out_ptr + columns, total)


@program
def column_sums() -> None:
    column_sums_kernel[(128,)](torch.randn(1024, 8192), torch.empty(8192), 1024, 8192, ROWS=16, COLUMNS=64)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr
):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total, k = tl.zeros((BM, BN), tl.float32), tl.arange(0, BK)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


def _matmul(n: int, tile: int, dtype: torch.dtype, precision: str, warps: int = 4) -> None:
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    grid = (n // tile, n // tile)
    matmul_kernel[grid](a, b, torch.empty(n, n), n, n, n, BM=tile, BN=tile, BK=32, PRECISION=precision, num_warps=warps)


@program
def matmul_half() -> None:
    _matmul(1024, 64, torch.float16, "ieee")


@program
def matmul_half_large_tile() -> None:
    _matmul(1024, 128, torch.float16, "ieee", 8)


@program
def matmul_tf32() -> None:
    _matmul(1024, 64, torch.float32, "tf32")


@program
def matmul_ieee() -> None:
    _matmul(512, 64, torch.float32, "ieee")


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, WIDTH: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, WIDTH)
    index = tl.load(index_ptr + row)
    tl.store(out_ptr + row * WIDTH + columns, tl.load(table_ptr + index * WIDTH + columns))


@program
def gather() -> None:
    table, index = torch.randn(50000, 256), torch.randint(0, 50000, (8192,))
    gather_kernel[(8192,)](table, index, torch.empty(8192, 256), WIDTH=256)


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    first = tl.program_id(1) * n * D
    rows, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + first + rows[:, None] * D + d[None, :])
    most = tl.full((BM,), -float("inf"), tl.float32)
    total, out = tl.zeros((BM,), tl.float32), tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        k = tl.load(k_ptr + first + columns[None, :] * D + d[:, None])
        s = tl.dot(q, k)
        new = tl.maximum(most, tl.max(s, 1))
        p, old = tl.exp(s - new[:, None]), tl.exp(most - new)
        total, out = total * old + tl.sum(p, 1), out * old[:, None]
        v = tl.load(v_ptr + first + columns[:, None] * D + d[None, :])
        out = tl.dot(p.to(tl.float16), v, out)
        most = new
    tl.store(out_ptr + first + rows[:, None] * D + d[None, :], (out / total[:, None]).to(tl.float16))


@program
def attention() -> None:
    q, k, v = (torch.randn(16, 512, 64).to(torch.float16) for _ in range(3))
    attention_kernel[(8, 16)](q, k, v, torch.empty_like(q), 512, D=64, BM=64, BN=64)


def events(names: Sequence[str]) -> dict[str, TraceEvent]:
    """Each program's launch, as the emulator counts it."""
    from verl_kernel.env.emulator import driver
    from verl_kernel.env.emulator.kernel import Kernel
    from verl_kernel.env.emulator.work.steps import launch_work

    driver.activate()
    counts, launch = [], Kernel.launch

    def counted(self, *args, **kwargs):
        counts.append(launch(self, *args, **kwargs))
        return counts[-1]

    Kernel.launch = counted  # type: ignore[method-assign]
    found = {}
    for name in names:
        counts.clear()
        PROGRAMS[name]()
        work = launch_work(counts[-1])
        found[name] = TraceEvent(
            "launch", name, counts[-1].shape, work.bytes, work.flops, work.half_flops, steps=work.steps
        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[], help="programs; all if none is named")
    parser.add_argument("--steps", action="store_true", help="print what the machine model was told")
    options = parser.parse_args()
    machine = MachineModel.of("h100")
    print(f"{'kernel':<24}{'us':>10}")
    for name, event in events(options.names or list(PROGRAMS)).items():
        print(f"{name:<24}{1e3 * event_ms(event, machine):>10.2f}")
        if options.steps:
            print(*(f"    {step}" for step in event.steps), sep="\n")


if __name__ == "__main__":
    main()
