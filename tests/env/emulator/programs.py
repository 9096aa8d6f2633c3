# SPDX-License-Identifier: Apache-2.0
"""Kernels as people write them, launched through the emulator; run by test_programs.py in a process of its own.

Prints a line of JSON: for each program None, or what went wrong.
"""

import json
import traceback

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.emulator_kernels import matmul
from tests.env.emulator.ptx import fails
from verl_kernel.env.emulator import driver

driver.activate()
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def products():
    for dtype, error in ((torch.float16, 1e-4), (torch.bfloat16, 1e-4), (torch.float32, 1e-5)):
        a, b, c = torch.randn(64, 96).to(dtype), torch.randn(96, 64).to(dtype), torch.empty(64, 64)
        matmul[(2, 2)](a, b, c, 64, 64, 96, BM=32, BN=32, BK=32, P="ieee")
        torch.testing.assert_close(c, a.float() @ b.float(), rtol=error, atol=1e-4)


@triton.jit
def combine(mean_1, weight_1, mean_2, weight_2):
    weight = weight_1 + weight_2
    part = tl.where(weight == 0.0, 0.0, weight_2 / weight)
    return mean_1 + (mean_2 - mean_1) * part, weight


@triton.jit
def mean_kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    where = tl.arange(0, N)
    x = tl.load(x_ptr + where, mask=where < n, other=0.0)
    mean, weight = tl.reduce((x, tl.where(where < n, 1.0, 0.0)), 0, combine)
    tl.store(out_ptr, mean)
    tl.store(out_ptr + 1, weight)


@program
def reduction_by_a_function():
    x, out = torch.randn(700), torch.empty(2)
    mean_kernel[(1,)](x, out, 700, N=1024)
    torch.testing.assert_close(out, torch.stack([x.mean(), torch.tensor(700.0)]))


@triton.jit(noinline=True)
def shared_part(x, y):
    return x + y, x * y


@triton.jit
def calling_kernel(x_ptr, out_ptr):
    a, b = shared_part(tl.sum(tl.load(x_ptr + tl.arange(0, 64)), 0), 2.0)
    tl.store(out_ptr, a)
    tl.store(out_ptr + 1, b)


@program
def functions_that_are_called():
    x, out = torch.randn(64), torch.empty(2)
    calling_kernel[(1,)](x, out)
    torch.testing.assert_close(out, torch.stack([x.sum() + 2, x.sum() * 2]))


@triton.jit
def functions_kernel(x_ptr, out_ptr, N: tl.constexpr):
    where = tl.arange(0, N)
    x = tl.load(x_ptr + where)
    tl.store(out_ptr + where, tl.sin(x) + tl.math.erf(x))
    tl.store(out_ptr + N + where, libdevice.tanh(x) + libdevice.expm1(x))
    tl.store(out_ptr + 2 * N + where, tl.log(tl.abs(x) + 1e-3) + tl.math.rsqrt(tl.abs(x) + 1) + tl.cos(x))


@program
def functions():
    x, out = torch.randn(512) * 3, torch.empty(3, 512)
    functions_kernel[(1,)](x, out, N=512)
    logs = (x.abs() + 1e-3).log() + (x.abs() + 1).rsqrt() + x.cos()
    torch.testing.assert_close(out, torch.stack([x.sin() + x.erf(), x.tanh() + x.expm1(), logs]), rtol=1e-5, atol=2e-6)


@triton.jit
def described_kernel(source, target, N: tl.constexpr):
    target.store([0, 0], source.load([0, 0]).T)


@program
def descriptors():
    x, out = torch.randn(32, 32), torch.empty(32, 32)
    described_kernel[(1,)](*(TensorDescriptor.from_tensor(item, [32, 32]) for item in (x, out)), N=32)
    assert torch.equal(out, x.T)


@triton.jit
def asserting_kernel(x_ptr, n):
    where = tl.arange(0, 32)
    x = tl.load(x_ptr + where)
    tl.device_print("x", x)
    tl.device_assert(x < n, "too large")


@program
def assertions():
    x = torch.arange(32, dtype=torch.int32)
    asserting_kernel[(1,)](x, 32, num_warps=1, debug=True)
    with fails("stopped"):
        asserting_kernel[(1,)](x, 9, num_warps=1, debug=True)


def outcome(function):
    torch.manual_seed(0)
    try:
        function()
    except Exception:  # noqa: BLE001  whatever went wrong is told
        return traceback.format_exc(limit=-3)
    return None


if __name__ == "__main__":
    print(json.dumps({name: outcome(function) for name, function in PROGRAMS.items()}))
