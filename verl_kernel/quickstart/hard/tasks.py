# SPDX-License-Identifier: Apache-2.0
"""Tasks of the hard world: references at sizes that only a GPU would run whole, in eight families and five levels.

A program is a heavy operation that stays in torch (in four of the families), and a chain of steps around it that one
kernel can do. The prompt shows only the class: the sizes and the type of the output (`DTYPE`) are defined above it,
so that a first answer has to guess the type, and only the gym's feedback reveals it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random

from verl_kernel.quickstart.hard.ops import OPS, Step

Chain = tuple[str, ...]
LEVELS = (1, 2, 3, 4, 5)
FAMILIES: dict[str, tuple[Chain, ...]] = {
    "elementwise": (
        ("silu", "scale", "abs"),
        ("leaky", "silu"),
        ("silu", "scale", "softplus"),
        ("abs", "shift", "silu"),
        ("silu", "leaky", "softplus"),
    ),
    "reduction": (
        ("silu", "abs", "sum"),
        ("leaky", "abs", "sum"),
        ("softplus", "scale", "sum"),
        ("shift", "silu", "abs", "mean"),
        ("leaky", "silu", "mean"),
    ),
    "normalisation": (
        ("silu", "rms"),
        ("abs", "rms", "scale"),
        ("silu", "layer", "relu"),
        ("softplus", "layer", "leaky"),
        ("abs", "layer", "silu"),
    ),
    "softmax": (
        ("scale", "softmax"),
        ("silu", "softmax", "scale"),
        ("clamp", "log_softmax", "abs"),
        ("leaky", "softmax"),
        ("softplus", "log_softmax", "leaky"),
    ),
    "matmul": (
        ("silu", "scale"),
        ("leaky", "abs"),
        ("clamp", "silu", "softplus"),
        ("scale", "softmax"),
        ("shift", "silu", "layer"),
    ),
    "convolution": (
        ("silu", "abs"),
        ("leaky", "abs"),
        ("softplus", "scale", "silu"),
        ("shift", "rms", "silu"),
        ("leaky", "layer", "abs"),
    ),
    "attention": (
        ("scale", "softmax"),
        ("abs", "softmax", "scale"),
        ("silu", "scale", "softmax"),
        ("leaky", "softmax"),
        ("silu", "clamp", "softmax"),
    ),
    "projection": (
        ("silu", "rms"),
        ("abs", "rms", "scale"),
        ("silu", "layer"),
        ("softplus", "layer", "relu"),
        ("leaky", "layer", "abs"),
    ),
}
"""Chains of every family, one a level; at most one step of a chain takes a constant."""
HEADS = {
    "matmul": "x = x @ w",
    "convolution": "x = torch.conv1d(x, w, padding=1)",
    "attention": "x = x @ k.t()",
}
"""Torch lines before the chain."""
TAILS = {"attention": "x = x @ v", "projection": "x = x @ w"}
"""Torch lines after the chain."""
INPUTS: dict[str, dict[str, str]] = {
    "matmul": {"x": "ROWS, DEPTH", "w": "DEPTH, COLS"},
    "convolution": {"x": "ROWS // 32, 4, COLS", "w": "32, 4, 3"},
    "attention": {"x": "ROWS, DEPTH", "k": "COLS, DEPTH", "v": "COLS, DEPTH"},
    "projection": {"x": "ROWS, COLS", "w": "COLS, DEPTH"},
}
"""Shapes of the inputs by name; ROWS, COLS of `x` for a family without an entry."""
CONSTANTS = ("0.2", "0.5", "1.5", "2.0")
DTYPES = ("float32", "float16")
ROWS = (448, 512, 576, 640)
COLUMNS = (36000, 40000, 44000, 48000, 52000, 56000)
"""No power of two: a row kernel has to mask. With `ROWS`, a tensor never fits into the simulated GPU's L2."""
DEPTHS = (32, 64)
NUMBERS = CONSTANTS
"""The numbers of a prompt."""


@dataclass(frozen=True)
class Program:
    """A task: a chain of steps, sizes and the type of its output."""

    family: str
    level: int
    steps: tuple[Step, ...]
    shape: tuple[int, int, int]
    """Rows, columns and depth."""
    dtype: str
    """Type of the output."""

    @property
    def head(self) -> tuple[str, ...]:
        """Return the torch lines before the chain."""
        return tuple(filter(None, (HEADS.get(self.family),)))

    @property
    def tail(self) -> tuple[str, ...]:
        """Return the torch lines after the chain."""
        return tuple(filter(None, (TAILS.get(self.family),)))

    @property
    def inputs(self) -> dict[str, str]:
        """Return the shapes of `forward`'s arguments by name."""
        return INPUTS.get(self.family, {"x": "ROWS, COLS"})

    @property
    def model(self) -> str:
        """Return the source text of the reference's class, which is all that the prompt shows."""
        lines = (*self.head, *(line for step in self.steps for line in step.torch), *self.tail, "return x.to(DTYPE)")
        body = "".join(f"        {line}\n" for line in lines)
        return f"class Model(nn.Module):\n    def forward(self, {', '.join(self.inputs)}):\n{body}"

    @property
    def reference(self) -> str:
        """Return the source text of the reference program."""
        rows, columns, depth = self.shape
        tensors = ", ".join(f"torch.randn({shape})" for shape in self.inputs.values())
        return (
            "import torch\nimport torch.nn as nn\n\n"
            f"ROWS, COLS, DEPTH = {rows}, {columns}, {depth}\nDTYPE = torch.{self.dtype}\n\n{self.model}\n"
            f"def get_inputs():\n    return [{tensors}]\n\ndef get_init_inputs():\n    return []\n"
        )

    @property
    def task_id(self) -> str:
        """Return family and a hash of the reference."""
        return f"{self.family}-{hashlib.sha256(self.reference.encode()).hexdigest()[:10]}"


def draw_program(rng: Random, family: str = "", level: int = 0) -> Program:
    """Draw a task of a family and a level, or of random ones."""
    family, level = family or rng.choice(sorted(FAMILIES)), level or rng.choice(LEVELS)
    names = FAMILIES[family][level - 1]
    steps = tuple(Step(name, rng.choice(CONSTANTS) if "{a}" in "".join(OPS[name].torch) else "") for name in names)
    shape = (rng.choice(ROWS), rng.choice(COLUMNS), rng.choice(DEPTHS))
    return Program(family, level, steps, shape, rng.choice(DTYPES))


def draw_distinct(count: int, rng: Random, taken: set[str] | None = None) -> list[Program]:
    """Draw `count` tasks, families and levels in turn, whose references differ from each other and from `taken`.

    The references drawn are added to `taken`.
    """
    taken = set() if taken is None else taken
    programs: list[Program] = []
    families = sorted(FAMILIES)
    while len(programs) < count:
        turn = len(programs)
        program = draw_program(
            rng, families[turn % len(families)], LEVELS[(turn // len(families) + turn) % len(LEVELS)]
        )
        if program.reference not in taken:
            taken.add(program.reference)
            programs.append(program)
    return programs
