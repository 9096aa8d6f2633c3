# SPDX-License-Identifier: Apache-2.0
"""Pools of candidates for `aces_pools.py`: right kernels, and the same kernels with a planted fault.

A candidate is its task's kernel with some of the text replaced. What a fault is good for depends on the inputs: some
show on all of them, some on padded sizes, repeated indices, zeros, signs or large numbers only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

Edits = tuple[tuple[str, str], ...]

_REFERENCE = """
import random

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, {names}):
{body}

def get_inputs():
{inputs}

def get_init_inputs():
    return []
"""
_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
{kernel}

class ModelNew(nn.Module):
    def forward(self, {names}):
{body}
"""


@dataclass(frozen=True)
class Pool:
    """One task with its candidates; texts are bodies without their indentation."""

    name: str
    arguments: str
    reference: str
    inputs: str
    kernel: str
    forward: str
    right: dict[str, Edits]
    faults: dict[str, Edits]

    @property
    def task(self) -> str:
        """Source of the reference."""
        body, inputs = _indented(self.reference, 8), _indented(self.inputs, 4)
        return _REFERENCE.format(names=self.arguments, body=body, inputs=inputs)

    def sources(self) -> dict[str, str]:
        """Candidates by name, right ones first."""
        return {name: self._edited(edits) for name, edits in {**self.right, **self.faults}.items()}

    def _edited(self, edits: Edits) -> str:
        body = _indented(self.forward, 8)
        text = _CANDIDATE.format(kernel=self.kernel.strip(), names=self.arguments, body=body)
        for old, new in edits:
            if old not in text:
                raise ValueError(f"{self.name} has no {old!r} to replace")
            text = text.replace(old, new)
        return text


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.strip().splitlines())


_BLOCKS: dict[str, Edits] = {"right": (), "right_block_256": (("BLOCK=128", "BLOCK=256"),)}
_MAP = """
out = torch.empty_like(x)
kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
return out
"""
_ROWS = """
out = torch.empty_like(x)
kernel[(x.shape[0],)](x, out, x.shape[0], x.shape[1], BLOCK=128)
return out
"""

SOFTMAX = Pool(
    "softmax", "x", "return torch.softmax(x, -1)", "return [torch.randn(12, 100)]",
    """
def kernel(x, out, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < cols
    v = tl.load(x + row * cols + i, mask=m, other=float("-inf"))
    v = v - tl.max(v, 0)
    e = tl.exp(v)
    tl.store(out + row * cols + i, e / tl.sum(e, 0), mask=m)
""",
    _ROWS,
    {**_BLOCKS, "right_exp2": (("tl.exp(v)", "tl.exp2(v * 1.4426950408889634)"),)},
    {
        "no_max": (("    v = v - tl.max(v, 0)\n", ""),),
        "max_without_sign": (("tl.max(v, 0)", "tl.max(tl.abs(v), 0)"), ('float("-inf")', "0.0"),
                             ("tl.sum(e, 0)", "tl.sum(tl.where(m, e, 0.0), 0)")),
        "padding_counts": (('float("-inf")', "0.0"),),
        "wrong_axis": (("x + row * cols + i", "x + i * rows + row"), ("out + row * cols + i", "out + i * rows + row")),
        "half_sum": (("tl.sum(e, 0)", "tl.sum(e.to(tl.float16), 0).to(tl.float32)"),),
        "half_input": (("v = v - tl.max(v, 0)", "v = v.to(tl.float16).to(tl.float32) - tl.max(v, 0)"),),
        "last_column": (("m = i < cols", "m = i < cols - 1"),),
        "last_row_unwritten": (("kernel[(x.shape[0],)]", "kernel[(x.shape[0] - 1,)]"),),
        "clamped": (("e = tl.exp(v)", "e = tl.exp(tl.maximum(v, -20.0))"),),
        "saturated": (("v = v - tl.max(v, 0)", "v = tl.minimum(v, 80.0) - tl.max(v, 0)"),),
    },
)  # fmt: skip

