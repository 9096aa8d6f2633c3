# SPDX-License-Identifier: Apache-2.0
"""Two tasks, each with a program whose launches fill a GPU and one that does everything in one program."""

_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
LAYER_NORM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, w, b):
        return nn.functional.layer_norm(x, x.shape[1:], w, b)

def get_inputs():
    return [torch.randn({rows}, {columns}), torch.rand({columns}) + 0.5, torch.randn({columns})]

def get_init_inputs():
    return []
"""
_ROW = """
@triton.jit
def _layer_norm(x, w, b, out, first, last, n, BLOCK: tl.constexpr):
    for row in range(first, last):
        total = tl.zeros([BLOCK], dtype=tl.float32)
        for at in range(0, n, BLOCK):
            i = at + tl.arange(0, BLOCK)
            total += tl.load(x + row * n + i, mask=i < n, other=0.0)
        mean = tl.sum(total, axis=0) / n
        squares = tl.zeros([BLOCK], dtype=tl.float32)
        for at in range(0, n, BLOCK):
            i = at + tl.arange(0, BLOCK)
            part = tl.where(i < n, tl.load(x + row * n + i, mask=i < n, other=0.0) - mean, 0.0)
            squares += part * part
        scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n + 1e-5)
        for at in range(0, n, BLOCK):
            i = at + tl.arange(0, BLOCK)
            part = (tl.load(x + row * n + i, mask=i < n) - mean) * scale
            result = part * tl.load(w + i, mask=i < n) + tl.load(b + i, mask=i < n)
            tl.store(out + row * n + i, result, mask=i < n)
"""
ROW_PROGRAMS = (
    _HEAD
    + _ROW
    + """
@triton.jit
def one_row(x, w, b, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    _layer_norm(x, w, b, out, row, row + 1, n, BLOCK)

class ModelNew(nn.Module):
    def forward(self, x, w, b):
        out = torch.empty_like(x)
        one_row[(x.shape[0],)](x, w, b, out, x.shape[1], BLOCK=256)
        return out
"""
)
"""Layer norm as tutorials have it: a program for a row."""
ONE_PROGRAM = (
    _HEAD
    + _ROW
    + """
@triton.jit
def all_rows(x, w, b, out, rows, n, BLOCK: tl.constexpr):
    _layer_norm(x, w, b, out, 0, rows, n, BLOCK)

class ModelNew(nn.Module):
    def forward(self, x, w, b):
        out = torch.empty_like(x)
        all_rows[(1,)](x, w, b, out, x.shape[0], x.shape[1], BLOCK=256)
        return out
"""
)
BLOCK_OF_LAYERS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, w1, w2):
        y = x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
        h = y @ w1
        h = h * torch.sigmoid(h)
        return x + h @ w2

def get_inputs():
    return [torch.randn(128, 128), torch.randn(128, 256) / 12, torch.randn(256, 128) / 16]

def get_init_inputs():
    return []
"""
_PARTS = """
@triton.jit
def normalised(x, out, row, C: tl.constexpr, ROWS: tl.constexpr):
    at = (row + tl.arange(0, ROWS))[:, None] * C + tl.arange(0, C)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, v * tl.rsqrt(tl.sum(v * v, axis=1)[:, None] / C + 1e-5))

@triton.jit
def product(a, b, r, out, row, column, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
            GATE: tl.constexpr):
    rows, columns, depth = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS), tl.arange(0, 16)
    v = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, K, 16):
        left = tl.load(a + rows[:, None] * K + (k + depth)[None, :])
        right = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        v = tl.dot(left, right, v, input_precision="ieee")
    at = rows[:, None] * N + columns[None, :]
    if GATE:
        v = v * tl.sigmoid(v)
    else:
        v = v + tl.load(r + at)
    tl.store(out + at, v)
"""
THREE_LAUNCHES = (
    _HEAD
    + _PARTS
    + """
@triton.jit
def norm_kernel(x, out, C: tl.constexpr, ROWS: tl.constexpr):
    normalised(x, out, tl.program_id(0) * ROWS, C, ROWS)

@triton.jit
def product_kernel(a, b, r, out, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                   GATE: tl.constexpr):
    product(a, b, r, out, tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS, K, N, ROWS, COLUMNS, GATE)

class ModelNew(nn.Module):
    def forward(self, x, w1, w2):
        y, h, out = torch.empty_like(x), x.new_empty(128, 256), torch.empty_like(x)
        norm_kernel[(32,)](x, y, C=128, ROWS=4)
        product_kernel[(8, 16)](y, w1, x, h, K=128, N=256, ROWS=16, COLUMNS=16, GATE=True)
        product_kernel[(8, 8)](h, w2, x, out, K=256, N=128, ROWS=16, COLUMNS=16, GATE=False)
        return out
"""
)
ONE_LAUNCH = (
    _HEAD
    + _PARTS
    + """
@triton.jit
def whole_block(x, w1, w2, y, h, out):
    normalised(x, y, 0, 128, 128)
    tl.debug_barrier()
    product(y, w1, x, h, 0, 0, 128, 256, 128, 256, True)
    tl.debug_barrier()
    product(h, w2, x, out, 0, 0, 256, 128, 128, 128, False)

class ModelNew(nn.Module):
    def forward(self, x, w1, w2):
        y, h, out = torch.empty_like(x), x.new_empty(128, 256), torch.empty_like(x)
        whole_block[(1,)](x, w1, w2, y, h, out)
        return out
"""
)
