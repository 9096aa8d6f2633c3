# SPDX-License-Identifier: Apache-2.0
"""Programs that answer a task: parts of the chain, each done by torch or by one Triton kernel in one of four styles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from verl_kernel.world.chains import Program, Step, Steps
from verl_kernel.world.ops import OPERANDS, Shape, Stat

_LOOP_BLOCK, _FLAT_BLOCK, _TILE = 64, 256, 16
_LOOP_STATS = 2
"""Most statistics of a looping kernel: each takes a loop of its own."""
_NAMES = ("first_kernel", "second_kernel", "third_kernel", "fourth_kernel")


class Style(str, Enum):
    """How the programs of a kernel share the work."""

    ROW = "row"
    """One row for each program, held as one block."""
    LOOP = "loop"
    """One row for each program, which loops over its columns."""
    FLAT = "flat"
    """A block of elements, whatever their rows."""
    TILE = "tile"
    """A block of 16 rows."""


@dataclass(frozen=True)
class Part:
    """Consecutive steps of a chain, done by torch or by one kernel."""

    steps: Steps
    style: Style | None = None
    """The kernel's style; None for torch."""

    def has(self, *shapes: Shape) -> bool:
        """Whether a step has one of these shapes."""
        return any(step.op.shape in shapes for step in self.steps)

    @property
    def operands(self) -> list[str]:
        """Return the names of second tensors."""
        return [step.op.operand for step in self.steps if step.op.operand]

    @property
    def turns_at_load(self) -> bool:
        """Whether a transposition is done by the addresses that the kernel loads from."""
        return self.has(Shape.TRANSPOSE) and all(step.is_plain for step in self.steps[: self._turn])

    @property
    def turns_at_store(self) -> bool:
        """Whether a transposition is done by the addresses that the kernel stores to."""
        return self.has(Shape.TRANSPOSE) and not self.turns_at_load

    @property
    def _turn(self) -> int:
        return next(place for place, step in enumerate(self.steps) if step.op.shape is Shape.TRANSPOSE)


def fused(steps: Steps) -> list[Steps]:
    """Return the steps of the fewest kernels that do a chain: a kernel that stores columns as rows ends there."""
    runs: list[Steps] = [()]
    for step in steps:
        if Part(runs[-1]).turns_at_store and not step.is_plain:
            runs.append(())
        runs[-1] += (step,)
    return runs


def styles(steps: Steps) -> list[Style]:
    """Return the styles in which one kernel can do these steps."""
    part, found = Part(steps), [Style.TILE]
    stats = [stat.name for step in steps for stat in step.op.stats]
    if not part.has(Shape.MATMUL):
        found.insert(0, Style.ROW)
    if all(step.op.shape is Shape.MAP for step in steps):
        found.append(Style.FLAT)
    if 0 < len(stats) == len({*stats}) <= _LOOP_STATS and not part.has(
        Shape.SCAN, Shape.MOVE, Shape.MATMUL, Shape.GATHER
    ):
        found.append(Style.LOOP)
    return found


def render(program: Program, parts: Sequence[Part], dtype: str) -> str:
    """Return the source of an answer.

    Args:
        program: the task.
        parts: the whole chain, cut into parts.
        dtype: type of the output.
    """
    kernels = [part for part in parts if part.style]
    kernel_names = _NAMES if len(kernels) > 1 else ("fused_kernel" if len(parts) == 1 else "part_kernel",)
    named = dict(zip(map(id, kernels), kernel_names, strict=False))
    lines: list[str] = []
    for part in parts:
        if not part.style:
            lines += [step.torch for step in part.steps]
            continue
        is_last = part is parts[-1]
        lines += launch(part, named[id(part)], dtype if is_last else "float32")
        lines.append("return out" if is_last else "x = out")
    if not parts[-1].style:
        lines.append(f"return x.to(torch.{dtype})")
    return module(program, [kernel(part, named[id(part)]) for part in kernels], lines)


def module(program: Program, kernels: Sequence[str], forward: Sequence[str]) -> str:
    """Return a program from its kernels and the lines of `ModelNew.forward`."""
    imports = ["import torch", "import torch.nn as nn", "import triton", "import triton.language as tl"]
    if any("F." in line for line in forward):
        imports.insert(2, "import torch.nn.functional as F")
    body = "".join(f"        {line}\n" for line in forward)
    head = f"class ModelNew(nn.Module):\n{program.constructor}    def forward(self, {', '.join(program.tensors)}):\n"
    return "\n".join([*imports, "", *kernels, head + body])


