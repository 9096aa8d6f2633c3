# SPDX-License-Identifier: Apache-2.0
"""Generated tasks: small reference programs in KernelBench form, drawn from five families.

A program is a chain of steps on a float32 matrix `x`; programs of the family `matmul` multiply it by `w` first. Every
chain launches at least three device kernels, so that one kernel for the whole chain pays and a kernel for one step
does not. Shapes are small: a kernel needs at most a dozen programs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random

from verl_kernel.quickstart.ops import MATMUL, OPS, Step

Chain = tuple[str, ...]
FAMILIES: dict[str, dict[Chain, int]] = {
    "elementwise": {
        ("silu", "abs"): 1,
        ("square", "silu"): 1,
        ("scale", "relu", "square"): 1,
        ("abs", "silu", "square"): 2,
        ("square", "clamp", "silu"): 2,
        ("leaky", "square"): 3,
    },
    "reduction": {
        ("relu", "square", "sum"): 1,
        ("scale", "relu", "sum"): 1,
        ("abs", "silu", "mean"): 2,
        ("silu", "max", "square"): 2,
        ("leaky", "mean", "square"): 3,
    },
    "normalisation": {
        ("relu", "l2", "square"): 1,
        ("abs", "layer", "square"): 1,
        ("square", "center", "relu"): 2,
        ("shift", "rms"): 2,
        ("shift", "l1", "silu"): 3,
    },
    "softmax": {
        ("silu", "softmax"): 1,
        ("relu", "log_softmax", "abs"): 1,
        ("square", "softmax", "scale"): 2,
        ("clamp", "log_softmax", "abs"): 2,
        ("leaky", "softmax", "square"): 3,
    },
    "matmul": {
        ("matmul", "silu"): 1,
        ("matmul", "relu", "square"): 1,
        ("matmul", "scale", "relu"): 2,
        ("matmul", "clamp", "square"): 2,
        ("matmul", "leaky", "square"): 3,
    },
}
"""Kinds of tasks by family: chains of operations, at most one of them with a constant, and their level, 1 to 3."""
CONSTANTS = ("0.2", "0.5", "1.5", "2.0")
"""Never 1.0, which would leave some steps without effect. Few: a small model has to learn to copy each constant."""
ROWS = (3, 4, 5, 6, 7)
COLUMNS = (72, 80, 96, 100, 120, 144, 150, 180, 200, 240, 250, 300)
"""Widths that are no power of two: a row kernel has to mask."""
TILES = (32, 48, 64)
"""Rows of a matmul, a multiple of the 16 that one program takes (two programs at least)."""
DEPTHS = (16, 32, 64)
"""Inner and outer width of a matmul: powers of two, as `tl.arange` wants them."""
SIZES: dict[str, tuple[tuple[int, ...], ...]] = {"matmul": (TILES, DEPTHS, DEPTHS)}
"""Choices for each dimension of a family's shapes; (ROWS, COLUMNS) for a family without an entry."""
NUMBERS = (*CONSTANTS, *map(str, sorted({*ROWS, *COLUMNS, *TILES, *DEPTHS})))
"""Every number that tells one task of a kind from another."""


@dataclass(frozen=True)
class Program:
    """A task: a chain of steps with constants and a shape."""

    family: str
    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    """Rows and columns of x; for a matmul also the columns of w."""

    @property
    def level(self) -> int:
        """Return the difficulty, 1 to 3."""
        return FAMILIES[self.family][tuple(step.name for step in self.steps)]

    @property
    def inputs(self) -> str:
        """Return the parameters of `forward`: `x` or `x, w`."""
        return "x, w" if self.steps[0].name in MATMUL else "x"

    @property
    def reference(self) -> str:
        """Return the source text of the reference program."""
        body = "".join(f"        {step.torch}\n" for step in self.steps)
        sizes = [f"{rows}, {columns}" for rows, columns in zip(self.shape, self.shape[1:], strict=False)]
        tensors = ", ".join(f"torch.randn({size})" for size in sizes)
        return (
            "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n"
            f"    def forward(self, {self.inputs}):\n{body}        return x\n\n"
            f"def get_inputs():\n    return [{tensors}]\n\ndef get_init_inputs():\n    return []\n"
        )

    @property
    def task_id(self) -> str:
        """Return family and a hash of the reference."""
        return f"{self.family}-{hashlib.sha256(self.reference.encode()).hexdigest()[:10]}"


def draw_steps(chain: Chain, rng: Random) -> tuple[Step, ...]:
    """Draw the constants of a chain."""
    return tuple(Step(name, rng.choice(CONSTANTS) if "{a}" in OPS[name].torch else "") for name in chain)


def draw_shape(family: str, rng: Random) -> tuple[int, ...]:
    """Draw a shape that suits a family."""
    return tuple(rng.choice(sizes) for sizes in SIZES.get(family, (ROWS, COLUMNS)))


def draw_program(rng: Random, family: str = "") -> Program:
    """Draw a task of a family, or of a random one."""
    family = family or rng.choice(sorted(FAMILIES))
    chain = rng.choice(sorted(FAMILIES[family]))
    return Program(family, draw_steps(chain, rng), draw_shape(family, rng))


def draw_distinct(count: int, rng: Random, taken: set[str] | None = None) -> list[Program]:
    """Draw `count` tasks, families in turn, whose references differ from each other and from `taken`.

    The references drawn are added to `taken`.
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
