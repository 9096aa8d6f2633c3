# SPDX-License-Identifier: Apache-2.0
"""Kernels for numba, which NVIDIA's compiler library makes PTX of. `NUMBA` names the folder that holds both."""

# mypy: ignore-errors
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(os.environ.get("NUMBA", ""))
sys.path.append(str(FOLDER))
os.environ["CUDA_HOME"] = str(FOLDER / "nvidia" / "cuda_nvcc")

from numba import cuda, float32, float64, int32, int64  # noqa: E402  the path comes first
from numba.cuda import dispatcher  # noqa: E402

CAPABILITY = (8, 9)
dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)  # it would ask a driver
ALL = 0xFFFFFFFF


def ptx(kernel, *types) -> str:
    """The PTX of a kernel."""
    return cuda.compile_ptx(kernel, types, cc=CAPABILITY, device=False)[0]


def add(x: float32[::1], y: float32[::1], out: float32[::1]) -> None:
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


def functions(x: float32[::1], out: float32[::1]) -> None:
    i = cuda.grid(1)
    if i < out.size:
        v = x[i]
        out[i] = math.sin(v) + math.exp(v) + math.erf(v) + math.log(abs(v) + 1) + math.tanh(v) + math.sqrt(abs(v))


def doubles(x: float64[::1], out: float64[::1]) -> None:
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.exp(x[i]) / (1 + x[i] * x[i]) + math.pow(abs(x[i]), 1.5) + math.floor(x[i]) + math.fmod(x[i], 0.3)


def wide_integers(x: int64[::1], out: int64[::1]) -> None:
    i = cuda.grid(1)
    if i < x.size:
        out[i] = (x[i] * 2654435761) // 7 + (x[i] >> 3) - (x[i] % 13)


def bits(x: int32[::1], out: int32[::1]) -> None:
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.popc(x[i]) + 100 * cuda.clz(x[i]) + 10000 * (cuda.brev(x[i]) & 7)


def collatz(x: int32[::1], out: int32[::1]) -> None:
    """Turns of a loop that every lane leaves by itself."""
    i = cuda.grid(1)
    if i < out.size:
        n, turns = x[i], 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            turns += 1
        out[i] = turns


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


def sum_by_shuffles(x: float32[::1], out: float32[::1]) -> None:
    value = x[cuda.grid(1)]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(ALL, value, step)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


def votes(x: int32[::1], out: int32[::1]) -> None:
    i = cuda.grid(1)
    found = cuda.ballot_sync(ALL, x[i] > 0) & 0xFFFF
    found += 1 << 20 if cuda.all_sync(ALL, x[i] > -5) else 0
    out[i] = found + (1 << 21 if cuda.any_sync(ALL, x[i] == 3) else 0)


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
