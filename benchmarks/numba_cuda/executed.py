# SPDX-License-Identifier: Apache-2.0
"""Kernels for numba, which NVIDIA's compiler library makes PTX of, run by the emulator beside NumPy.

`make test-numba` runs this file, which pytest does not collect by itself; `NUMBA` names the folder that holds both.
"""

# mypy: ignore-errors
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, buffer
from verl_kernel.env.emulator.kernel import Kernel

FOLDER = Path(os.environ.get("NUMBA", ""))
sys.path.append(str(FOLDER))
os.environ["CUDA_HOME"] = str(FOLDER / "nvidia" / "cuda_nvcc")

from numba import cuda, float32, float64, int32, int64  # noqa: E402  the path comes first
from numba.cuda import dispatcher  # noqa: E402

CAPABILITY = (8, 9)
dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)  # it would ask a driver
ALL = 0xFFFFFFFF
SIZE, WARPS = 1000, 4
FULL = 1024


def run(kernel, x, out, *between, threads=0):
    """What a kernel leaves in `out`, by a thread for each element of `x`; numba makes seven words of an array."""
    held = []
    for array in (x, *between, out):
        held.append(aligned(array.nbytes, array.dtype))
        held[-1][:] = array
    words = [word for a in held for word in (0, 0, a.size, a.itemsize, a.ctypes.data, a.size, a.itemsize)]
    text = cuda.compile_ptx(kernel, list(kernel.__annotations__.values())[:-1], cc=CAPABILITY, device=False)[0]
    Kernel(text, WARPS, 0).launch((-(-(threads or x.size) // (32 * WARPS)),), words, [buffer(a) for a in held])
    return held[-1]


def numbers(size, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(size).astype(dtype)


def integers(low, high, size=SIZE, dtype=np.int32):
    return np.random.default_rng(0).integers(low, high, size).astype(dtype)


def zeros(size, dtype=np.float32):
    return np.zeros(size, dtype)


def add(x: float32[::1], y: float32[::1], out: float32[::1]) -> None:
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


def test_add():
    x = numbers(SIZE)
    assert np.array_equal(run(add, x, zeros(SIZE), x[::-1]), x + x[::-1])


def functions(x: float32[::1], out: float32[::1]) -> None:
    i = cuda.grid(1)
    if i < out.size:
        v = x[i]
        out[i] = math.sin(v) + math.exp(v) + math.erf(v) + math.log(abs(v) + 1) + math.tanh(v) + math.sqrt(abs(v))


def test_functions_of_libdevice():
    x = numbers(SIZE)
    wide = x.astype(np.float64)
    erf = np.array([math.erf(value) for value in wide])
    wanted = np.sin(wide) + np.exp(wide) + erf + np.log(np.abs(wide) + 1) + np.tanh(wide) + np.sqrt(np.abs(wide))
    assert np.allclose(run(functions, x, zeros(SIZE)), wanted, rtol=1e-6, atol=1e-6)


def doubles(x: float64[::1], out: float64[::1]) -> None:
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.exp(x[i]) / (1 + x[i] * x[i]) + math.pow(abs(x[i]), 1.5) + math.floor(x[i]) + math.fmod(x[i], 0.3)


def test_doubles():
    x = numbers(SIZE, np.float64)
    wanted = np.exp(x) / (1 + x * x) + np.abs(x) ** 1.5 + np.floor(x) + np.fmod(x, 0.3)
    assert np.allclose(run(doubles, x, zeros(SIZE, np.float64)), wanted, rtol=1e-14, atol=1e-14)


def wide_integers(x: int64[::1], out: int64[::1]) -> None:
    i = cuda.grid(1)
    if i < x.size:
        out[i] = (x[i] * 2654435761) // 7 + (x[i] >> 3) - (x[i] % 13)


def test_wide_integers():
    x = integers(-(10**9), 10**9, dtype=np.int64)
    assert np.array_equal(run(wide_integers, x, zeros(SIZE, np.int64)), (x * 2654435761) // 7 + (x >> 3) - x % 13)


def bits(x: int32[::1], out: int32[::1]) -> None:
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.popc(x[i]) + 100 * cuda.clz(x[i]) + 10000 * (cuda.brev(x[i]) & 7)


def test_bits():
    x = integers(0, 2**31 - 1)
    texts = [format(value, "032b") for value in x.tolist()]
    wanted = [text.count("1") + 100 * text.index("1") + 10000 * (int(text[::-1], 2) & 7) for text in texts]
    assert np.array_equal(run(bits, x, zeros(SIZE, np.int32)), wanted)


def collatz(x: int32[::1], out: int32[::1]) -> None:
    """Turns of a loop that every lane leaves by itself."""
    i = cuda.grid(1)
    if i < out.size:
        n, turns = x[i], 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            turns += 1
        out[i] = turns


def test_a_loop_that_lanes_leave_one_by_one():
    def turns(n):
        return 0 if n == 1 else 1 + turns(n // 2 if n % 2 == 0 else 3 * n + 1)

    x = integers(1, 10_000)
    assert run(collatz, x, zeros(SIZE, np.int32)).tolist() == [turns(n) for n in x.tolist()]


def sort_in_local_memory(x: float32[::1], out: float32[::1]) -> None:
    held = cuda.local.array(8, float32)
    i = cuda.grid(1)
    for j in range(8):
        held[j] = x[8 * i + j]
    for j in range(8):
        for k in range(7 - j):
            if held[k] > held[k + 1]:
                held[k], held[k + 1] = held[k + 1], held[k]
    for j in range(8):
        out[8 * i + j] = held[j]


def test_local_memory():
    x = numbers(8 * 128)
    found = run(sort_in_local_memory, x, zeros(8 * 128), threads=128)
    assert np.array_equal(found.reshape(-1, 8), np.sort(x.reshape(-1, 8), 1))


def stencil(x: float32[::1], out: float32[::1]) -> None:
    """Shared memory that the module declares, with a halo."""
    held = cuda.shared.array(130, float32)
    lane, i = cuda.threadIdx.x, cuda.grid(1)
    held[lane + 1] = x[i]
    if lane == 0:
        held[0] = x[i - 1] if i > 0 else float32(0)
    if lane == cuda.blockDim.x - 1:
        held[lane + 2] = x[i + 1] if i + 1 < x.size else float32(0)
    cuda.syncthreads()
    out[i] = held[lane] + 2 * held[lane + 1] + held[lane + 2]


def test_shared_memory():
    x = numbers(FULL)
    wide = np.pad(x, 1)
    assert np.allclose(run(stencil, x, zeros(FULL)), wide[:-2] + 2 * x + wide[2:], atol=1e-6)


def histogram(x: int32[::1], out: int32[::1]) -> None:
    held = cuda.shared.array(32, int32)
    lane, i = cuda.threadIdx.x, cuda.grid(1)
    if lane < 32:
        held[lane] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(held, x[i] & 31, 1)
    cuda.syncthreads()
    if lane < 32:
        cuda.atomic.add(out, lane, held[lane])


def test_atomics_on_shared_memory():
    x = integers(0, 1000)
    assert np.array_equal(run(histogram, x, zeros(32, np.int32)), np.bincount(x & 31, minlength=32))


def sum_by_shuffles(x: float32[::1], out: float32[::1]) -> None:
    value = x[cuda.grid(1)]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(ALL, value, step)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


def test_shuffles():
    x = numbers(FULL)
    assert run(sum_by_shuffles, x, zeros(1))[0] == pytest.approx(x.astype(np.float64).sum(), abs=1e-4)


def votes(x: int32[::1], out: int32[::1]) -> None:
    i = cuda.grid(1)
    found = cuda.ballot_sync(ALL, x[i] > 0) & 0xFFFF
    found += 1 << 20 if cuda.all_sync(ALL, x[i] > -5) else 0
    out[i] = found + (1 << 21 if cuda.any_sync(ALL, x[i] == 3) else 0)


def test_votes():
    x = integers(-6, 7, FULL)
    rows = x.reshape(-1, 32)
    wanted = ((rows > 0) * (1 << np.arange(32))).sum(1) & 0xFFFF
    wanted = wanted + np.where((rows > -5).all(1), 1 << 20, 0) + np.where((rows == 3).any(1), 1 << 21, 0)
    assert np.array_equal(run(votes, x, zeros(FULL, np.int32)), np.repeat(wanted, 32))


def extremes(x: int32[::1], out: int32[::1]) -> None:
    """Atomics, and a count by compare and swap."""
    i = cuda.grid(1)
    cuda.atomic.max(out, 0, x[i])
    cuda.atomic.min(out, 1, x[i])
    cuda.atomic.xor(out, 2, x[i])
    seen = out[3]
    while True:
        found = cuda.atomic.compare_and_swap(out[3:], seen, seen + 1)
        if found == seen:
            break
        seen = found


def test_atomics():
    x = integers(-1000, 1000, 256)
    wanted = [x.max(), x.min(), np.bitwise_xor.reduce(x), 256]
    assert run(extremes, x, zeros(4, np.int32)).tolist() == wanted
