# SPDX-License-Identifier: Apache-2.0
"""Tasks: chains of operations that fit each other, with sizes, the type of the output, and what the prompt hides.

Sizes and the output's type are constants above the class, so that a prompt can leave them out. Neither counts in the
normal form of `verl_kernel.data`: two tasks that differ in them alone are near duplicates of each other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random
from types import CodeType, SimpleNamespace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from verl_kernel.generated_tasks.ops import OPERANDS, OPS, Op, Shape

CONSTANTS = ("0.25", "0.5", "0.75", "1.5", "2.0", "3.0")
"""Never 1.0, which would leave some steps without effect."""
SHIFTS = ("1", "3", "5", "8")
"""By how many columns `roll` moves."""
DTYPES = ("float32", "float16", "bfloat16")
HIDEABLE = ("sizes", "dtype")
_CHANGE = 0.04
"""How much dropping a step must change the result, relative to its largest element."""
_SMALLEST = 1e-3
"""Smallest range of a result: what is smaller may be rounding alone, as the mean of a centred row is."""
_EPSILON = 1e-7
"""Relative error of a step in float32."""
Trial = Literal["plain", "uneven", "small", "low", "high"]
"""Inputs as they are drawn; rows of `x` zero, small, large or far below zero; all of `x` small, far below or far above
zero."""
_ROUNDING: Mapping[Trial, float] = {"uneven": 2e-5, "small": 1.5e-4, "low": 1.5e-4, "high": 1.5e-4}
"""Largest error of a result that float32 may cause, relative to its largest element."""
EXAMPLE = {"ROWS": 6, "COLS": 40, "WIDTH": 12, "1": 1}
"""Sizes at which chains are tried."""


@dataclass(frozen=True)
class Sizes:
    """Choices for the sizes of tasks."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    depths: tuple[int, ...]
    """Columns of both factors of a product, which one kernel can hold."""


SIZES = Sizes((4, 6, 8, 12, 16, 24), (64, 72, 96, 100, 128, 150, 200, 256, 300), (16, 20, 32, 40, 64))
"""Sizes from which tasks are drawn."""
NEW_SIZES = Sizes((5, 10, 20), (80, 112, 160, 180, 240, 250), (24, 48, 56))
"""Sizes that neither training nor the cold start ever shows."""


@dataclass(frozen=True)
class State:
    """The type of `x` between two steps."""

    rows: str = "ROWS"
    cols: str = "COLS"
    """Names of its sizes; `1` after a reduction."""
    is_moved: bool = False
    """Whether a kernel that holds a row no longer holds its elements in order."""


@dataclass(frozen=True)
class ChainStep:
    """An operation with its constant."""

    name: str
    a: str = ""
    is_imagined: bool = False
    """Whether a kernel calls a function for it that Triton does not have."""

    @property
    def op(self) -> Op:
        """Return the operation."""
        return OPS[self.name]

    @property
    def torch(self) -> str:
        """Return the expression of `x` that torch computes."""
        return self.op.torch.format(a=self.a)

    @property
    def triton(self) -> str:
        """Return the expression of `x` that a kernel computes."""
        return f"tl.{self.name}(x)" if self.is_imagined else self.op.triton.replace("{a}", self.a)

    @property
    def is_plain(self) -> bool:
        """Whether the step works on each element without regard to its place."""
        return self.op.shape is Shape.MAP and not self.op.operand


Steps = tuple[ChainStep, ...]


def value(count: int) -> str:
    """Return the name of the value after `count` steps; each value has a name of its own, by which it can be found."""
    return f"h{count}" if count else "x"


def named(expression: str, count: int) -> str:
    """Return an expression of `x` as one of the value after `count` steps."""
    return _X.sub(value(count), expression)


def torch_lines(steps: Steps, start: int = 0) -> list[str]:
    """Return the lines in which torch does steps of a chain that follow its first `start` ones."""
    return [f"{value(index + 1)} = {named(step.torch, index)}" for index, step in enumerate(steps, start)]