def kernel(part: Part, name: str) -> str:
    """Return the text of a part's kernel."""
    text = _Kernel(part)
    return f"@triton.jit\ndef {name}({', '.join(text.parameters)}):\n" + "".join(f"    {line}\n" for line in text.lines)


def launch(part: Part, name: str, dtype: str) -> list[str]:
    """Return the lines of `forward` that allocate a part's output and start its kernel."""
    text = _Kernel(part)
    cols = "1" if part.has(Shape.REDUCE) else "width" if part.has(Shape.MATMUL) else "cols"
    shape = f"({cols}, rows)" if part.turns_at_store else f"(rows, {cols})"
    operands = [OPERANDS[operand].name_in_torch(operand) for operand in part.operands]
    lines = [*text.measured, f"out = torch.empty({shape}, device=x.device, dtype=torch.{dtype})"]
    if part.style is Style.FLAT:
        lines = [*text.measured, f"out = torch.empty(x.shape, device=x.device, dtype=torch.{dtype})"]
    arguments = ", ".join(["x", *operands, "out", *text.sizes, *text.blocks])
    return [*lines, f"{name}[({text.grid},)]({arguments})"]


class _Kernel:
    """The text of one kernel and of its launch."""

    def __init__(self, part: Part) -> None:
        assert part.style is not None
        self._part, self._style = part, part.style
        self._is_tile, self._is_flat = part.style is Style.TILE, part.style is Style.FLAT
        self._axis = "1, keep_dims=True" if self._is_tile else "0"
        self._col = "offs % cols" if self._is_flat else "offs"

    @property
    def parameters(self) -> list[str]:
        """Return the kernel's parameters."""
        pointers = ["x_ptr", *(f"{name}_ptr" for name in self._part.operands), "out_ptr"]
        blocks = [f"{block.partition('=')[0]}: tl.constexpr" for block in self.blocks]
        return [*pointers, *self.sizes, *blocks]

    @property
    def sizes(self) -> list[str]:
        """Return the names of the sizes that the kernel takes."""
        part = self._part
        if self._is_flat:
            return ["n", "cols"] if self._reads_columns else ["n"]
        rows = ["rows"] if self._is_tile or part.has(Shape.TRANSPOSE) else []
        return [*rows, "cols", *(["width"] if part.has(Shape.MATMUL) else [])]

    @property
    def measured(self) -> list[str]:
        """Return the lines that take the sizes from the arguments."""
        part = self._part
        if self._is_flat:
            return ["n, cols = x.numel(), x.shape[1]"] if self._reads_columns else ["n = x.numel()"]
        if part.has(Shape.GATHER):
            lines = ["rows, cols = index.shape[0], x.shape[1]"]
        else:
            lines = [f"{'cols, rows' if part.turns_at_load else 'rows, cols'} = x.shape"]
        return [*lines, "width = w.shape[1]"] if part.has(Shape.MATMUL) else lines

    @property
    def blocks(self) -> list[str]:
        """Return the keyword arguments that set the sizes of blocks."""
        if self._style in (Style.LOOP, Style.FLAT):
            return [f"BLOCK={_LOOP_BLOCK if self._style is Style.LOOP else _FLAT_BLOCK}"]
        if not self._part.has(Shape.MATMUL):
            return ["BLOCK=triton.next_power_of_2(cols)"]
        return [
            f"{name}=max(16, triton.next_power_of_2({size}))" for name, size in (("BLOCK", "cols"), ("WIDE", "width"))
        ]

    @property
    def grid(self) -> str:
        """Return the number of the kernel's programs."""
        if self._is_flat:
            return f"triton.cdiv(n, {_FLAT_BLOCK})"
        return f"triton.cdiv(rows, {_TILE})" if self._is_tile else "rows"

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines of the kernel's body."""
        steps = self._part.steps
        if self._style is Style.LOOP:
            return ["row = tl.program_id(0)", *self._loops()]
        done = [line for step in steps for line in self._step(step)]
        return [*self._start(), *self._load(), *done, self._store()]

    @property
    def _reads_columns(self) -> bool:
        return any(OPERANDS[name].read == "{col}" for name in self._part.operands)

    def _start(self) -> list[str]:
        if self._is_flat:
            return ["offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "mask = offs < n"]
        if self._is_tile:
            return [
                f"row = tl.program_id(0) * {_TILE} + tl.arange(0, {_TILE})[:, None]",
                "offs = tl.arange(0, BLOCK)[None, :]",
                "mask = (row < rows) & (offs < cols)",
            ]
        return ["row = tl.program_id(0)", "offs = tl.arange(0, BLOCK)", "mask = offs < cols"]

    def _load(self) -> list[str]:
        row, before = "row", []
        if self._part.has(Shape.GATHER):
            bound = ", mask=row < rows, other=0" if self._is_tile else ""
            row, before = "source", [f"source = tl.load(index_ptr + row{bound})"]
        place = "offs" if self._is_flat else f"{row} * cols + offs"
        if self._part.turns_at_load:
            place = "offs * rows + row"
        return [*before, f"x = tl.load(x_ptr + {place}, mask=mask, other=0.0)"]

    def _store(self) -> str:
        if self._part.has(Shape.REDUCE):
            return f"tl.store(out_ptr + row, x{', mask=row < rows' if self._is_tile else ''})"
        place = f"{self._col} * rows + row" if self._part.turns_at_store else self._place
        return f"tl.store(out_ptr + {place}, x, mask=mask)"

    @property
    def _place(self) -> str:
        return "offs" if self._is_flat else f"row * cols + {self._col}"

    def _step(self, step: Step) -> list[str]:
        shape, expression = step.op.shape, step.triton.replace("{axis}", self._axis[0])
        if shape in (Shape.TRANSPOSE, Shape.GATHER):
            return [_comment(step)]
        if shape is Shape.MATMUL:
            return [_comment(step), *self._matmul(expression)]
        if shape is Shape.MOVE:
            line, self._col = f"col = {expression.replace('{col}', self._col)}", "col"
            return [_comment(step), line]
        stats = () if step.is_imagined else step.op.stats
        return [_comment(step), *self._operand(step), *(self._stat(stat) for stat in stats), f"x = {expression}"]

    def _operand(self, step: Step) -> list[str]:
        if not (name := step.op.operand):
            return []
        read = OPERANDS[name].read.format(col=self._col, place=self._place)
        mask = "offs < cols" if self._is_tile and OPERANDS[name].is_parameter else "mask"
        return [f"{name} = tl.load({name}_ptr + {read}, mask={mask}, other=0.0)"]

    def _stat(self, stat: Stat) -> str:
        return f"{stat.name} = {stat.after.format(self._fold(stat))}"

    def _fold(self, stat: Stat) -> str:
        return f"tl.{stat.fold}(tl.where(mask, {stat.value}, {stat.neutral}), axis={self._axis})"

    def _matmul(self, expression: str) -> list[str]:
        return [
            "k = tl.arange(0, BLOCK)[:, None]",
            "wide = tl.arange(0, WIDE)[None, :]",
            "w = tl.load(w_ptr + k * width + wide, mask=(k < cols) & (wide < width), other=0.0)",
            "x = tl.where(mask, x, 0.0)",
            f"x = {expression}",
            "cols, offs = width, wide",
            "mask = (row < rows) & (offs < cols)",
        ]

    def _loops(self) -> Iterator[str]:
        """Yield a loop for each statistic and one that stores, or, after a reduction, what is done with its value."""
        inside: list[str] = []
        is_reduced = False
        for step in self._part.steps:
            for stat in () if step.is_imagined else step.op.stats:
                folded = stat.joined.format(stat.name, self._fold(stat))
                yield f"{stat.name} = {stat.neutral}"
                yield from self._loop([*inside, f"{stat.name} = {folded}"])
                if stat.after != "{}":
                    yield f"{stat.name} = {stat.after.format(stat.name)}"
            if step.op.shape is Shape.TRANSPOSE:
                continue
            is_reduced = is_reduced or step.op.shape is Shape.REDUCE
            if is_reduced:
                yield from (_comment(step), f"x = {step.triton}")
            inside += [_comment(step), *self._operand(step), f"x = {step.triton}"]
        if is_reduced:
            yield self._store()
        else:
            yield from self._loop([*inside, self._store()])

    def _loop(self, inside: Sequence[str]) -> list[str]:
        lines = ["offs = start + tl.arange(0, BLOCK)", "mask = offs < cols", *self._load(), *inside]
        return ["for start in range(0, cols, BLOCK):", *(f"    {line}" for line in lines)]


def _comment(step: Step) -> str:
    """Return the line that tells which step of the reference follows."""
    return f"# {step.torch.removeprefix('x = ')}"
