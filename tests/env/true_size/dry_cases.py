# SPDX-License-Identifier: Apache-2.0
"""Run with TRITON_INTERPRET=1 by test_dry_launch.py: launches on tensors without data. Prints JSON."""

import json

import torch
import triton
import triton.language as tl

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cpu.counting import OutOfBounds
from verl_kernel.env.trace import dump_events
from verl_kernel.env.true_size.dataless import AddressSpace, Undecidable
from verl_kernel.env.true_size.dry_pass import without_data
from verl_kernel.env.true_size.kernels.dry_launch import DryLaunches

DEVICE = resolve_device("cpu")
DEVICE.setup()
SPACE = AddressSpace()
DRY = DryLaunches(SPACE, seed=5)
DRY.install()


@triton.jit
def relu(x, o, n, B: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(o + c, tl.maximum(tl.load(x + c, mask=c < n), 0.0), mask=c < n)


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(o + c, tl.load(x + c, mask=c < n) + tl.load(y + c, mask=c < n), mask=c < n)


@triton.jit
def narrow(x, o, n, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + c, tl.load(x + c, mask=c < n), mask=c < n)


@triton.jit
def softmax(x, o, n, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    top = tl.full((B,), -float("inf"), tl.float32)
    for k in range(0, n, B):
        c = k + tl.arange(0, B)
        top = tl.maximum(top, tl.load(x + row + c, mask=c < n, other=-float("inf")))
    most = tl.max(top, 0)
    total = tl.zeros((B,), tl.float32)
    for k in range(0, n, B):
        c = k + tl.arange(0, B)
        total += tl.exp(tl.load(x + row + c, mask=c < n, other=-float("inf")) - most)
    whole = tl.sum(total, 0)
    for k in range(0, n, B):
        c = k + tl.arange(0, B)
        tl.store(o + row + c, tl.exp(tl.load(x + row + c, mask=c < n) - most) / whole, mask=c < n)


@triton.jit
def matmul(a, b, o, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    m = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    n = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        c = k + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < M) & (c[None, :] < K), other=0.0)
        y = tl.load(b + c[:, None] * N + n[None, :], mask=(c[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(o + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


tuned = triton.autotune([triton.Config({"BM": size, "BN": size, "BK": 32}) for size in (32, 64)], key=["M", "N", "K"])(
    matmul
)


@triton.jit
def persistent(x, o, n, B: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, B), tl.num_programs(0)):
        c = block * B + tl.arange(0, B)
        tl.store(o + c, tl.load(x + c, mask=c < n) * 2.0, mask=c < n)


@triton.jit
def added(x, o, n, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + c, mask=c < n, other=0.0), 0))


@triton.jit
def stepped(x, o, n, B: tl.constexpr):
    row, c = tl.program_id(0) * n, tl.arange(0, B)
    k = 0
    while k < n:
        tl.store(o + row + k + c, tl.load(x + row + k + c))
        k += B


@triton.jit
def ragged(x, starts, o, B: tl.constexpr):
    i = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for k in range(tl.load(starts + i), tl.load(starts + i + 1), B):
        total += tl.load(x + k + tl.arange(0, B))
    tl.store(o + i, tl.sum(total, 0))


@triton.jit
def gathered(x, index, o, n, width: tl.constexpr):
    c = tl.arange(0, width)
    row = tl.load(index + tl.program_id(0))
    tl.store(o + tl.program_id(0) * width + c, tl.load(x + row * width + c))


@triton.jit
def branching(x, o):
    if tl.load(x) > 0:
        tl.store(o, 1.0)


@triton.jit
def marking(flags, n):
    tl.store(flags + tl.program_id(0), n)


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype)


def cases():
    n = 4096 * 393216
    yield "relu", lambda: relu[(triton.cdiv(n, 1024),)](empty(n), empty(n), n, B=1024)
    yield (
        "add, odd",
        lambda: add[(triton.cdiv(n + 77, 1024),)](empty(n + 77), empty(n + 77), empty(n + 77), n + 77, 1024),
    )
    yield "softmax, loop", lambda: softmax[(4096,)](empty(4096, 393216), empty(4096, 393216), 393216, B=4096)
    yield "softmax, block", lambda: softmax[(4096,)](empty(4096, 5000), empty(4096, 5000), 5000, B=8192)
    square = (empty(4096, 4096), empty(4096, 4096), empty(4096, 4096), 4096, 4096, 4096)
    yield "matmul", lambda: matmul[(32 * 32,)](*square, BM=128, BN=128, BK=32)
    long = (empty(256, 524288), empty(524288, 256), empty(256, 256), 256, 256, 524288)
    yield "matmul, long", lambda: matmul[(4,)](*long, BM=128, BN=128, BK=32)
    yield (
        "tuned",
        lambda: tuned[lambda meta: (triton.cdiv(4096, meta["BM"]) * triton.cdiv(4096, meta["BN"]),)](*square),
    )
    yield "persistent", lambda: persistent[(132,)](empty(1 << 28), empty(1 << 28), 1 << 28, B=1024)
    yield "added", lambda: added[(1 << 18,)](empty(1 << 28), empty(1), 1 << 28, B=1024)
    yield "stepped", lambda: stepped[(2048,)](empty(2048, 65536), empty(2048, 65536), 65536, B=4096)
    starts = torch.arange(0, 513 * 65536, 65536)
    yield "ragged", lambda: ragged[(512,)](empty(512 * 65536), starts, empty(512), B=1024)
    index = empty(1 << 16, dtype=torch.int64)
    yield "gathered", lambda: gathered[(1 << 16,)](empty(1 << 20, 128), index, empty(1 << 16, 128), 0, 128)
    big = 3 << 30
    yield "narrow", lambda: narrow[(triton.cdiv(big, 1024),)](empty(big), empty(big), big, B=1024)
    yield "branching", lambda: branching[(1,)](empty(1 << 20), empty(1 << 20))
    yield "item", lambda: empty(1 << 20).sum().item()
    yield "mask", lambda: empty(1 << 20)[empty(1 << 20) > 0]
    flags = torch.zeros(8, dtype=torch.int64)
    yield "host reads what a kernel wrote", lambda: (marking[(8,)](flags, 3), flags.tolist())


def outcome(run):
    SPACE.reasons.clear()
    DRY.coverage.clear()
    error = None
    with DEVICE.record() as events:
        try:
            run()
        except (Undecidable, OutOfBounds) as exc:
            error = str(exc)
    launches = [event for event in events if event.kind == "launch"]
    return {
        "events": dump_events(launches),
        "error": error,
        "coverage": list(DRY.coverage),
        "reasons": list(SPACE.reasons),
    }


if __name__ == "__main__":
    with torch.no_grad(), without_data(SPACE):
        print(json.dumps({name: outcome(run) for name, run in cases()}))
