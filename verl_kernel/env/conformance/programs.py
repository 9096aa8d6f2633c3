# SPDX-License-Identifier: Apache-2.0
"""Programs of the conformance suite: one small task, one honest candidate, and candidates that fail in one way each."""

from __future__ import annotations

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        return torch.relu(x + y) * self.scale

def get_inputs():
    return [torch.randn(16, 32), torch.randn(16, 32)]

def get_init_inputs():
    return [1.5]
"""
_CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn
{imports}

@triton.jit
def fused(x, y, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32) + tl.load(y + i, mask=i < n).to(tl.float32)
    tl.store(out + i, (tl.maximum(v, 0.0) * scale).to(out.dtype.element_ty), mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def launch(self, x, y):
        out = torch.empty_like(x)
        fused[(1,)](x, y, out, x.numel(), self.scale, BLOCK=512)
        return out

    def forward(self, x, y):
        {body}
"""


def candidate(body: str, imports: str = "") -> str:
    """Return a candidate's source whose forward consists of the line `body`."""
    return _CANDIDATE.format(body=body, imports=imports)


HONEST = candidate("return self.launch(x, y)")
WRONG = candidate("return self.launch(x, y) + 1")
WRONG_FACTOR = HONEST.replace("* scale", "* scale * 0.94")
TRANSPOSED = candidate("return self.launch(x, y).T.contiguous()")
DOUBLE = candidate("return self.launch(x, y).double()")
NAN = candidate("return self.launch(x, y) * float('nan')")
WRITES_INPUTS = candidate("out = self.launch(x, y); x.zero_(); return out")
RAISES = candidate("return self.launch(x, y, z)")
BROKEN_KERNEL = candidate("return self.launch(x, y)").replace("tl.maximum(v, 0.0)", "missing(v)")
CRASHES = candidate("os.kill(os.getpid(), 11)", "import os")
EXITS = candidate("os._exit(0)", "import os")
HANGS = candidate("while True: pass")
SLEEPS = candidate("import time; time.sleep(600)")
HANGS_AT_LOAD = candidate("return self.launch(x, y)", "while True: pass")
FLOODS = candidate("print('x' * (1 << 18)); return self.launch(x, y)")
EATS_MEMORY = candidate("return [torch.ones(1 << 26) for _ in range(1 << 12)]")
TORCH_ONLY = candidate("return torch.relu(x + y) * self.scale")
NO_PYTHON = "This is no Python"
NO_CLASS = "import torch\n"
ODD_SOURCES = ("", "\0", "x = '\ud800'", "# coding: no-such-codec\n", "(" * 5000, "ModelNew = 7\n")
SIZES = (
    REFERENCE.replace("get_inputs()", "get_inputs(rows)").replace("randn(16", "randn(rows")
    + """
WORKLOADS = [16, 17, 32]
"""
)


def at_sizes(body: str) -> str:
    """Return a candidate for all of `SIZES` whose forward consists of the line `body`."""
    return candidate(body).replace("fused[(1,)]", "fused[(triton.cdiv(x.numel(), 512),)]")


AT_ALL_SIZES = at_sizes("return self.launch(x, y)")
RIGHT_AT_ONE_SIZE = at_sizes("return self.launch(x, y) * (1.0 if x.shape[0] == 16 else 1.1)")
FAST_AT_ONE_SIZE = at_sizes("return [self.launch(x, y) for _ in range(1 if x.shape[0] == 16 else 40)][-1]")
TORCH_AT_ONE_SIZE = at_sizes("return self.launch(x, y) if x.shape[0] < 32 else torch.relu(x + y) * self.scale")
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Formats of the task in fewer bits than 32."""


def reference_in(kind: str) -> str:
    """Return the reference whose inputs and outputs have a format."""
    inputs = REFERENCE.replace("randn(16, 32)", f"randn(16, 32).to(torch.{kind})")
    return inputs.replace(
        "torch.relu(x + y) * self.scale", "(torch.relu(x.float() + y.float()) * self.scale).to(x.dtype)"
    )


HANGING_REFERENCE = REFERENCE.replace("return torch.relu", "while True: pass\n        return torch.relu")
CRASHING_REFERENCE = REFERENCE.replace("return torch.relu", "import os; os._exit(9)\n        return torch.relu")
RAISING_REFERENCE = REFERENCE.replace("return [torch", "raise ValueError('no data')\n    return [torch")
RANDOM_REFERENCE = REFERENCE.replace("* self.scale", "* torch.rand(1)")
EMPTY_REFERENCE = REFERENCE.replace("return [torch.randn(16, 32), torch.randn(16, 32)]", "pass")
