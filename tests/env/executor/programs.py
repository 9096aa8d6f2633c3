# SPDX-License-Identifier: Apache-2.0
"""Kernels as people write them, launched through the executor; run by test_programs.py in a process of its own.

Prints a line of JSON: for each program None, or what went wrong.
"""

import json
import traceback

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.executor import driver
from verl_kernel.env.executor.errors import Fault

driver.activate()
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * n + columns, x / tl.sum(x, 0), mask=columns < n)


@program
def softmax():
    x = torch.randn(17, 781)
    out = torch.empty_like(x)
    softmax_kernel[(17,)](x, out, 781, BLOCK=1024)
    torch.testing.assert_close(out, x.softmax(1))


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(
            b_ptr + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(a, b, total, input_precision=P)
    where = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(where, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def product(dtype, precision, **tolerance):
    a, b, c = torch.randn(70, 90).to(dtype), torch.randn(90, 50).to(dtype), torch.empty(70, 50)
    matmul_kernel[(3, 2)](a, b, c, 70, 50, 90, BM=32, BN=32, BK=32, P=precision)
    torch.testing.assert_close(c, a.float() @ b.float(), **tolerance)


@program
def products():
    product(torch.float16, "ieee", rtol=1e-4, atol=1e-4)
    product(torch.bfloat16, "ieee", rtol=1e-4, atol=1e-4)
    product(torch.float32, "ieee", rtol=1e-5, atol=1e-4)


@program
def product_in_tf32_is_not_exact():
    product(torch.float32, "tf32", rtol=2e-2, atol=5e-2)
    try:
        product(torch.float32, "tf32", rtol=1e-5, atol=1e-4)
    except AssertionError:
        return
    raise AssertionError("TF32 has lost nothing")


@triton.jit
def column_sums_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n)
    tl.atomic_add(out_ptr + columns, x, mask=columns < n)


@program
def atomics():
    x, out = torch.randint(0, 100, (33, 100)).float(), torch.zeros(100)
    column_sums_kernel[(33,)](x, out, 100, BLOCK=128)
    assert torch.equal(out, x.sum(0))


@triton.jit
def locked_kernel(lock_ptr, count_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(count_ptr, tl.load(count_ptr, volatile=True) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@program
def spin_lock():
    lock, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    locked_kernel[(9,)](lock, count, num_warps=1)
    assert (lock.item(), count.item()) == (0, 9)


@triton.jit
def turns_kernel(turn_ptr, out_ptr, last):
    number = last - tl.program_id(0)
    while tl.load(turn_ptr, volatile=True) != number:
        pass
    tl.store(out_ptr + number, number)
    tl.debug_barrier()
    tl.atomic_add(turn_ptr, 1)


@program
def blocks_wait_for_later_ones():
    turn, out = torch.zeros(1, dtype=torch.int32), torch.full((8,), -1, dtype=torch.int32)
    turns_kernel[(8,)](turn, out, 7, num_warps=1)
    assert torch.equal(out, torch.arange(8, dtype=torch.int32))


@triton.jit
def scan_kernel(x_ptr, out_ptr, N: tl.constexpr):
    where = tl.arange(0, N)
    tl.store(out_ptr + where, tl.cumsum(tl.load(x_ptr + where), 0))
    tl.store(out_ptr + N + where, tl.sort(tl.load(x_ptr + where)))


@program
def scan_and_sort():
    x, out = torch.randint(-9, 9, (256,)).float(), torch.empty(512)
    scan_kernel[(1,)](x, out, N=256)
    assert torch.equal(out[:256], x.cumsum(0))
    assert torch.equal(out[256:], x.sort().values)


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
    size = x.abs()
    expected = [x.sin() + x.erf(), x.tanh() + x.expm1(), (size + 1e-3).log() + (size + 1).rsqrt() + x.cos()]
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-5, atol=2e-6)


@triton.jit
def described_kernel(source, target, N: tl.constexpr):
    target.store([0, 0], source.load([0, 0]).T)


@program
def descriptors():
    x = torch.randn(32, 32)
    out = torch.empty(32, 32)
    described_kernel[(1,)](TensorDescriptor.from_tensor(x, [32, 32]), TensorDescriptor.from_tensor(out, [32, 32]), N=32)
    assert torch.equal(out, x.T)


@triton.jit
def eight_bit_kernel(x_ptr, out_ptr, N: tl.constexpr):
    where = tl.arange(0, N)
    x = tl.load(x_ptr + where)
    tl.store(out_ptr + where, x.to(tl.float8e4nv).to(tl.float32))
    tl.store(out_ptr + N + where, x.to(tl.float8e5).to(tl.float32))


@program
def floats_of_eight_bits():
    x, out = torch.randn(4096) * 40, torch.empty(2, 4096)
    eight_bit_kernel[(1,)](x, out, N=4096)
    expected = [x.to(kind).float() for kind in (torch.float8_e4m3fn, torch.float8_e5m2)]
    assert torch.equal(out, torch.stack(expected))


@triton.jit
def asserting_kernel(x_ptr, n):
    where = tl.arange(0, 32)
    x = tl.load(x_ptr + where)
    tl.device_print("x", x)
    tl.device_assert(x < n, "too large")


@program
def assertions():
    asserting_kernel[(1,)](torch.arange(32, dtype=torch.int32), 32, num_warps=1, debug=True)
    fails("stopped", lambda: asserting_kernel[(1,)](torch.arange(32, dtype=torch.int32), 9, num_warps=1, debug=True))


@triton.jit
def unmasked_kernel(x_ptr, out_ptr):
    where = tl.arange(0, 128)
    tl.store(out_ptr + where, tl.load(x_ptr + where) + 1)  # line of the fault


@program
def a_store_beyond_the_end():
    fault = fails("out_of_bounds", lambda: unmasked_kernel[(1,)](torch.zeros(128), torch.zeros(100)))
    assert fault.line[0].endswith("programs.py")
    with open(__file__) as file:
        assert "line of the fault" in file.readlines()[fault.line[1] - 1]


def fails(kind, call):
    try:
        call()
    except Fault as fault:
        assert fault.kind == kind, fault
        return fault
    raise AssertionError(f"no fault of the kind {kind}")


def outcome(function):
    torch.manual_seed(0)
    try:
        function()
    except Exception:  # noqa: BLE001  whatever went wrong is told
        return traceback.format_exc(limit=-3)
    return None


if __name__ == "__main__":
    print(json.dumps({name: outcome(function) for name, function in PROGRAMS.items()}))
