# SPDX-License-Identifier: Apache-2.0
"""Kernels whose prices have to stand in an order; run by test_programs.py in a process of its own.

Prints a line of JSON: the price of each, in microseconds on an H100 by the machine model, without the start of a
kernel.
"""

import json

import torch
import triton
import triton.language as tl

from benchmarks.emulator_kernels import matmul
from benchmarks.sampled_kernels import strided, transpose
from verl_kernel.env.emulator import driver
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.work.steps import launch_work
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import step_ms

driver.activate()
MACHINE = MachineModel.of("h100")
PRICES, COUNTS, LAUNCH = {}, [], Kernel.launch


def counted(self, *args, **kwargs):
    COUNTS.append(LAUNCH(self, *args, **kwargs))
    return COUNTS[-1]


Kernel.launch = counted


def price(name, kernel, grid, *args, **kwargs):
    kernel[grid](*args, **kwargs)
    steps = launch_work(COUNTS.pop()).steps
    PRICES[name] = 1e3 * sum(step_ms(step, MACHINE) for step in steps) - constant("launch_us")


def matmuls():
    n = 512
    for name in ("half", "tf32", "tf32x3", "ieee"):
        dtype, precision = (torch.float16, "ieee") if name == "half" else (torch.float32, name)
        a, b, c = torch.zeros(n, n, dtype=dtype), torch.zeros(n, n, dtype=dtype), torch.zeros(n, n)
        price(name, matmul, (n // 64, n // 64), a, b, c, n, n, n, BM=64, BN=64, BK=32, P=precision)


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
        x, out = torch.zeros(n, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
        price(f"{turns} {what}", busy_kernel, (n // 1024,), x, out, TURNS=turns, WHAT=what, BLOCK=1024)


def transposes():
    n = 1024
    x = torch.zeros(n, n)
    price("transposed", transpose, (n // 64, n // 64), x, torch.zeros(n, n), n, n, B=64)
    price("copied", strided, (n,), x, torch.zeros(n, n), n * n, STEP=1, BLOCK=1024)


if __name__ == "__main__":
    for group in (matmuls, instructions, transposes):
        group()
    print(json.dumps(PRICES))
