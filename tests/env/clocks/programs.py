# SPDX-License-Identifier: Apache-2.0
"""Tasks with two right programs each, of which the second does better what the first one's profile names."""

from dataclasses import dataclass
from pathlib import Path

from tests.env.programs import program, reference
from tests.exploits.families.clock import FLOATS, INTEGERS, TASKS, loop


@dataclass(frozen=True)
class Pair:
    """A task, a slow and a fast program, and the kinds of change that lead from one to the other."""

    task: str
    slow: str
    fast: str
    kinds: frozenset[str]


_OUT = "out = torch.empty_like(x)\n"
_ALONG = """
@triton.jit
def along(x, out, n, step, apart, BLOCK: tl.constexpr):
    first, at = tl.program_id(0) * apart, tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        where = first + (start + at) * step
        tl.store(out + where, tl.maximum(tl.load(x + where), 0.0) + 1.0)
"""
COALESCED = Pair(
    reference("torch.relu(x) + 1.0", "torch.randn(1024, 2048)"),
    program(_ALONG, _OUT + "along[(2048,)](x, out, 1024, 2048, 1, BLOCK=256)\nreturn out"),
    program(_ALONG, _OUT + "along[(1024,)](x, out, 2048, 1, 2048, BLOCK=1024)\nreturn out"),
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
ONCE = """
@triton.jit
def once(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * n, tl.arange(0, BLOCK)
    value = tl.load(x + row + at)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + at, value / tl.sum(value, 0))
"""
READ_ONCE = Pair(
    reference("torch.softmax(x, dim=1)", "torch.randn(256, 16384)"),
    program(THRICE, _OUT + "thrice[(256,)](x, out, 16384, BLOCK=1024)\nreturn out"),
    program(ONCE, _OUT + "once[(256,)](x, out, 16384, BLOCK=16384, num_warps=16)\nreturn out"),
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
    for name, value in (("added", "a + b"), ("gated", "tl.maximum(a, 0.0) * b"), ("both", "tl.maximum(a + b, 0.0) * b"))
)  # fmt: skip
_TWO = "torch.randn(1024, 2048), torch.randn(1024, 2048)"
_BLOCKS = "grid = (x.numel() // 1024,)\n"
FUSED = Pair(
    reference("torch.relu(x + y) * y", _TWO, "x, y"),
    program(_SUM + _GATE,
            _BLOCKS + "h, out = torch.empty_like(x), torch.empty_like(x)\nadded[grid](x, y, h, BLOCK=1024)\n"
            "gated[grid](h, y, out, BLOCK=1024)\nreturn out", "x, y"),
    program(_BOTH, _BLOCKS + _OUT + "both[grid](x, y, out, BLOCK=1024)\nreturn out", "x, y"),
    frozenset({"fuse"}),
)  # fmt: skip
_SIZES = "torch.randn({rows}, {columns}), torch.rand({columns}) + 0.5, torch.randn({columns})"
LAYER_NORM = reference("nn.functional.layer_norm(x, x.shape[1:], w, b)", _SIZES, "x, w, b")
"""Has the sizes `rows` and `columns` still open."""
_ROWS = """
@triton.jit
def layer_norm(x, w, b, out, rows, n, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0) * rows, (tl.program_id(0) + 1) * rows):
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
# Layer norm as tutorials have it, a program for a row; and all rows in one program.
ROW_PROGRAMS, ONE_PROGRAM = (
    program(_ROWS, _OUT + f"layer_norm[({grid},)](x, w, b, out, {rows}, x.shape[1], BLOCK=256)\nreturn out", "x, w, b")
    for grid, rows in (("x.shape[0]", 1), (1, "x.shape[0]"))
)
FILLED = Pair(LAYER_NORM.format(rows=256, columns=512), ONE_PROGRAM, ROW_PROGRAMS, frozenset({"fill"}))
DOT = """
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
_PRODUCT = reference("x @ y", _HALVES, "x, y")


def _tiled(size: int) -> str:
    launch = f"product[({512 // size}, {512 // size})](x, y, out, 512, 512, B={size}, BK=32)"
    return program(DOT, _OUT + f"{launch}\nreturn out", "x, y")


TENSOR_CORES = Pair(
    _PRODUCT,
    program(_BY_HAND, _OUT + "product[(16, 16)](x, y, out, 512, 512, B=32)\nreturn out", "x, y"),
    _tiled(64),
    frozenset({"tensor_cores"}),
)
TILED = Pair(_PRODUCT, _tiled(16), _tiled(32), frozenset({"tiles", "in_flight", "once"}))
_FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = Pair(*((_FOLDER / f"{name}.py").read_text() for name in ("reference", "lazy", "fused")), frozenset({"fuse"}))
IDLE_WORK = Pair(TASKS["double"], loop(*INTEGERS, 2000), loop(*FLOATS, 0), frozenset({"integers"}))
PAIRS = {
    "examples": EXAMPLES, "coalesced": COALESCED, "read once": READ_ONCE, "fused": FUSED,
    "filled": FILLED, "tensor cores": TENSOR_CORES, "tiled": TILED, "idle work": IDLE_WORK,
}  # fmt: skip