_X = re.compile(r"\bx\b")
_CANCELLING = ("log_softmax", "gelu")
"""Torch's gelu of values that are all far below zero is little but rounding."""
_DIFFERENCES = ("tanh", "elu", "softplus")
"""Steps that kernels write as a difference of, or with, 1: where they are near 0 they err as if they were 1."""
_MOVES = (Shape.MOVE, Shape.TRANSPOSE, Shape.GATHER)


def states(names: Sequence[str]) -> list[State] | None:
    """Return the types of `x` before each step and at the end; None where the steps do not fit each other."""
    operands = [OPS[name].operand for name in names if OPS[name].operand]
    parameters = [name for name in operands if OPERANDS[name].is_parameter]
    if len({*names}) < len(names) or len({*operands}) < len(operands) or len(parameters) > 1:
        return None
    if tuple(name for name in names if name in _CANCELLING) == _CANCELLING:
        return None
    chain_states = [State()]
    for index, name in enumerate(names):
        after = _after(chain_states[-1], OPS[name], index == 0)
        if after is None:
            return None
        chain_states.append(after)
    return chain_states


def _after(state: State, op: Op, is_first: bool) -> State | None:
    """Return the type of `x` after an operation; None where it does not fit."""
    if op.shape is Shape.MAP and not op.operand:
        return state
    if state.cols == "1" or (op.shape is Shape.GATHER and not is_first):
        return None
    if state.is_moved and op.shape in (Shape.SCAN, Shape.MATMUL):
        return None
    return {
        Shape.REDUCE: State(state.rows, "1"),
        Shape.MOVE: State(state.rows, state.cols, True),
        Shape.TRANSPOSE: State(state.cols, state.rows),
        Shape.MATMUL: State(state.rows, "WIDTH"),
    }.get(op.shape, state)


@dataclass(frozen=True)
class Program:
    """A task: steps, sizes, the output's type, and what its prompt hides."""

    steps: Steps
    shape: tuple[int, int, int]
    """Rows and columns of `x`, and the columns of a product."""
    dtype: str = "float32"
    hidden: tuple[str, ...] = ()
    """Which of `HIDEABLE` the prompt leaves out."""
    further: tuple[tuple[int, int], ...] = ()
    """Rows and columns of `x` at the task's other sizes; a parameter keeps its columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the steps."""
        return tuple(step.name for step in self.steps)

    @property
    def level(self) -> int:
        """Return the number of steps."""
        return len(self.steps)

    @property
    def states(self) -> list[State]:
        """Return the types of `x` before each step and at the end."""
        chain_states = states(self.names)
        assert chain_states is not None
        return chain_states

    @property
    def tensors(self) -> dict[str, str]:
        """Return the expressions that draw the arguments of `forward`, by name."""
        return {"x": "torch.randn(ROWS, COLS)", **self._operands(is_parameter=False)}

    @property
    def parameter(self) -> str:
        """Return the name of the module's parameter; empty for none."""
        return next(iter(self._operands(is_parameter=True)), "")

    @property
    def constructor(self) -> str:
        """Return the text of `__init__`; empty where there is no parameter."""
        if not self.parameter:
            return ""
        expression = OPERANDS[self.parameter].expression.format(cols="cols")
        return (
            "    def __init__(self, cols):\n        super().__init__()\n"
            f"        self.{self.parameter} = nn.Parameter({expression})\n\n"
        )

    @property
    def constants(self) -> dict[str, str]:
        """Return the lines of the constants above the class, by what they define: `sizes` and `dtype`."""
        names = ("ROWS", "COLS", "WIDTH")[: 3 if "w" in self.tensors else 2]
        fixed = {name: str(size) for name, size in zip(names, self.shape, strict=False) if name not in self.sized}
        line = f"{', '.join(fixed)} = {', '.join(fixed.values())}\n" if fixed else ""
        sizes = [dict(zip(self.sized, size, strict=False)) for size in (self.shape, *self.further)]
        line += f"WORKLOADS = {sizes!r}\n" if self.sized else ""
        return {"sizes": line, "dtype": f"DTYPE = torch.{self.dtype}\n"}

    @property
    def sized(self) -> tuple[str, ...]:
        """Return the names of what differs between the task's sizes; none where it has one size."""
        return () if not self.further else ("ROWS",) if self.parameter else ("ROWS", "COLS")

    @property
    def body(self) -> str:
        """Return the class and the function that draws inputs."""
        lines = "".join(f"        {line}\n" for line in torch_lines(self.steps))
        return (
            f"class Model(nn.Module):\n{self.constructor}    def forward(self, {', '.join(self.tensors)}):\n{lines}"
            f"        return {value(self.level)}.to(DTYPE)\n\n"
            f"def get_inputs({', '.join(self.sized)}):\n    return [{', '.join(self.tensors.values())}]\n"
        )

    @property
    def reference(self) -> str:
        """Return the source text of the reference program."""
        size = next((state.cols for step, state in self._typed() if step.op.operand == self.parameter), "")
        return (
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
            f"{''.join(self.constants.values())}\n{self.body}\n"
            f"def get_init_inputs():\n    return [{size if self.parameter else ''}]\n"
        )

    @property
    def prompt(self) -> str:
        """Return the part of the reference that the prompt shows."""
        return "".join(line for key, line in self.constants.items() if key not in self.hidden) + self.body

    @property
    def task_id(self) -> str:
        """Return the steps and a hash of the reference."""
        return f"{'-'.join(self.names)}-{hashlib.sha256(self.reference.encode()).hexdigest()[:8]}"

    def _typed(self) -> list[tuple[ChainStep, State]]:
        return list(zip(self.steps, self.states, strict=False))

    def _operands(self, is_parameter: bool) -> dict[str, str]:
        return {
            name: OPERANDS[name].expression.format(rows=state.rows, cols=state.cols)
            for step, state in self._typed()
            if (name := step.op.operand) and OPERANDS[name].is_parameter is is_parameter
        }


