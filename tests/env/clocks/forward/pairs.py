# SPDX-License-Identifier: Apache-2.0
"""Tasks with two right programs each, of which the second does better what the first one's profile names."""

from dataclasses import dataclass
from pathlib import Path

from tests.env.clocks import inverted_programs
from tests.exploits import work


@dataclass(frozen=True)
class Pair:
    """A task, a slow and a fast program, and the kinds of change that lead from one to the other."""

    task: str
    slow: str
    fast: str
    kinds: frozenset[str]


HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"


def task(forward: str, inputs: str, arguments: str = "x") -> str:
    """Return a reference."""
    return f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, {arguments}):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def program(kernels: str, forward: str, arguments: str = "x") -> str:
    """Return a candidate."""
    body = "\n".join(f"        {line}" for line in forward.strip().splitlines())
    return f"{HEAD}{kernels}\nclass ModelNew(nn.Module):\n    def forward(self, {arguments}):\n{body}\n"


_BY_COLUMNS = """
@triton.jit
def columns(x, out, rows, n, BLOCK: tl.constexpr):
    column, at = tl.program_id(0), tl.arange(0, BLOCK)
    for row in range(0, rows, BLOCK):
        value = tl.load(x + (row + at) * n + column)
        tl.store(out + (row + at) * n + column, tl.maximum(value, 0.0) + 1.0)
"""
_BY_ROWS = """
@triton.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    for column in range(0, n, BLOCK):
        value = tl.load(x + row * n + column + at)
        tl.store(out + row * n + column + at, tl.maximum(value, 0.0) + 1.0)
"""
COALESCED = Pair(
    task("torch.relu(x) + 1.0", "torch.randn(1024, 2048)"),
    program(_BY_COLUMNS, "out = torch.empty_like(x)\ncolumns[(2048,)](x, out, 1024, 2048, BLOCK=256)\nreturn out"),
    program(_BY_ROWS, "out = torch.empty_like(x)\nrows[(1024,)](x, out, 2048, BLOCK=1024)\nreturn out"),
    frozenset({"coalesce"}),
)
THRICE = """
@triton.jit
def thrice(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * n, tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        most = tl.maximum(most, tl.load(x + row + start + at))
    highest = tl.max(most, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.exp(tl.load(x + row + start + at) - highest)
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        tl.store(out + row + start + at, tl.exp(tl.load(x + row + start + at) - highest) * scale)
"""
_ONCE = """
@triton.jit
def once(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * n, tl.arange(0, BLOCK)
    value = tl.load(x + row + at)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + at, value / tl.sum(value, 0))
"""
READ_ONCE = Pair(
    task("torch.softmax(x, dim=1)", "torch.randn(256, 16384)"),
    program(THRICE, "out = torch.empty_like(x)\nthrice[(256,)](x, out, 16384, BLOCK=1024)\nreturn out"),
    program(_ONCE, "out = torch.empty_like(x)\nonce[(256,)](x, out, 16384, BLOCK=16384, num_warps=16)\nreturn out"),
    frozenset({"once", "in_flight"}),
)
_ELEMENTWISE = """
@triton.jit
def {name}(x, y, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, {value})
"""
_SUM, _GATE, _BOTH = (
    _ELEMENTWISE.format(name=name, value=value)
    for name, value in (
        ("added", "a + b"), ("gated", "tl.maximum(a, 0.0) * b"), ("both", "tl.maximum(a + b, 0.0) * b"),
    )
)  # fmt: skip
_TWO = "torch.randn(1024, 2048), torch.randn(1024, 2048)"
_BLOCKS = "grid = (x.numel() // 1024,)\n"
_TASK_OF_TWO = task("torch.relu(x + y) * y", _TWO, "x, y")
_IN_ONE = program(_BOTH, _BLOCKS + "out = torch.empty_like(x)\nboth[grid](x, y, out, BLOCK=1024)\nreturn out", "x, y")
FUSED = Pair(
    _TASK_OF_TWO,
    program(
        _SUM + _GATE,
        _BLOCKS + "h, out = torch.empty_like(x), torch.empty_like(x)\nadded[grid](x, y, h, BLOCK=1024)\n"
        "gated[grid](h, y, out, BLOCK=1024)\nreturn out", "x, y",
    ),
    _IN_ONE,
    frozenset({"fuse"}),
)  # fmt: skip
LAZY = Pair(
    _TASK_OF_TWO,
    program(
        _GATE, _BLOCKS + "h, out = x + y, torch.empty_like(x)\ngated[grid](h, y, out, BLOCK=1024)\nreturn out", "x, y"
    ),
    _IN_ONE,
    frozenset({"fuse"}),
)
"""Most of the work is left to torch, and then all of it is done in one launch."""
FILLED = Pair(
    inverted_programs.LAYER_NORM.format(rows=256, columns=512), inverted_programs.ONE_PROGRAM,
    inverted_programs.ROW_PROGRAMS, frozenset({"fill"}),
)  # fmt: skip
_DOT = """
@triton.jit
def product(a, b, out, N, K, B: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total, k = tl.zeros((B, B), tl.float32), tl.arange(0, BK)
    for start in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(tl.float16))
"""
_BY_HAND = """
@triton.jit
def product(a, b, out, N, K, B: tl.constexpr):
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for k in range(K):
        left, right = tl.load(a + rows * K + k), tl.load(b + k * N + columns)
        total += left[:, None].to(tl.float32) * right[None, :].to(tl.float32)
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(tl.float16))
"""
_HALVES = "torch.randn(512, 512).half(), torch.randn(512, 512).half()"
_PRODUCT = task("x @ y", _HALVES, "x, y")


def _tiled(size: int) -> str:
    launch = f"product[({512 // size}, {512 // size})](x, y, out, 512, 512, B={size}, BK=32)"
    return program(_DOT, f"out = torch.empty_like(x)\n{launch}\nreturn out", "x, y")


TENSOR_CORES = Pair(
    _PRODUCT,
    program(_BY_HAND, "out = torch.empty_like(x)\nproduct[(16, 16)](x, y, out, 512, 512, B=32)\nreturn out", "x, y"),
    _tiled(64),
    frozenset({"tensor_cores"}),
)
TILED = Pair(_PRODUCT, _tiled(16), _tiled(32), frozenset({"tiles", "in_flight", "once"}))
_EXAMPLES = Path(__file__).parents[4] / "examples"
EXAMPLES = Pair(
    *((_EXAMPLES / f"{name}.py").read_text() for name in ("reference", "lazy", "fused")), frozenset({"fuse"})
)
IDLE_WORK = Pair(work.TASK, work.PROGRAMS["integers"], work.PROGRAMS["nothing"], frozenset({"integers"}))
ONE_BLOCK = Pair(
    inverted_programs.BLOCK_OF_LAYERS, inverted_programs.ONE_LAUNCH, inverted_programs.THREE_LAUNCHES,
    frozenset({"fill"}),
)  # fmt: skip
PAIRS = {
    "coalesced": COALESCED, "read once": READ_ONCE, "fused": FUSED, "lazy": LAZY, "filled": FILLED,
    "tensor cores": TENSOR_CORES, "tiled": TILED, "examples": EXAMPLES, "idle work": IDLE_WORK, "one block": ONE_BLOCK,
}  # fmt: skip
