# SPDX-License-Identifier: Apache-2.0
"""The table of operations: for each, what torch writes in a reference and what a Triton kernel writes for the same.

Every expression works on `x`, a matrix of rows and columns, and takes at most one constant `{a}`. An operation over a
row is a list of statistics and an expression that uses them by name: a kernel that holds a whole row and a kernel that
loops over its columns are both made from that list. In a kernel, `mask` tells the columns of `x` from the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Shape(str, Enum):
    """What an operation does to a matrix, which decides where it may stand and how a kernel does it."""

    MAP = "map"
    """Each element by itself; with an operand, also by its place."""
    ROW = "row"
    """Each element by its row's statistics."""
    REDUCE = "reduce"
    """One value for each row."""
    SCAN = "scan"
    """Each element by those before it in its row."""
    MOVE = "move"
    """The same elements at other columns."""
    TRANSPOSE = "transpose"
    """Rows become columns."""
    GATHER = "gather"
    """Rows are taken from a table; can only be the first step."""
    MATMUL = "matmul"
    """The product with a second matrix."""


@dataclass(frozen=True)
class Stat:
    """A statistic of a row."""

    name: str
    """The variable that holds it."""
    fold: str
    """`sum`, `max` or `min`."""
    value: str
    """Expression of `x` that is folded."""
    after: str = "{}"
    """What follows once the whole row is folded, e.g. a mean's division."""

    @property
    def neutral(self) -> str:
        """Return the value that leaves the fold unchanged."""
        return {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}[self.fold]

    @property
    def joined(self) -> str:
        """Return the expression that joins two parts of a fold."""
        return "{} + {}" if self.fold == "sum" else f"tl.{self.fold}imum({{}}, {{}})"


@dataclass(frozen=True)
class Op:
    """One operation: a row of the table."""

    family: str
    torch: str
    """Expression of the reference."""
    triton: str
    """Expression of a kernel; for moves, the column at which an element arrives."""
    shape: Shape = Shape.MAP
    stats: tuple[Stat, ...] = ()
    operand: str = ""
    """Key of `OPERANDS`; empty for none."""


@dataclass(frozen=True)
class Operand:
    """A second tensor."""

    expression: str
    """Expression that draws it; `{cols}` and `{rows}` are the columns and the rows of `x` where it is used."""
    is_parameter: bool = False
    """Whether the module holds it, under `self`."""
    read: str = ""
    """What a kernel reads for an element of `x`: a pointer's offset."""

    def name_in_torch(self, name: str) -> str:
        """Return how `forward` names the operand."""
        return f"self.{name}" if self.is_parameter else name


OPERANDS: Mapping[str, Operand] = {
    "bias": Operand("torch.randn({cols})", True, "{col}"),
    "gain": Operand("torch.randn({cols})", True, "{col}"),
    "y": Operand("torch.randn({rows}, {cols})", False, "{offset}"),
    "gate": Operand("torch.randn({rows}, {cols})", False, "{offset}"),
    "w": Operand("torch.randn({cols}, WIDTH)"),
    "index": Operand("torch.randint(0, {rows}, ({rows},))"),
}
"""Second tensors by name. `x` of a chain that begins with a gather is the table."""


def _map(torch: str, triton: str, operand: str = "", family: str = "elementwise") -> Op:
    return Op(family, torch, triton, operand=operand)


def _reduce(torch: str, *stats: Stat, family: str = "reduction", triton: str = "") -> Op:
    return Op(family, torch, triton or stats[-1].name, Shape.REDUCE, stats)


def _row(family: str, torch: str, triton: str, *stats: Stat) -> Op:
    return Op(family, torch, triton, Shape.ROW, stats)


