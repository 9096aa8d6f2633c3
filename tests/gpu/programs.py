# SPDX-License-Identifier: Apache-2.0
"""A reference of 128 MB in and 64 MB out, and kernels for it.

More than any GPU's L2 cache holds, so that a kernel's time is that of its traffic, not its launch.
"""

ROWS, COLUMNS = 4096, 4096
REFERENCE = f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.scale = scale

    def forward(self, x, y):
        return torch.relu(x * self.weight + y) * self.scale

def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS}), torch.randn({ROWS}, {COLUMNS})]

def get_init_inputs():
    return [{COLUMNS}, 1.5]
"""
HEADER = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m) * tl.load(w + i % size, mask=m) + tl.load(y + i, mask=m)
    tl.store(out + i, tl.maximum(v, 0.0) * scale, mask=m)

@triton.jit
def scaled(x, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)

@triton.jit
def token(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i))

class Base(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.scale = scale

    def right(self, x, y, block=1024):
        out, n = torch.empty_like(x), x.numel()
        fused[(triton.cdiv(n, block),)](x, self.weight, y, out, n, x.shape[-1], self.scale, BLOCK=block)
        return out

    def torch_only(self, x, y):
        return torch.relu(x * self.weight + y) * self.scale
"""


def candidate(body: str, before: str = "") -> str:
    """A source whose `forward` has this body; `before` is put at module level."""
    lines = "\n".join("        " + line for line in body.strip("\n").splitlines())
    return f"{HEADER}\n{before}\n\nclass ModelNew(Base):\n    def forward(self, x, y):\n{lines}\n"


HONEST = candidate("return self.right(x, y)")
SLOW = candidate("for _ in range(20): out = self.right(x, y)\nreturn out")
MIXED = candidate("""
out, v, n = torch.empty_like(x), torch.relu(x * self.weight + y), x.numel()
scaled[(triton.cdiv(n, 1024),)](v, out, n, self.scale, BLOCK=1024)
return out
""")