def draw_steps(count: int, families: Mapping[str, float], rng: Random) -> Steps:
    """Draw a chain of `count` steps that fit each other and each of which counts.

    Args:
        count: number of steps.
        families: the weight of each family of operations.
        rng: source of the draws.
    """
    by_weight = {family: weight for family, weight in families.items() if weight}
    names_of = {family: [name for name, op in OPS.items() if op.family == family] for family in by_weight}
    while True:
        step_families = rng.choices(list(by_weight), list(by_weight.values()), k=count)
        names = tuple(rng.choice(names_of[family]) for family in step_families)
        if states(names) is not None:
            steps = tuple(ChainStep(name, draw_constant(OPS[name], rng)) for name in names)
            if is_sound(steps):
                return steps


def draw_shape(steps: Steps, sizes: Sizes, rng: Random) -> tuple[int, int, int]:
    """Draw sizes that suit a chain."""
    multiplies = any(step.op.shape is Shape.MATMUL for step in steps)
    return rng.choice(sizes.rows), rng.choice(sizes.depths if multiplies else sizes.cols), rng.choice(sizes.depths)


def draw_further(steps: Steps, shape: tuple[int, int, int], sizes: Sizes, count: int, rng: Random) -> tuple[Any, ...]:
    """Draw up to `count` further pairs of rows and columns that suit a chain; draws nothing for none."""
    if not count:
        return ()
    multiplies = any(step.op.shape is Shape.MATMUL for step in steps)
    cols = sizes.depths if multiplies else sizes.cols
    pairs = product(sizes.rows, shape[1:2] if Program(steps, shape).parameter else cols)
    other = [pair for pair in pairs if pair != shape[:2]]
    return tuple(rng.sample(other, min(count, len(other))))


def draw_constant(op: Op, rng: Random) -> str:
    """Draw the constant of an operation; empty where it takes none."""
    if "{a}" not in op.torch:
        return ""
    return rng.choice(SHIFTS if op.shape is Shape.MOVE else CONSTANTS)