LAYER_NORM = Pool(
    "layer_norm", "x", "return nn.functional.layer_norm(x, x.shape[-1:])", "return [torch.randn(12, 100)]",
    """
def kernel(x, out, rows, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < cols
    v = tl.load(x + row * cols + i, mask=m, other=0.0)
    d = tl.where(m, v - tl.sum(v, 0) / cols, 0.0)
    s = tl.sum(d * d, 0) / cols
    tl.store(out + row * cols + i, d / tl.sqrt(s + 1e-5), mask=m)
""",
    _ROWS,
    {**_BLOCKS, "right_rsqrt": (("d / tl.sqrt(s + 1e-5)", "d * tl.rsqrt(s + 1e-5)"),)},
    {
        "no_eps": (("s + 1e-5", "s"),),
        "larger_eps": (("1e-5", "1e-2"),),
        "padding_counts": (("tl.where(m, v - tl.sum(v, 0) / cols, 0.0)", "v - tl.sum(v, 0) / cols"),),
        "padded_width": (("tl.sum(d * d, 0) / cols", "tl.sum(d * d, 0) / BLOCK"),),
        "unbiased": (("tl.sum(d * d, 0) / cols", "tl.sum(d * d, 0) / (cols - 1)"),),
        "wrong_axis": (("x + row * cols + i", "x + i * rows + row"), ("out + row * cols + i", "out + i * rows + row")),
        "half_squares": (("tl.sum(d * d, 0)", "tl.sum((d * d).to(tl.float16), 0).to(tl.float32)"),),
        "last_column": (("m = i < cols", "m = i < cols - 1"),),
        "last_row_unwritten": (("kernel[(x.shape[0],)]", "kernel[(x.shape[0] - 1,)]"),),
        "clipped": (("d / tl.sqrt(s + 1e-5)", "tl.minimum(d / tl.sqrt(s + 1e-5), 3.5)"),),
    },
)  # fmt: skip

TAILS = Pool(
    "tails", "x, y", "return torch.relu(x) * y + x",
    "n = random.choice([256, 256, 256, 320, 257, 311])\nreturn [torch.randn(n), torch.randn(n)]",
    """
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m)
    tl.store(out + i, tl.maximum(v, 0.0) * tl.load(y + i, mask=m) + v, mask=m)
""",
    _MAP,
    {
        "right": (),
        "right_block_128": (("(x.numel(), 64)", "(x.numel(), 128)"), ("BLOCK=64", "BLOCK=128")),
        "right_where": (("tl.maximum(v, 0.0)", "tl.where(v > 0, v, 0.0)"),),
    },
    {
        "no_mask": (("mask=m", "mask=i >= 0"),),
        "floor_grid": (("triton.cdiv(x.numel(), 64)", "x.numel() // 64"),),
        "floor_grid_128": (("triton.cdiv(x.numel(), 64)", "x.numel() // 128"), ("BLOCK=64", "BLOCK=128")),
        "last_element": (("m = i < n", "m = i < n - 1"),),
        "first_256": (("triton.cdiv(x.numel(), 64)", "4"),),
        "overlapping_blocks": (("tl.program_id(0) * BLOCK", "tl.program_id(0) * (BLOCK - 1)"),),
        "second_block_unread": (("tl.load(y + i, mask=m)", "tl.load(y + i, mask=m & (i < 300), other=0.0)"),),
        "half_product": (("tl.load(y + i, mask=m)", "tl.load(y + i, mask=m).to(tl.float16).to(tl.float32)"),),
        "large_is_cut": (("v = tl.load(x + i, mask=m)", "v = tl.minimum(tl.load(x + i, mask=m), 60.0)"),),
    },
)  # fmt: skip

