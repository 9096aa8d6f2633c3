# SPDX-License-Identifier: Apache-2.0
"""Tasks that are too large for a CPU, and candidates for them: honest ones, and ones that look at their sizes."""

ROWS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.relu(x * self.weight)

rows, width = 32768, 16 * 1024

def get_inputs():
    return [torch.randn(rows, width)]

def get_init_inputs():
    return [width]
"""

_ROWS = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, w, o, n, width, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    {KERNEL}
    v = tl.load(x + c, mask=c < n) * tl.load(w + c % width, mask=c < n)
    tl.store(o + c, tl.maximum(v, 0.0), mask=c < n)

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        o = torch.empty_like(x)
        n = x.numel()
        {HOST}
        fused[(triton.cdiv(n, 8192),)](x, self.weight, o, n, x.shape[1], B=8192)
        return o
"""


def rows(host: str = "pass", kernel: str = "pass") -> str:
    """A candidate for `ROWS` with a further statement before the launch, or in the kernel."""
    return _ROWS.replace("{HOST}", host).replace("{KERNEL}", kernel)


PRODUCT = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

M, K, N = 2048, 8192, 4096

def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]

def get_init_inputs():
    return []
"""

_PRODUCT = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def product(a, b, o, M, N, K, depth, B: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, depth, BK):
        c = k + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + c[None, :], mask=(m[:, None] < M) & (c[None, :] < depth), other=0.0)
        y = tl.load(b + c[:, None] * N + n[None, :], mask=(c[:, None] < depth) & (n[None, :] < N), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(o + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))

class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        o = torch.empty((M, N), device=a.device)
        product[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, o, M, N, K, {DEPTH}, B=64, BK=64)
        return o
"""


def product(depth: str = "K") -> str:
    """A candidate for `PRODUCT` that sums over so many terms."""
    return _PRODUCT.replace("{DEPTH}", depth)


_CONFIGURATIONS = """
@triton.autotune(
    [triton.Config({"B": 64, "BK": 64, "WIDE": False}), triton.Config({"B": 128, "BK": 32, "WIDE": True})],
    key=["M", "N", "K"],
)
@triton.jit"""
TUNED = (
    product()
    .replace("@triton.jit", _CONFIGURATIONS)
    .replace(
        "BK: tl.constexpr):", "BK: tl.constexpr, WIDE: tl.constexpr):\n    if WIDE:\n        tl.static_assert(B > 64)"
    )
    .replace("(triton.cdiv(M, 64), triton.cdiv(N, 64))", "lambda c: (triton.cdiv(M, c['B']), triton.cdiv(N, c['B']))")
    .replace(", B=64, BK=64)", ")")
)
"""An honest candidate for `PRODUCT` whose configurations run different instructions."""