@lru_cache(maxsize=65536)
def is_sound(steps: Steps) -> bool:
    """Whether a chain computes something finite, varied and well conditioned, to which each of its steps matters."""
    whole = evaluate(steps)
    if whole is None or all(step.op.shape in _MOVES for step in steps):
        return False
    if not all(_is_exact(steps, trial) for trial in _ROUNDING):
        return False
    if whole.max() - whole.min() <= max(_SMALLEST, _CHANGE * float(whole.abs().max())):
        return False
    return all(is_other(steps, (*steps[:index], *steps[index + 1 :])) for index in range(len(steps)))


def _is_exact(steps: Steps, trial: Trial) -> bool:
    """Whether float32 computes a chain well, which fits."""
    exact, rough = evaluate(steps, trial), evaluate(steps, trial, is_rough=True)
    assert exact is not None
    assert rough is not None
    return bool(rough.isfinite().all() and (rough - exact).abs().max() <= _ROUNDING[trial] * exact.abs().max())


@lru_cache(maxsize=65536)
def is_other(steps: Steps, changed: Steps) -> bool:
    """Whether changed steps give a clearly different result, or none."""
    whole, result = evaluate(steps), evaluate(changed)
    if whole is None or result is None or whole.shape != result.shape:
        return True
    return bool((result - whole).abs().max() > _CHANGE * whole.abs().max())


@lru_cache(maxsize=16384)
def evaluate(steps: Steps, trial: Trial = "plain", is_rough: bool = False) -> torch.Tensor | None:
    """Return what torch makes of fixed random inputs.

    Args:
        steps: the chain.
        trial: which inputs.
        is_rough: whether each step errs, as in float32.

    Returns:
        (rows, columns) as the chain's last `State` has them in `EXAMPLE`, float64; None where the steps do not fit
        each other.
    """
    chain_states = states([step.name for step in steps])
    if chain_states is None:
        return None
    x = _inputs(trial)
    for step, state in zip(steps, chain_states, strict=False):
        x = _apply(step, x, _operand(step.op.operand, EXAMPLE[state.rows], EXAMPLE[state.cols]))
        if is_rough:
            x = x * (1 + _EPSILON * _noise(*x.shape, "error"))
            x = x + _EPSILON * _noise(*x.shape, "cancelled") * (step.name in _DIFFERENCES)
    return x


def _inputs(trial: Trial) -> torch.Tensor:
    x = _noise(EXAMPLE["ROWS"], EXAMPLE["COLS"], "x")
    if trial == "uneven":
        x = x * torch.tensor([0.0, 1e-3, 8.0, *[1.0] * (len(x) - 3)])[:, None]
        x[3] = -30 - x[3].abs()
    return {"small": x * 1e-3, "low": -30 - x.abs(), "high": 30 + x.abs()}.get(trial, x)


@lru_cache(maxsize=256)
def launched(step: ChainStep) -> tuple[str, ...]:
    """Return the ops that torch executes for a step, views left out, by the names that the gym gives them."""
    x, operand = _noise(6, 20, "x"), _operand(step.op.operand, 6, 20)
    with _Launched() as launches:
        _apply(step, x, operand)
    return tuple(launches.names)


class _Launched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names.append(str(func).removeprefix("aten.").removesuffix(".default"))
        return func(*args, **(kwargs or {}))


def _apply(step: ChainStep, x: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    name = step.op.operand or "unused"
    space = {"torch": torch, "F": F, "x": x, name: operand, "self": SimpleNamespace(**{name: operand})}
    result = eval(_compiled(step.torch), space)
    assert isinstance(result, torch.Tensor)
    return result


@lru_cache(maxsize=256)
def _operand(name: str, rows: int, cols: int) -> torch.Tensor:
    if name == "index":
        return (torch.arange(rows) * 5 + 2) % rows
    is_vector = bool(name) and OPERANDS[name].is_parameter
    noise = _noise(cols, EXAMPLE["WIDTH"], name) if name == "w" else _noise(1 if is_vector else rows, cols, name)
    return noise[0] if is_vector else noise


@lru_cache(maxsize=256)
def _noise(rows: int, cols: int, name: str) -> torch.Tensor:
    random = torch.Generator().manual_seed(sum(name.encode()))
    return torch.randn(rows, cols, generator=random, dtype=torch.float64)


@lru_cache(maxsize=256)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "chain", "eval")
