# SPDX-License-Identifier: Apache-2.0
"""Generated tasks: small reference programs in KernelBench form, drawn from parametrised families.

A program is a chain of steps on a float32 matrix `x` (and a second matrix `y` in some families); row
families end with a reduction over the last dimension. Shapes are small, so that a kernel needs at most
a dozen programs under Triton's interpreter.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Op:
    """One operation, as expressions of `{v}` (the running value), `y` and constants `{a}`, `{b}`."""

    torch: str
    triton: str
    missing: str
    """A call of a Triton function that does not exist, as a model might imagine it."""
    mistake: str
    """Name of an operation easily confused with this one."""
    aten: tuple[str, ...]
    """Device kernels that the torch expression launches."""


OPS: dict[str, Op] = {
    "scale": Op("{v} * {a}", "{v} * {a}", "tl.multiply({v}, {a})", "shift", ("mul.Tensor",)),
    "shift": Op("{v} + {a}", "{v} + {a}", "tl.add_scalar({v}, {a})", "sub", ("add.Tensor",)),
    "sub": Op("{v} - {a}", "{v} - {a}", "tl.subtract({v}, {a})", "shift", ("sub.Tensor",)),
    "div": Op("{v} / {a}", "{v} / {a}", "tl.divide({v}, {a})", "scale", ("div.Tensor",)),
    "relu": Op("torch.relu({v})", "tl.maximum({v}, 0.0)", "tl.relu({v})", "abs", ("relu",)),
    "abs": Op("torch.abs({v})", "tl.abs({v})", "tl.fabs({v})", "relu", ("abs",)),
    "square": Op("{v} * {v}", "{v} * {v}", "tl.square({v})", "abs", ("mul.Tensor",)),
    "sigmoid": Op("torch.sigmoid({v})", "tl.sigmoid({v})", "tl.logistic({v})", "exp", ("sigmoid",)),
    "exp": Op("torch.exp({v})", "tl.exp({v})", "tl.expf({v})", "sigmoid", ("exp",)),
    "clamp": Op(
        "torch.clamp({v}, -{a}, {b})",
        "tl.minimum(tl.maximum({v}, -{a}), {b})",
        "tl.clip({v}, -{a}, {b})",
        "relu",
        ("clamp",),
    ),
    "leaky": Op(
        "torch.where({v} > 0, {v}, {v} * {a})",
        "tl.where({v} > 0, {v}, {v} * {a})",
        "tl.leaky_relu({v}, {a})",
        "scale",
        ("gt.Scalar", "mul.Tensor", "where.self"),
    ),
    "add_y": Op("{v} + y", "{v} + y", "tl.add_tensor({v}, y)", "mul_y", ("add.Tensor",)),
    "mul_y": Op("{v} * y", "{v} * y", "tl.multiply({v}, y)", "add_y", ("mul.Tensor",)),
    "max_y": Op("torch.maximum({v}, y)", "tl.maximum({v}, y)", "tl.fmax({v}, y)", "add_y", ("maximum",)),
    "gate_y": Op("{v} * torch.sigmoid(y)", "{v} * tl.sigmoid(y)", "tl.glu({v}, y)", "mul_y", ("sigmoid", "mul.Tensor")),
    "sum": Op("{v}.sum(dim=1)", "tl.sum({v}, axis=0)", "tl.row_sum({v})", "max", ("sum.dim_IntList",)),
    "max": Op("{v}.amax(dim=1)", "tl.max({v}, axis=0)", "tl.row_max({v})", "sum", ("amax",)),
    "softmax": Op(
        "torch.softmax({v}, dim=1)", "{v} / tl.sum({v}, axis=0)", "tl.row_softmax({v})", "sum", ("_softmax",)
    ),
}
REDUCTIONS = ("sum", "max", "softmax")

FAMILIES: dict[str, tuple[tuple[str, ...], ...]] = {
    "affine": (("scale", "shift"), ("shift", "scale"), ("sub", "div")),
    "rectifier": (("scale", "shift", "relu"), ("scale", "sub", "abs"), ("sub", "relu", "scale")),
    "sigmoid": (("scale", "shift", "sigmoid"), ("sigmoid", "scale", "sub"), ("exp", "scale")),
    "polynomial": (("square", "scale", "shift"), ("shift", "square", "scale")),
    "clamp": (("shift", "clamp"), ("scale", "clamp", "shift")),
    "leaky": (("shift", "leaky"), ("leaky", "scale")),
    "residual": (("scale", "add_y", "relu"), ("relu", "scale", "add_y")),
    "gate": (("scale", "gate_y"), ("gate_y", "shift")),
    "pair": (("mul_y", "shift", "relu"), ("max_y", "scale"), ("mul_y", "sub", "abs")),
    "row_sum": (("shift", "relu", "sum"), ("scale", "sigmoid", "sum")),
    "row_max": (("scale", "shift", "max"), ("sub", "abs", "max")),
    "softmax": (("scale", "softmax"), ("shift", "square", "softmax")),
}
CONSTANTS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.2", "1.5", "2.0")
SHAPES = ((8, 256), (8, 200), (6, 200), (4, 300), (10, 100), (12, 96))
ROW_SHAPES = ((8, 200), (6, 200), (4, 300), (10, 100), (12, 96))
"""Widths that are no power of two: a row kernel has to mask."""


@dataclass(frozen=True)
class Step:
    """An operation of a program with its constants."""

    name: str
    a: str = ""
    b: str = ""

    def torch(self, value: str) -> str:
        """Return the torch expression of `value`."""
        return OPS[self.name].torch.format(v=value, a=self.a, b=self.b)

    def triton(self, value: str) -> str:
        """Return the Triton expression of `value`."""
        return OPS[self.name].triton.format(v=value, a=self.a, b=self.b)

    def missing(self, value: str) -> str:
        """Return a call that Triton does not know."""
        return OPS[self.name].missing.format(v=value, a=self.a, b=self.b)


def uses_y(steps: tuple[Step, ...]) -> bool:
    """Whether a chain reads the second input."""
    return any(step.name.endswith("_y") for step in steps)


@dataclass(frozen=True)
class Program:
    """A task: a family's chain of steps with constants and a shape."""

    family: str
    steps: tuple[Step, ...]
    shape: tuple[int, int]

    @property
    def inputs(self) -> str:
        """Parameters of `forward`: `x` or `x, y`."""
        return "x, y" if uses_y(self.steps) else "x"

    @property
    def is_row(self) -> bool:
        """Whether the last step reduces over rows."""
        return self.steps[-1].name in REDUCTIONS

    @property
    def reference(self) -> str:
        """Source text of the reference program."""
        body = "".join(f"        x = {step.torch('x')}\n" for step in self.steps)
        tensors = ", ".join([f"torch.randn{self.shape}"] * len(self.inputs.split(", ")))
        return (
            "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n"
            f"    def forward(self, {self.inputs}):\n{body}        return x\n\n"
            f"def get_inputs():\n    return [{tensors}]\n\ndef get_init_inputs():\n    return []\n"
        )

    @property
    def task_id(self) -> str:
        """Family and a hash of the reference."""
        return f"{self.family}-{hashlib.sha256(self.reference.encode()).hexdigest()[:10]}"