_MEAN = Stat("mean", "sum", "x", "{} / cols")
_TOP = Stat("top", "max", "x")
_TOTAL = Stat("total", "sum", "tl.exp(x - top)")
_DIM = "dim=-1, keepdim=True"
OPS: Mapping[str, Op] = {
    "relu": _map("torch.relu(x)", "tl.maximum(x, 0.0)"),
    "abs": _map("torch.abs(x)", "tl.abs(x)"),
    "square": _map("x * x", "x * x"),
    "sigmoid": _map("torch.sigmoid(x)", "tl.sigmoid(x)"),
    "tanh": _map("torch.tanh(x)", "2.0 * tl.sigmoid(2.0 * x) - 1.0"),
    "silu": _map("F.silu(x)", "x * tl.sigmoid(x)"),
    "gelu": _map('F.gelu(x, approximate="tanh")', "x * tl.sigmoid(1.5957691 * (x + 0.044715 * x * x * x))"),
    "softplus": _map("F.softplus(x)", "tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))"),
    "softsign": _map("F.softsign(x)", "x / (1.0 + tl.abs(x))"),
    "elu": _map("F.elu(x)", "tl.where(x > 0, x, tl.exp(tl.minimum(x, 0.0)) - 1.0)"),
    "bell": _map("torch.exp(-x * x)", "tl.exp(-x * x)"),
    "root": _map("torch.sqrt(torch.abs(x))", "tl.sqrt(tl.abs(x))"),
    "leaky": _map("F.leaky_relu(x, {a})", "tl.where(x > 0, x, x * {a})"),
    "clamp": _map("torch.clamp(x, -{a}, {a})", "tl.clamp(x, -{a}, {a})"),
    "scale": _map("x * {a}", "x * {a}"),
    "shift": _map("x + {a}", "x + {a}"),
    "bias": _map("x + self.bias", "x + bias", "bias", "operand"),
    "gain": _map("x * self.gain", "x * gain", "gain", "operand"),
    "residual": _map("x + y", "x + y", "y", "operand"),
    "gate": _map("x * torch.sigmoid(gate)", "x * tl.sigmoid(gate)", "gate", "operand"),
    "sum": _reduce(f"x.sum({_DIM})", Stat("total", "sum", "x")),
    "mean": _reduce(f"x.mean({_DIM})", _MEAN),
    "max": _reduce(f"x.amax({_DIM})", _TOP),
    "min": _reduce(f"x.amin({_DIM})", Stat("low", "min", "x")),
    "norm": _reduce(f"x.norm({_DIM})", Stat("norm", "sum", "x * x", "tl.sqrt({})")),
    "logsumexp": _reduce(f"torch.logsumexp(x, {_DIM})", _TOP, _TOTAL, family="softmax", triton="top + tl.log(total)"),
    "center": _row("normalisation", f"x - x.mean({_DIM})", "x - mean", _MEAN),
    "layer_norm": _row(
        "normalisation",
        "F.layer_norm(x, x.shape[-1:])",
        "(x - mean) * tl.rsqrt(var + 1e-5)",
        *(_MEAN, Stat("var", "sum", "(x - mean) * (x - mean)", "{} / cols")),
    ),
    "rms_norm": _row(
        "normalisation",
        f"x * torch.rsqrt((x * x).mean({_DIM}) + 1e-5)",
        "x * tl.rsqrt(power + 1e-5)",
        Stat("power", "sum", "x * x", "{} / cols"),
    ),
    "l2_norm": _row(
        "normalisation",
        "F.normalize(x, dim=-1)",
        "x / tl.maximum(norm, 1e-12)",
        Stat("norm", "sum", "x * x", "tl.sqrt({})"),
    ),
    "l1_norm": _row(
        "normalisation",
        f"x / (x.abs().mean({_DIM}) + 1e-5)",
        "x / (size + 1e-5)",
        Stat("size", "sum", "tl.abs(x)", "{} / cols"),
    ),
    "peak_norm": _row(
        "normalisation",
        f"x / (x.abs().amax({_DIM}) + 1e-5)",
        "x / (peak + 1e-5)",
        Stat("peak", "max", "tl.abs(x)"),
    ),
    "softmax": _row("softmax", "torch.softmax(x, dim=-1)", "tl.exp(x - top) / total", _TOP, _TOTAL),
    "log_softmax": _row("softmax", "torch.log_softmax(x, dim=-1)", "x - top - tl.log(total)", _TOP, _TOTAL),
    "softmin": _row(
        "softmax",
        "F.softmin(x, dim=-1)",
        "tl.exp(low - x) / total",
        *(Stat("low", "min", "x"), Stat("total", "sum", "tl.exp(low - x)")),
    ),
    "cumsum": Op("scan", "torch.cumsum(x, dim=-1)", "tl.cumsum(x, axis={axis})", Shape.SCAN),
    "flip": Op("move", "torch.flip(x, dims=[-1])", "cols - 1 - {col}", Shape.MOVE),
    "roll": Op("move", "torch.roll(x, {a}, dims=-1)", "({col} + {a}) % cols", Shape.MOVE),
    "transpose": Op("move", "x.t().contiguous()", "", Shape.TRANSPOSE),
    "embedding": Op("gather", "x[index]", "", Shape.GATHER, operand="index"),
    "matmul": Op("matmul", "x @ w", 'tl.dot(x, w, input_precision="ieee")', Shape.MATMUL, operand="w"),
}
"""All operations by name."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(name for name, op in OPS.items() if op.family == family)
    for family in dict.fromkeys(op.family for op in OPS.values())
}
"""The names of operations by family."""
EXISTING = frozenset({"abs", "sigmoid", "clamp", "sum", "max", "min", "softmax", "cumsum", "flip"})
"""Names of operations that are also names of functions of Triton: no answer can imagine them."""