SCATTER = Pool(
    "scatter_add", "x, index", "return torch.zeros(64).index_add(0, index, x)",
    "return [torch.rand(12), torch.randint(0, 64, (12,))]",
    """
def kernel(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    at = tl.load(index + i, mask=m, other=0)
    tl.atomic_add(out + at, tl.load(x + i, mask=m, other=0.0), mask=m)
""",
    """
out = torch.zeros(64)
kernel[(1,)](x, index, out, x.numel(), BLOCK=16)
return out
""",
    {
        "right": (),
        "right_block_32": (("BLOCK=16", "BLOCK=32"),),
        "right_two_programs": (
            ("kernel[(1,)]", "kernel[(2,)]"), ("BLOCK=16", "BLOCK=8"),
            ("tl.arange(0, BLOCK)", "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"),
        ),
    },
    {
        "race": (("tl.atomic_add(out + at, tl.load(x + i, mask=m, other=0.0), mask=m)",
                  "tl.store(out + at, tl.load(out + at, mask=m) + tl.load(x + i, mask=m, other=0.0), mask=m)"),),
        "last_writer": (("tl.atomic_add", "tl.store"),),
        "largest_wins": (("tl.atomic_add", "tl.atomic_max"),),
        "last_index": (("at = tl.load(index + i, mask=m, other=0)",
                        "at = tl.minimum(tl.load(index + i, mask=m, other=0), 62)"),),
        "first_index": (("m = i < n\n    at = tl.load(index + i, mask=m, other=0)",
                         "m = i < n\n    at = tl.load(index + i, mask=m, other=0)\n    m = m & (at > 0)"),),
        "last_element": (("m = i < n", "m = i < n - 1"),),
        "absolute": (("tl.load(x + i, mask=m, other=0.0)", "tl.abs(tl.load(x + i, mask=m, other=0.0))"),),
        "half": (("tl.load(x + i, mask=m, other=0.0)", "tl.load(x + i, mask=m, other=0.0).to(tl.float16)"),),
        "first_half": (("out = torch.zeros(64)", "out = torch.zeros(64)\n        x = x[:6]"),),
    },
)  # fmt: skip

MASKED_MEAN = Pool(
    "masked_mean", "x, keep",
    "return (x * keep).sum(-1) / keep.sum(-1).clamp(min=1)",
    "return [torch.randn(12, 20), torch.rand(12, 20) < 0.97]",
    """
def kernel(x, keep, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < cols
    k = tl.load(keep + row * cols + i, mask=m, other=0).to(tl.float32)
    v = tl.load(x + row * cols + i, mask=m, other=0.0)
    count = tl.maximum(tl.sum(k, 0), 1.0)
    tl.store(out + row, tl.sum(v * k, 0) / count)
""",
    """
out = torch.empty(x.shape[0])
kernel[(x.shape[0],)](x, keep, out, x.shape[1], BLOCK=32)
return out
""",
    {
        "right": (),
        "right_block_64": (("BLOCK=32", "BLOCK=64"),),
        "right_where": (("v * k", "tl.where(k > 0, v, 0.0)"),),
    },
    {
        "mask_unread": (("tl.load(keep + row * cols + i, mask=m, other=0).to(tl.float32)", "m.to(tl.float32)"),),
        "mask_not_counted": (("tl.sum(k, 0)", "tl.sum(m.to(tl.float32), 0)"),),
        "masked_still_summed": (("v * k", "v"),),
        "last_column": (("m = i < cols", "m = i < cols - 1"),),
        "first_mask_row": (("keep + row * cols + i", "keep + i"),),
        "half_sum": (("tl.sum(v * k, 0)", "tl.sum((v * k).to(tl.float16), 0).to(tl.float32)"),),
        "positive_only": (("v * k", "tl.maximum(v, 0.0) * k"),),
        "last_row_unwritten": (("kernel[(x.shape[0],)]", "kernel[(x.shape[0] - 1,)]"),),
        "cut": (("tl.load(x + row * cols + i, mask=m, other=0.0)",
                 "tl.minimum(tl.load(x + row * cols + i, mask=m, other=0.0), 6.0)"),),
        "most_kept": (("tl.maximum(tl.sum(k, 0), 1.0)", "tl.maximum(tl.sum(k, 0), 12.0)"),),
    },
)  # fmt: skip