def draw_constant(rng: Random, other_than: str = "") -> str:
    """Draw a constant; never 1.0, which would make some steps neutral."""
    return rng.choice([constant for constant in CONSTANTS if constant != other_than])


def draw_step(name: str, rng: Random) -> Step:
    """Draw the constants of one operation."""
    template = OPS[name].torch
    a, b = draw_constant(rng), draw_constant(rng)
    return Step(name, a if "{a}" in template else "", b if "{b}" in template else "")


def draw_program(rng: Random, family: str = "") -> Program:
    """Draw a task of a family, or of a random one."""
    family = family or rng.choice(sorted(FAMILIES))
    names = rng.choice(FAMILIES[family])
    shape = rng.choice(ROW_SHAPES if names[-1] in REDUCTIONS else SHAPES)
    return Program(family, tuple(draw_step(name, rng) for name in names), shape)


def draw_distinct(count: int, rng: Random, taken: set[str] | None = None) -> list[Program]:
    """Draw `count` tasks, families in turn, whose references differ from each other and from `taken`.

    `taken` (references) grows by the ones drawn.
    """
    taken = set() if taken is None else taken
    programs: list[Program] = []
    families = sorted(FAMILIES)
    while len(programs) < count:
        program = draw_program(rng, families[len(programs) % len(families)])
        if program.reference not in taken:
            taken.add(program.reference)
            programs.append(program)
    return programs
