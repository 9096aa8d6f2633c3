# SPDX-License-Identifier: Apache-2.0
"""Operations of the generated tasks, as torch and as a kernel write them, and how models get them wrong.

Every expression works on `x` and takes at most one constant `{a}`, spelled the same in torch and in Triton. In a row
kernel `x` holds one padded row of `cols` values; in a matmul kernel it holds rows that need no mask.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """One operation."""

    torch: str
    """Expression of `x`."""
    triton: tuple[str, ...]
    """Lines of a kernel; a masked one keeps the padding out of the row's result."""
    invented: str
    """A call of a Triton function that does not exist, as a model might imagine it."""
    mistake: str
    """Name of an operation easily confused with this one; empty for none."""
    aten: tuple[str, ...]
    """Device kernels that the torch expression launches."""


def _map(torch: str, triton: str, invented: str, mistake: str, *aten: str) -> Op:
    return Op(torch, (f"x = {triton}",), invented, mistake, aten)


def _row(torch: str, neutral: str, triton: tuple[str, ...], invented: str, mistake: str, *aten: str) -> Op:
    return Op(torch, (f"x = tl.where(mask, x, {neutral})", *triton), invented, mistake, aten)


_MEAN = "tl.sum({}, axis=0) / cols"
MAPS: dict[str, Op] = {
    "scale": _map("x * {a}", "x * {a}", "tl.multiply(x, {a})", "shift", "mul.Tensor"),
    "shift": _map("x + {a}", "x + {a}", "tl.add_scalar(x, {a})", "scale", "add.Tensor"),
    "relu": _map("torch.relu(x)", "tl.maximum(x, 0.0)", "tl.relu(x)", "abs", "relu"),
    "abs": _map("torch.abs(x)", "tl.abs(x)", "tl.fabs(x)", "relu", "abs"),
    "square": _map("x * x", "x * x", "tl.square(x)", "abs", "mul.Tensor"),
    "silu": _map("x * torch.sigmoid(x)", "x * tl.sigmoid(x)", "tl.silu(x)", "relu", "sigmoid", "mul.Tensor"),
    "clamp": _map("torch.clamp(x, -{a}, {a})", "tl.clamp(x, -{a}, {a})", "tl.clip(x, -{a}, {a})", "relu", "clamp"),
    "leaky": _map(
        "torch.where(x > 0, x, x * {a})",
        "tl.where(x > 0, x, x * {a})",
        "tl.leaky_relu(x, {a})",
        "scale",
        *("gt.Scalar", "mul.Tensor", "where.self"),
    ),
}
REDUCTIONS: dict[str, Op] = {
    "sum": _row(
        "x.sum(dim=1, keepdim=True)", "0.0", ("x = tl.sum(x, axis=0)",), "tl.row_sum(x)", "max", "sum.dim_IntList"
    ),
    "mean": _row("x.mean(dim=1, keepdim=True)", "0.0", (f"x = {_MEAN.format('x')}",), "tl.mean(x)", "sum", "mean.dim"),
    "max": _row("x.amax(dim=1, keepdim=True)", "-1e9", ("x = tl.max(x, axis=0)",), "tl.amax(x)", "sum", "amax"),
}
NORMS: dict[str, Op] = {
    "center": _row(
        "x - x.mean(dim=1, keepdim=True)",
        "0.0",
        (f"x = x - {_MEAN.format('x')}",),
        *("tl.center(x)", "l1", "mean.dim", "sub.Tensor"),
    ),
    "l1": _row(
        "x / x.abs().mean(dim=1, keepdim=True)",
        "0.0",
        (f"x = x / ({_MEAN.format('tl.abs(x)')})",),
        *("tl.normalize(x)", "center", "abs", "mean.dim", "div.Tensor"),
    ),
    "l2": _row(
        "x / x.norm(dim=1, keepdim=True)",
        "0.0",
        ("x = x * tl.rsqrt(tl.sum(x * x, axis=0))",),
        *("tl.norm(x)", "rms", "linalg_vector_norm", "div.Tensor"),
    ),
    "rms": _row(
        "x * torch.rsqrt((x * x).mean(dim=1, keepdim=True))",
        "0.0",
        (f"x = x * tl.rsqrt({_MEAN.format('x * x')})",),
        *("tl.rms_norm(x)", "l2", "mul.Tensor", "mean.dim", "rsqrt", "mul.Tensor"),
    ),
    "layer": _row(
        "nn.functional.layer_norm(x, x.shape[1:])",
        "0.0",
        (
            f"x = x - {_MEAN.format('x')}",
            "x = tl.where(mask, x, 0.0)",
            f"x = x * tl.rsqrt({_MEAN.format('x * x')} + 1e-5)",
        ),
        *("tl.layer_norm(x)", "rms", "native_layer_norm"),
    ),
    "softmax": _row(
        "torch.softmax(x, dim=1)",
        "-1e9",
        ("x = tl.exp(x - tl.max(x, axis=0))", "x = x / tl.sum(x, axis=0)"),
        *("tl.row_softmax(x)", "log_softmax", "_softmax"),
    ),
    "log_softmax": _row(
        "torch.log_softmax(x, dim=1)",
        "-1e9",
        ("x = x - tl.max(x, axis=0)", "x = x - tl.log(tl.sum(tl.exp(x), axis=0))"),
        *("tl.log_softmax(x)", "softmax", "_log_softmax"),
    ),
}
MATMUL = {"matmul": Op("x @ w", ('x = tl.dot(x, w, input_precision="ieee")',), "tl.matmul(x, w)", "", ("mm",))}
OPS = {**MAPS, **REDUCTIONS, **NORMS, **MATMUL}


@dataclass(frozen=True)
class Step:
    """An operation of a program with its constant."""

    name: str
    a: str = ""
    is_invented: bool = False
    """Whether its kernel line calls a function that Triton does not have."""

    @property
    def op(self) -> Op:
        """Return the operation."""
        return OPS[self.name]

    @property
    def torch(self) -> str:
        """Return the line that torch runs."""
        return f"x = {self.op.torch.format(a=self.a)}"

    @property
    def triton(self) -> tuple[str, ...]:
        """Return the lines that a kernel runs."""
        lines = (f"x = {self.op.invented}",) if self.is_invented else self.op.triton
        return tuple(line.format(a=self.a) for line in lines)