MATMUL = Pool(
    "matmul", "x, y", "return x @ y", "return [torch.rand(16, 72), torch.rand(72, 24)]",
    """
def kernel(x, y, out, rows, inner, cols, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    c = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    total = tl.zeros([B, B], tl.float32)
    for k in range(0, inner, B):
        a = k + tl.arange(0, B)[None, :]
        b = k + tl.arange(0, B)[:, None]
        left = tl.load(x + r * inner + a, mask=(r < rows) & (a < inner), other=0.0)
        right = tl.load(y + b * cols + c, mask=(b < inner) & (c < cols), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(out + r * cols + c, total, mask=(r < rows) & (c < cols))
""",
    """
out = torch.empty(x.shape[0], y.shape[1])
grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(y.shape[1], 16))
kernel[grid](x, y, out, x.shape[0], x.shape[1], y.shape[1], B=16)
return out
""",
    {
        "right": (),
        "right_block_32": (("B=16", "B=32"), (", 16)", ", 32)")),
        "right_acc": (("total += tl.dot(left, right, input_precision=\"ieee\")",
                       "total = tl.dot(left, right, total, input_precision=\"ieee\")"),),
    },
    {
        "half_total": (("tl.zeros([B, B], tl.float32)", "tl.zeros([B, B], tl.float16)"),
                       ("tl.dot(left, right, input_precision=\"ieee\")",
                        "tl.dot(left, right, input_precision=\"ieee\").to(tl.float16)")),
        "half_factors": (("tl.dot(left, right, input_precision=\"ieee\")",
                          "tl.dot(left.to(tl.float16), right.to(tl.float16)).to(tl.float32)"),),
        "last_inner_block": (("range(0, inner, B)", "range(0, inner - B, B)"),),
        "inner_floor": (("range(0, inner, B)", "range(0, inner // B * B, B)"),),
        "last_inner": (("(a < inner)", "(a < inner - 1)"),),
        "padding_ones": (("other=0.0)\n        right", "other=1.0)\n        right"),
                         ("mask=(b < inner) & (c < cols), other=0.0", "mask=(b < inner) & (c < cols), other=0.001")),
        "wrong_axis": (("y + b * cols + c", "y + c * inner + b"),),
        "columns_unwritten": (("(c < cols))\n\n", "(c < cols - 8))\n\n"),),
        "positive_only": (("total, mask=(r", "tl.maximum(total, 0.0), mask=(r"),),
        "cut": (("total, mask=(r", "tl.minimum(total, 200.0), mask=(r"),),
    },
)  # fmt: skip

HUBER = Pool(
    "huber", "x, y", "d = x - y\nreturn torch.where(d.abs() < 1, 0.5 * d * d, d.abs() - 0.5)",
    "return [0.8 + 0.2 * torch.rand(6, 50), 0.2 * torch.rand(6, 50)]",
    """
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    d = tl.load(x + i, mask=m) - tl.load(y + i, mask=m)
    s = tl.abs(d)
    tl.store(out + i, tl.where(s < 1.0, 0.5 * d * d, s - 0.5), mask=m)
""",
    _MAP,
    {
        "right": (),
        "right_block_128": (("(x.numel(), 64)", "(x.numel(), 128)"), ("BLOCK=64", "BLOCK=128")),
        "right_minimum": (("tl.where(s < 1.0, 0.5 * d * d, s - 0.5)",
                           "tl.minimum(s, 1.0) * (s - 0.5 * tl.minimum(s, 1.0))"),),
    },
    {
        "square_only": (("tl.where(s < 1.0, 0.5 * d * d, s - 0.5)", "0.5 * d * d"),),
        "no_abs": (("s = tl.abs(d)", "s = d"),),
        "one_sided": (("s = tl.abs(d)", "s = tl.maximum(d, 0.0)"),),
        "negative_cut": (("0.5 * d * d, s - 0.5", "0.5 * d * d, tl.where(d > 0, s - 0.5, 0.0)"),),
        "large_is_cut": (("s - 0.5)", "tl.minimum(s, 40.0) - 0.5)"),),
        "last_block_unwritten": (("triton.cdiv(x.numel(), 64)", "x.numel() // 64"),),
        "last_element": (("m = i < n", "m = i < n - 1"),),
        "half_square": (("0.5 * d * d", "(0.5 * d * d).to(tl.float16)"),),
        "zero_is_one": (("s = tl.abs(d)", "d = tl.where(d == 0.0, 1.0, d)\n    s = tl.abs(d)"),),
        "linear_from_two": (("s < 1.0", "s < 2.0"),),
    },
)  # fmt: skip


def digest() -> str:
    """SHA-256 of all texts, by which a recorded table names the candidates that it is of."""
    texts = [(pool.name, pool.task, pool.sources()) for pool in POOLS]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


POOLS = (SOFTMAX, LAYER_NORM, TAILS, SCATTER, MASKED_MEAN, MATMUL, HUBER)
