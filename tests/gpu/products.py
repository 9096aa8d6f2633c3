# SPDX-License-Identifier: Apache-2.0
"""A linear layer with an activation, and fused kernels for it that multiply with different precision."""

from tests.env.programs import reference

ROWS, INNER, COLUMNS = 32, 128, 64
_LINEAR = f"self.linear = nn.Linear({INNER}, {COLUMNS})"
REFERENCE = reference("torch.relu(self.linear(x))", f"torch.randn({ROWS}, {INNER})", members=_LINEAR)
_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, w, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(x + m[:, None] * K + k[None, :])
    right = tl.load(w + n[None, :] * K + k[:, None])
    {factors}
    total = tl.dot(left, right{precision}) + tl.load(b + n)[None, :]
    tl.store(out + m[:, None] * N + n[None, :], tl.maximum(total, 0.0))

@triton.jit
def token(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i))

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear({inner}, {columns})

    def fused(self, x):
        out = torch.empty({rows}, {columns}, device=x.device)
        fused[(1,)](x, self.linear.weight, self.linear.bias, out, M={rows}, N={columns}, K={inner})
        return out

    def forward(self, x):
        {body}
"""
_ROUNDED = """left = (left.to(tl.int32, bitcast=True) & {mask}).to(tl.float32, bitcast=True)
    right = (right.to(tl.int32, bitcast=True) & {mask}).to(tl.float32, bitcast=True)"""
TEN_BITS = _ROUNDED.format(mask="-8192")
"""As tensor cores read their operands; Triton's interpreter computes products of float32 exactly."""
SEVEN_BITS = _ROUNDED.format(mask="-65536")


def candidate(factors: str = "pass", precision: str = "", body: str = "return self.fused(x)") -> str:
    """A source whose kernel treats its factors so and multiplies with this precision."""
    return _CANDIDATE.format(factors=factors, precision=precision, body=body, rows=ROWS, inner=INNER, columns=COLUMNS)


EXACT = candidate(precision=', input_precision="ieee"')
DEFAULT = candidate()
