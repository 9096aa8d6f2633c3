# SPDX-License-Identifier: Apache-2.0
"""Operations of the hard world's tasks, as references and as kernels write them, and torch's shorter forms.

References write an operation out in torch's small ops, each of which moves the tensor through memory once more. Torch
often has one op for the same: an answer that calls it is fast without a kernel. Lines work on `x` and take at most one
constant `{a}`. In a kernel `x` holds one padded row of `cols` values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """One operation."""

    torch: tuple[str, ...]
    """Lines of the reference."""
    triton: tuple[str, ...]
    """Lines of a kernel."""
    passes: float
    """Memory passes of the reference's lines: reads plus writes of the tensor."""
    builtin: str = ""
    """One torch op that replaces all of it; empty if the reference's line already is one op."""
    invented: str = ""
    """A call of a Triton function that does not exist, as a model might imagine it."""
    mistake: str = ""
    """Name of an operation that is easily confused with this one."""
    neutral: str = ""
    """Value of the padding that leaves a row's result alone; empty for operations on single elements."""
    reduces: bool = False
    """Whether it leaves one value per row."""


def _map(torch: str, triton: str, passes: float, invented: str, mistake: str, builtin: str = "") -> Op:
    return Op((f"x = {torch}",), (f"x = {triton}",), passes, builtin, invented, mistake)


def _row(neutral: str, torch: tuple[str, ...], triton: tuple[str, ...], passes: float, *names: str) -> Op:
    builtin, invented, mistake = names
    lines = (f"x = tl.where(mask, x, {neutral})", *(f"x = {line}" for line in triton))
    return Op(tuple(f"x = {line}" for line in torch), lines, passes, builtin, invented, mistake, neutral)


def _reduction(name: str, neutral: str, triton: str, invented: str, mistake: str) -> Op:
    lines = (f"x = tl.where(mask, x, {neutral})", f"x = {triton}")
    torch = (f"x = x.{name}(dim=-1, keepdim=True)",)
    return Op(torch, lines, 1, "", invented, mistake, neutral, reduces=True)


MAPS: dict[str, Op] = {
    "scale": _map("x * {a}", "x * {a}", 2, "tl.multiply(x, {a})", "shift"),
    "shift": _map("x + {a}", "x + {a}", 2, "tl.add_scalar(x, {a})", "scale"),
    "relu": _map("torch.relu(x)", "tl.maximum(x, 0.0)", 2, "tl.relu(x)", "abs"),
    "abs": _map("torch.abs(x)", "tl.abs(x)", 2, "tl.fabs(x)", "relu"),
    "clamp": _map("torch.clamp(x, -{a}, {a})", "tl.clamp(x, -{a}, {a})", 2, "tl.clip(x, -{a}, {a})", "relu"),
    "silu": _map("x * torch.sigmoid(x)", "x * tl.sigmoid(x)", 5, "tl.silu(x)", "relu", "nn.functional.silu(x)"),
    "leaky": _map(
        "torch.where(x > 0, x, x * {a})", "tl.where(x > 0, x, x * {a})", 6.5,
        "tl.leaky_relu(x, {a})", "scale", "nn.functional.leaky_relu(x, {a})",
    ),
    "softplus": _map(
        "torch.log(1 + torch.exp(x))", "tl.log(1.0 + tl.exp(x))", 6,
        "tl.softplus(x)", "silu", "nn.functional.softplus(x)",
    ),
}  # fmt: skip
REDUCTIONS: dict[str, Op] = {
    "sum": _reduction("sum", "0.0", "tl.sum(x, axis=0)", "tl.row_sum(x)", "max"),
    "mean": _reduction("mean", "0.0", "tl.sum(x, axis=0) / cols", "tl.mean(x)", "sum"),
    "max": _reduction("amax", "-1e9", "tl.max(x, axis=0)", "tl.amax(x)", "sum"),
}
NORMS: dict[str, Op] = {
    "softmax": _row(
        "-1e9", ("torch.exp(x - x.amax(dim=-1, keepdim=True))", "x / x.sum(dim=-1, keepdim=True)"),
        ("tl.exp(x - tl.max(x, axis=0))", "x / tl.sum(x, axis=0)"), 8,
        "torch.softmax(x, dim=-1)", "tl.row_softmax(x)", "log_softmax",
    ),
    "log_softmax": _row(
        "-1e9", ("x - x.amax(dim=-1, keepdim=True)", "x - torch.log(torch.exp(x).sum(dim=-1, keepdim=True))"),
        ("x - tl.max(x, axis=0)", "x - tl.log(tl.sum(tl.exp(x), axis=0))"), 8,
        "torch.log_softmax(x, dim=-1)", "tl.log_softmax(x)", "softmax",
    ),
    "layer": _row(
        "0.0", ("x - x.mean(dim=-1, keepdim=True)", "x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5)"),
        ("x - tl.sum(x, axis=0) / cols", "tl.where(mask, x, 0.0)", "x * tl.rsqrt(tl.sum(x * x, axis=0) / cols + 1e-5)"),
        8, "nn.functional.layer_norm(x, x.shape[-1:])", "tl.layer_norm(x)", "rms",
    ),
    "rms": _row(
        "0.0", ("x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5)",),
        ("x * tl.rsqrt(tl.sum(x * x, axis=0) / cols + 1e-5)",), 5,
        "", "tl.rms_norm(x)", "layer",
    ),
}  # fmt: skip
OPS = {**MAPS, **REDUCTIONS, **NORMS}


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
    def torch(self) -> tuple[str, ...]:
        """Return the reference's lines."""
        return self._filled(self.op.torch)

    @property
    def builtin(self) -> tuple[str, ...]:
        """Return torch's shortest lines."""
        return self._filled((f"x = {self.op.builtin}",)) if self.op.builtin else self.torch

    @property
    def triton(self) -> tuple[str, ...]:
        """Return a kernel's lines."""
        return self._filled((f"x = {self.op.invented}",) if self.is_invented else self.op.triton)

    def _filled(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line.format(a=self.a) for line in lines)
