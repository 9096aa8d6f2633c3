# SPDX-License-Identifier: Apache-2.0
"""What is timed: four calls of which clocks may think differently, each at a power of two of elements."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

Call = Callable[[], object]
_BLOCK, _COLUMNS = 1024, 256


@triton.jit  # type: ignore[untyped-decorator]
def _fused(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) * tl.load(y + i, mask=i < n) + 1.0
    tl.store(out + i, tl.maximum(value, 0.0) * 2.0, mask=i < n)


@triton.jit  # type: ignore[untyped-decorator]
def _softmax(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0).to(tl.int64) * n + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + i, value / tl.sum(value, 0))


def fused(power: int, device: str) -> Call:
    """One Triton kernel that reads two vectors and writes one: launch by Triton, nothing but bandwidth."""
    x, y = (torch.randn(1 << power, device=device) for _ in range(2))
    out = torch.empty_like(x)
    return lambda: _fused[(triton.cdiv(x.numel(), _BLOCK),)](x, y, out, x.numel(), BLOCK=_BLOCK)


def chain(power: int, device: str) -> Call:
    """The same as four torch ops: the host's work between launches."""
    x, y = (torch.randn(1 << power, device=device) for _ in range(2))
    return lambda: torch.relu(x * y + 1.0) * 2.0


def softmax(power: int, device: str) -> Call:
    """A softmax over rows of 256, one Triton program each."""
    x = torch.randn((1 << power) // _COLUMNS, _COLUMNS, device=device)
    out = torch.empty_like(x)
    return lambda: _softmax[(x.shape[0],)](x, out, _COLUMNS, BLOCK=_COLUMNS)


def matmul(power: int, device: str) -> Call:
    """A float32 product of square matrices by torch's library: compute."""
    x, y = (torch.randn(1 << power // 2, 1 << power // 2, device=device) for _ in range(2))
    return lambda: x @ y


PROGRAMS: dict[str, Callable[[int, str], Call]] = {"fused": fused, "chain": chain, "softmax": softmax, "matmul": matmul}
"""By name; each makes its inputs on the device and returns the call to be timed."""
