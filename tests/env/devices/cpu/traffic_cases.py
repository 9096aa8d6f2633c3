# SPDX-License-Identifier: Apache-2.0
"""Kernels whose traffic and work are known by hand; needs TRITON_INTERPRET=1, prints one event each as JSON."""

import json

from verl_kernel.env.backends import resolve_device

DEVICE = resolve_device("cpu")
DEVICE.setup()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from verl_kernel.env.trace import dump_events  # noqa: E402


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def shifted(x, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + 1 + i))


@triton.jit
def strided(x, o, STEP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i * STEP))


@triton.jit
def softmax_passes(x, o, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    top = tl.full([B], -float("inf"), tl.float32)
    for at in range(0, n, B):
        top = tl.maximum(top, tl.load(x + row + at + tl.arange(0, B)))
    peak = tl.max(top, 0)
    total = tl.zeros([B], tl.float32)
    for at in range(0, n, B):
        total += tl.exp(tl.load(x + row + at + tl.arange(0, B)) - peak)
    whole = tl.sum(total, 0)
    for at in range(0, n, B):
        i = row + at + tl.arange(0, B)
        tl.store(o + i, tl.exp(tl.load(x + i) - peak) / whole)


@triton.jit
def matmul(a, b, o, M, N, K, T: tl.constexpr, P: tl.constexpr):
    rows, columns = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T)
    total = tl.zeros([T, T], tl.float32)
    for at in range(0, K, T):
        depth = at + tl.arange(0, T)
        left, right = tl.load(a + rows[:, None] * K + depth), tl.load(b + depth[:, None] * N + columns)
        total = tl.dot(left, right, total, input_precision=P)
    tl.store(o + rows[:, None] * N + columns, total)


@triton.jit
def transpose(x, o, M, N, T: tl.constexpr):
    rows, columns = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * T + tl.arange(0, T)
    tl.store(o + columns[:, None] * M + rows, tl.trans(tl.load(x + rows[:, None] * N + columns)))


@triton.jit
def row_sum(x, o, n, B: tl.constexpr):
    tl.store(o + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * n + tl.arange(0, B)), 0))


@triton.jit
def atomic_sum(x, o, B: tl.constexpr):
    tl.atomic_add(o, tl.sum(tl.load(x + tl.program_id(0) * B + tl.arange(0, B)), 0))


@triton.jit
def persistent(x, o, tiles, B: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        i = tile * B + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i) * 2.0)


@triton.jit
def bias(x, b, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + tl.program_id(0) * n + i, tl.load(x + tl.program_id(0) * n + i) + tl.load(b + i))


@triton.jit
def first_only(x, o, n, B: tl.constexpr):
    if tl.program_id(0) == 0:
        for at in range(0, n, B):
            i = at + tl.arange(0, B)
            tl.store(o + i, tl.load(x + i) + 1.0)


def product(dtype, precision):
    a, b = torch.randn(64, 128).to(dtype), torch.randn(128, 96).to(dtype)
    return matmul[(4, 6)](a, b, torch.empty(64, 96), 64, 96, 128, T=16, P=precision)


X = torch.randn(64, 256)
CASES = {
    "add": lambda: add[(16,)](torch.randn(4001), torch.randn(4001), torch.empty(4001), 4001, B=256),
    "shifted": lambda: shifted[(16,)](torch.randn(4100), torch.empty(4096), B=256),
    "strided": lambda: strided[(16,)](torch.randn(32768), torch.empty(4096), STEP=8, B=256),
    "softmax": lambda: softmax_passes[(64,)](X, torch.empty_like(X), 256, B=64, num_warps=2),
    "matmul": lambda: product(torch.float32, "ieee"),
    "tf32": lambda: product(torch.float32, "tf32"),
    "tf32x3": lambda: product(torch.float32, "tf32x3"),
    "half": lambda: product(torch.float16, None),
    "transpose": lambda: transpose[(4, 16)](X, torch.empty(256, 64), 64, 256, T=16),
    "row sum": lambda: row_sum[(64,)](X, torch.empty(64), 256, B=256),
    "atomic": lambda: atomic_sum[(64,)](X, torch.zeros(1), B=256),
    "persistent": lambda: persistent[(4,)](X, torch.empty_like(X), 64, B=256),
    "bias": lambda: bias[(64,)](X, torch.randn(256), torch.empty_like(X), 256, B=256),
    "first only": lambda: first_only[(132,)](X, torch.empty_like(X), 64 * 256, B=256),
    "large tile": lambda: add[(1,)](torch.randn(4), torch.randn(4), torch.empty(4), 4, B=131072),
}


def chain(x):
    """A launch, another one that reads what it wrote, and an op of torch that does."""
    y, z = torch.empty_like(x), torch.empty_like(x)
    persistent[(4,)](x, y, 64, B=256)
    persistent[(4,)](y, z, 64, B=256)
    return torch.relu(y)


found = {}
for name, run in CASES.items():
    with torch.no_grad(), DEVICE.record() as events:
        run()
    found[name] = dump_events(events)[-1]
with torch.no_grad(), DEVICE.record() as events:
    chain(X)
found["chain"] = [event.recent for event in events]
print(json.dumps(found))
