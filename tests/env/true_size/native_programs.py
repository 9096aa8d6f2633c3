# SPDX-License-Identifier: Apache-2.0
"""Tasks that are too large to run whole even compiled, and candidates for them: honest ones and ones that cheat."""

import ast
from pathlib import Path

_TASK = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def forward(self, {ARGUMENTS}):
        return {FORWARD}

{SIZES}

def get_inputs():
    return [{INPUTS}]

def get_init_inputs():
    return []
"""

_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn

{KERNEL}

class ModelNew(nn.Module):
    def forward(self, {ARGUMENTS}):
        {HOST}
"""


def task(arguments: str, forward: str, sizes: str, inputs: str) -> str:
    """A reference without weights."""
    words = {"ARGUMENTS": arguments, "FORWARD": forward, "SIZES": sizes, "INPUTS": inputs}
    return _filled(_TASK, words)


def candidate(arguments: str, kernel: str, host: str) -> str:
    """A program with one kernel."""
    return _filled(_CANDIDATE, {"ARGUMENTS": arguments, "KERNEL": kernel, "HOST": host.strip()})


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace("{" + word + "}", value.strip("\n"))
    return text


def softmax_task(rows: int, width: int = 4096) -> str:
    """Softmax of so many rows."""
    return task("x", "torch.softmax(x, 1)", f"rows, width = {rows}, {width}", "torch.randn(rows, width)")


SOFTMAX = candidate(
    "x",
    """
@triton.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64) * n, tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row + columns, mask=inside, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row + columns, x / tl.sum(x, 0), mask=inside)
""",
    """
        rows, n = x.shape
        out = torch.empty_like(x)
        block, warps = triton.next_power_of_2(n), 4
        if block >= 2048:
            warps = 8
        softmax[(rows,)](x, out, n, BLOCK=block, num_warps=warps)
        return out
""",
)
"""With the branch on its size that Triton's own tutorial has."""

_PRODUCT_KERNEL = """
@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, HALF: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k, total = tl.arange(0, BK), tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        a = tl.load(a_ptr + m[:, None] * K + start + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0)
        if HALF:
            total = tl.dot(a.to(tl.float16), b.to(tl.float16), total)
        else:
            total = tl.dot(a, b, total, input_precision="tf32x3")
    place = c_ptr + m[:, None] * N + n[None, :]
    tl.store(place, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
"""


def product_task(size: int, dtype: str) -> str:
    """A product of square matrices."""
    inputs = f"torch.randn(size, size, dtype=torch.{dtype}), torch.randn(size, size, dtype=torch.{dtype})"
    return task("a, b", "torch.matmul(a, b)", f"size = {size}", inputs)


def product(half: str) -> str:
    """A candidate for it.

    Args:
        half: an expression of `M` that says whether factors are rounded to 16 bits.
    """
    host = f"""
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), dtype=a.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        product[grid](a, b, c, M, N, K, HALF={half}, BM=64, BN=64, BK=32)
        return c
"""
    return candidate("a, b", _PRODUCT_KERNEL, host)


def sum_task(width: int) -> str:
    """Sums of two tensors, row by row scaled."""
    return task(
        "x, y",
        "torch.relu(x + y) * 2",
        f"rows, width = 65536, {width}",
        "torch.randn(rows, width), torch.randn(rows, width)",
    )


def sums(host: str = "pass", kernel: str = "pass", middle: str = "torch.float32") -> str:
    """A candidate for it with two launches.

    Args:
        host: a statement before the first launch; `n` is the number of elements.
        kernel: a statement in the first kernel, whose places are `c`.
        middle: the type of what lies between the launches.
    """
    kernels = """
@triton.jit
def added(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = c < n
    {KERNEL}
    tl.store(out_ptr + c, tl.load(x_ptr + c, mask=inside) + tl.load(y_ptr + c, mask=inside), mask=inside)

@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + c, tl.maximum(tl.load(x_ptr + c, mask=c < n), 0.0) * 2, mask=c < n)
"""
    body = """
        n = x.numel()
        {HOST}
        middle, out = torch.empty_like(x, dtype={MIDDLE}), torch.empty_like(x)
        added[(triton.cdiv(n, 1024),)](x, y, middle, n, BLOCK=1024)
        scaled[(triton.cdiv(x.numel(), 1024),)](middle, out, x.numel(), BLOCK=1024)
        return out
"""
    body = _filled(body, {"HOST": host, "MIDDLE": middle})
    return candidate("x, y", _filled(kernels, {"KERNEL": kernel}), "\n" + body)


def _of_benchmark(name: str) -> str:
    """The text of a kernel that benchmarks/sampled_kernels.py counts."""
    text = (Path(__file__).parents[3] / "benchmarks" / "sampled_kernels.py").read_text()
    node = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return "\n".join(["", *text.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno], ""])


PERSISTENT = candidate(
    "a, b",
    _of_benchmark("persistent_matmul"),
    """
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), dtype=a.dtype)
        tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
        persistent_matmul[(min(132, tiles),)](a, b, c, M, N, K, BM=128, BN=128, BK=32, num_warps=8)
        return c
""",
)
"""Whose counter is carried through the loop."""

SPLIT = candidate(
    "a, b",
    """
@triton.jit
def split(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k, total = tl.program_id(2) * BK + tl.arange(0, BK), tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK * SPLIT):
        at = start + k
        a = tl.load(a_ptr + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=(at[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
""",
    """
        (M, K), N = a.shape, b.shape[1]
        c = torch.zeros((M, N), dtype=torch.float32)
        split[(triton.cdiv(M, 64), triton.cdiv(N, 64), 8)](a, b, c, M, N, K, BM=64, BN=64, BK=32, SPLIT=8)
        return c.to(a.dtype)
""",
)

GATHER_TASK = task(
    "table, index",
    "table[index] * 2",
    "rows, width, taken = 524288, 2048, 262144",
    "torch.randn(rows, width), torch.randint(0, rows, (taken,))",
)
GATHER = candidate(
    "table, index",
    """
@triton.jit
def gathered(table_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, columns = tl.load(index_ptr + tl.program_id(0)), tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(table_ptr + row * n + columns, mask=inside)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * n + columns, x * 2, mask=inside)
""",
    """
        taken, n = index.shape[0], table.shape[1]
        out = torch.empty((taken, n))
        gathered[(taken,)](table, index, out, n, BLOCK=triton.next_power_of_2(n))
        return out
""",
)
