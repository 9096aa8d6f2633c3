# SPDX-License-Identifier: Apache-2.0
"""Reference programs and candidates for them."""

from textwrap import dedent, indent

from verl_kernel.env import Task

_REFERENCE = """
import torch
from torch import nn
from torch.nn import functional as F

{before}
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {members}

    def forward(self, {arguments}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{values}]
"""
_PROGRAM = """
import torch
import triton
import triton.language as tl
from torch import nn

{kernels}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {members}

    def forward(self, {arguments}):
{body}
"""


def reference(result: str, inputs: str, arguments: str = "x", members: str = "pass", **more: str) -> str:
    """A reference whose `forward` returns `result`; `members` is a statement of `__init__`, `before` of the module.

    `parameters` of `__init__` begin with a comma; `values` are given for them.
    """
    words = {"before": "", "parameters": "", "values": "", **more}
    return _REFERENCE.format(result=result, inputs=inputs, arguments=arguments, members=members, **words)


def program(kernels: str, body: str, arguments: str = "x", members: str = "pass") -> str:
    """A candidate for such a reference, whose `forward` has this body."""
    lines = indent(dedent(body).strip("\n"), " " * 8)
    return _PROGRAM.format(kernels=dedent(kernels).strip("\n"), body=lines, arguments=arguments, members=members)


def elementwise(value: str, members: str = "pass", out: str = "torch.empty_like(x)") -> str:
    """A candidate that stores this value of each number `v` of `x`."""
    kernel = f"""
@triton.jit
def each(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, {value}, mask=at < n)
"""
    launch = "each[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"
    return program(kernel, f"out = {out}\n{launch}\nreturn out", members=members)


def program_of(text: str, members: str = "pass") -> str:
    """A candidate written as one text: its kernels, and then `def forward(self, ...)` at the margin."""
    kernels, forward = text.split("\ndef forward(self, ")
    arguments, body = forward.split("):\n", 1)
    return program(kernels, body, arguments, members)


REFERENCE = """
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
    return [torch.randn(8, 64), torch.randn(8, 64)]

def get_init_inputs():
    return [64, 1.5]
"""

HEADER = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m) * tl.load(w + i % size, mask=m) + tl.load(y + i, mask=m)
    tl.store(out + i, tl.maximum(v, 0.0) * scale, mask=m)

@triton.jit
def token(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i))

class Base(nn.Module):
    def __init__(self, size, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.scale = scale

    def right(self, x, y):
        out = torch.empty_like(x)
        fused[(1,)](x, self.weight, y, out, x.numel(), x.shape[-1], self.scale, BLOCK=512)
        return out

    def torch_only(self, x, y):
        return torch.relu(x * self.weight + y) * self.scale
"""
TASK = Task(REFERENCE, task_id="fused")


def candidate(body: str, before: str = "") -> str:
    """A candidate for `REFERENCE` whose `forward` has this body; `before` is put at module level."""
    lines = indent(body.strip("\n"), " " * 8)
    return f"{HEADER}\n{before}\n\nclass ModelNew(Base):\n    def forward(self, x, y):\n{lines}\n"


HONEST = candidate("return self.right(x, y)")
CHANNEL = (
    "import gc, json, os, struct\nfrom verl_kernel.env.ipc.channel import Channel\n"
    "c = next(o for o in gc.get_objects() if isinstance(o, Channel))\n"
)
"""Statements by which a candidate finds the channel to its judge, `c`."""
PLAIN = HEADER.partition("    def torch_only")[0].replace("class Base", "class ModelNew").replace("right(", "forward(")
"""An honest kernel without this module's helper class."""
