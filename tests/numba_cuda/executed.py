# SPDX-License-Identifier: Apache-2.0
"""numba's PTX, run by the executor, beside NumPy (`make test-numba`). pytest does not collect this file by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.env.executor.ptx import aligned, buffer
from tests.numba_cuda import kernels
from verl_kernel.env.executor.kernel import Kernel

SIZE, WARPS = 1000, 4
FULL = 1024
Array = np.ndarray[Any, Any]


def run(kernel: Any, x: Array, out: Array, *between: Array, threads: int = 0) -> Array:
    """What a kernel leaves in `out`, by a thread for each element of `x`; numba makes seven words of an array."""
    held = []
    for array in (x, *between, out):
        held.append(aligned(array.nbytes, array.dtype))
        held[-1][:] = array
    words = [word for a in held for word in (0, 0, a.size, a.itemsize, a.ctypes.data, a.size, a.itemsize)]
    text = kernels.ptx(kernel, *list(kernel.__annotations__.values())[:-1])
    Kernel(text, WARPS, 0).launch((-(-(threads or x.size) // (32 * WARPS)),), words, [buffer(a) for a in held])
    return held[-1]


def numbers(size: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(0).standard_normal(size).astype(dtype)


def integers(low: int, high: int, size: int = SIZE, dtype: Any = np.int32) -> Array:
    return np.random.default_rng(0).integers(low, high, size).astype(dtype)


def zeros(size: int, dtype: Any = np.float32) -> Array:
    return np.zeros(size, dtype)


def test_add() -> None:
    x = numbers(SIZE)
    assert np.array_equal(run(kernels.add, x, zeros(SIZE), x[::-1]), x + x[::-1])


def test_functions_of_libdevice() -> None:
    x = numbers(SIZE)
    wide = x.astype(np.float64)
    erf = np.array([math.erf(value) for value in wide])
    wanted = np.sin(wide) + np.exp(wide) + erf + np.log(np.abs(wide) + 1) + np.tanh(wide) + np.sqrt(np.abs(wide))
    assert np.allclose(run(kernels.functions, x, zeros(SIZE)), wanted, rtol=1e-6, atol=1e-6)


def test_doubles() -> None:
    x = numbers(SIZE, np.float64)
    wanted = np.exp(x) / (1 + x * x) + np.abs(x) ** 1.5 + np.floor(x) + np.fmod(x, 0.3)
    assert np.allclose(run(kernels.doubles, x, zeros(SIZE, np.float64)), wanted, rtol=1e-14, atol=1e-14)


def test_wide_integers() -> None:
    x = integers(-(10**9), 10**9, dtype=np.int64)
    assert np.array_equal(
        run(kernels.wide_integers, x, zeros(SIZE, np.int64)), (x * 2654435761) // 7 + (x >> 3) - x % 13
    )


def test_bits() -> None:
    x = integers(0, 2**31 - 1)
    texts = [format(value, "032b") for value in x.tolist()]
    wanted = [text.count("1") + 100 * text.index("1") + 10000 * (int(text[::-1], 2) & 7) for text in texts]
    assert np.array_equal(run(kernels.bits, x, zeros(SIZE, np.int32)), wanted)


def test_a_loop_that_lanes_leave_one_by_one() -> None:
    def turns(n: int) -> int:
        return 0 if n == 1 else 1 + turns(n // 2 if n % 2 == 0 else 3 * n + 1)

    x = integers(1, 10_000)
    assert run(kernels.collatz, x, zeros(SIZE, np.int32)).tolist() == [turns(n) for n in x.tolist()]


def test_local_memory() -> None:
    x = numbers(8 * 128)
    found = run(kernels.sort_in_local_memory, x, zeros(8 * 128), threads=128)
    assert np.array_equal(found.reshape(-1, 8), np.sort(x.reshape(-1, 8), 1))


def test_shared_memory() -> None:
    x = numbers(FULL)
    wide = np.pad(x, 1)
    assert np.allclose(run(kernels.stencil, x, zeros(FULL)), wide[:-2] + 2 * x + wide[2:], atol=1e-6)


def test_atomics_on_shared_memory() -> None:
    x = integers(0, 1000)
    assert np.array_equal(run(kernels.histogram, x, zeros(32, np.int32)), np.bincount(x & 31, minlength=32))


def test_shuffles() -> None:
    x = numbers(FULL)
    assert run(kernels.sum_by_shuffles, x, zeros(1))[0] == pytest.approx(x.astype(np.float64).sum(), abs=1e-4)


def test_votes() -> None:
    x = integers(-6, 7, FULL)
    rows = x.reshape(-1, 32)
    wanted = ((rows > 0) * (1 << np.arange(32))).sum(1) & 0xFFFF
    wanted = wanted + np.where((rows > -5).all(1), 1 << 20, 0) + np.where((rows == 3).any(1), 1 << 21, 0)
    assert np.array_equal(run(kernels.votes, x, zeros(FULL, np.int32)), np.repeat(wanted, 32))


def test_atomics() -> None:
    x = integers(-1000, 1000, 256)
    wanted = [x.max(), x.min(), np.bitwise_xor.reduce(x), 256]
    assert run(kernels.extremes, x, zeros(4, np.int32)).tolist() == wanted
