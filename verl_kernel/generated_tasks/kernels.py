# SPDX-License-Identifier: Apache-2.0
"""Programs that answer a task: parts of the chain, each done by torch or by one Triton kernel in one of four styles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from verl_kernel.generated_tasks.chains import ChainStep, Program, Steps, named, torch_lines, value
from verl_kernel.generated_tasks.ops import OPERANDS, Shape, Stat

_LOOP_BLOCK, _FLAT_BLOCK, _TILE = 64, 256, 16
"""Columns that a loop takes at a time, elements of a flat program, rows of a tile."""
_LOOP_STATS = 2
"""Most statistics of a looping kernel: each takes a loop of its own."""
_IMPORTS = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""
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
class ChainPart:
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
        return next(index for index, step in enumerate(self.steps) if step.op.shape is Shape.TRANSPOSE)


def fused(steps: Steps) -> list[Steps]:
    """Return the steps of the fewest kernels that do a chain: a kernel that stores columns as rows ends there."""
    runs: list[Steps] = [()]
    for step in steps:
        if ChainPart(runs[-1]).turns_at_store and not step.is_plain:
            runs.append(())
        runs[-1] += (step,)
    return runs


def styles(steps: Steps) -> list[Style]:
    """Return the styles in which one kernel can do these steps."""
    part, fitting = ChainPart(steps), [Style.TILE]
    stats = [stat.name for step in steps for stat in step.op.stats]
    if not part.has(Shape.MATMUL):
        fitting.insert(0, Style.ROW)
    if all(step.op.shape is Shape.MAP for step in steps):
        fitting.append(Style.FLAT)
    if 0 < len(stats) == len({*stats}) <= _LOOP_STATS and not part.has(
        Shape.SCAN, Shape.MOVE, Shape.MATMUL, Shape.GATHER
    ):
        fitting.append(Style.LOOP)
    return fitting


def render(program: Program, parts: Sequence[ChainPart], dtype: str) -> str:
    """Return the source of an answer.

    Args:
        program: the task.
        parts: the whole chain, cut into parts.
        dtype: type of the output.
    """
    is_split = sum(part.style is not None for part in parts) > 1
    names = list(_NAMES) if is_split else ["fused_kernel" if len(parts) == 1 else "part_kernel"]
    lines: list[str] = []
    texts: list[str] = []
    steps_done = 0
    for part in parts:
        if part.style:
            name = names.pop(0)
            texts.append(kernel(part, name, steps_done))
            lines += launch(part, name, dtype if part is parts[-1] else "float32", steps_done)
        else:
            lines += torch_lines(part.steps, steps_done)
        steps_done += len(part.steps)
    lines.append(f"return {value(steps_done)}" + ("" if parts[-1].style else f".to(torch.{dtype})"))
    return module(program, texts, lines)


def module(program: Program, kernels: Sequence[str], forward: Sequence[str]) -> str:
    """Return a program from its kernels and the lines of `ModelNew.forward`."""
    body = "".join(f"        {line}\n" for line in forward)
    head = f"class ModelNew(nn.Module):\n{program.constructor}    def forward(self, {', '.join(program.tensors)}):\n"
    return "\n".join([_IMPORTS, *kernels, head + body])


def kernel(part: ChainPart, name: str, steps_done: int = 0) -> str:
    """Return the text of a part's kernel; `steps_done` steps of the chain precede it."""
    text = _Kernel(part, steps_done)
    return f"@triton.jit\ndef {name}({', '.join(text.parameters)}):\n" + "".join(f"    {line}\n" for line in text.lines)


def launch(part: ChainPart, name: str, dtype: str, steps_done: int = 0) -> list[str]:
    """Return the lines of `forward` that allocate a part's output and start its kernel."""
    text, source, result = _Kernel(part, steps_done), value(steps_done), value(steps_done + len(part.steps))
    cols = "1" if part.has(Shape.REDUCE) else "width" if part.has(Shape.MATMUL) else "cols"
    shape = f"({cols}, rows)" if part.turns_at_store else f"(rows, {cols})"
    if part.style is Style.FLAT:
        shape = f"{source}.shape"
    operands = [OPERANDS[operand].name_in_torch(operand) for operand in part.operands]
    allocated = f"{result} = torch.empty({shape}, device={source}.device, dtype=torch.{dtype})"
    arguments = ", ".join([source, *operands, result, *text.sizes, *text.blocks])
    return [*text.measured, allocated, f"{name}[({text.grid},)]({arguments})"]


class _Kernel:
    """The text of one kernel and of its launch."""

    def __init__(self, part: ChainPart, steps_done: int) -> None:
        assert part.style is not None
        self._part, self._style, self._steps_done = part, part.style, steps_done
        self._is_tile, self._is_flat = part.style is Style.TILE, part.style is Style.FLAT
        self._axis = "1, keep_dims=True" if self._is_tile else "0"
        self._col = "offs % cols" if self._is_flat else "offs"

    @property
    def parameters(self) -> list[str]:
        """Return the kernel's parameters."""
        pointers = [f"{value(self._steps_done)}_ptr", *(f"{name}_ptr" for name in self._part.operands), "out_ptr"]
        blocks = [f"{block.partition('=')[0]}: tl.constexpr" for block in self.blocks]
        return [*pointers, *self.sizes, *blocks]

    @property
    def sizes(self) -> list[str]:
        """Return the names of the sizes that the kernel takes."""
        part = self._part
        if self._is_flat:
            return ["n", "cols"] if self._reads_columns else ["n"]
        return ["rows", "cols", *(["width"] if part.has(Shape.MATMUL) else [])]

    @property
    def measured(self) -> list[str]:
        """Return the lines that take the sizes from the arguments."""
        part = self._part
        if self._is_flat:
            line = "n, cols = x.numel(), x.shape[1]" if self._reads_columns else "n = x.numel()"
            return [named(line, self._steps_done)]
        if part.has(Shape.GATHER):
            lines = ["rows, cols = index.shape[0], x.shape[1]"]
        else:
            lines = [f"{'cols, rows' if part.turns_at_load else 'rows, cols'} = {value(self._steps_done)}.shape"]
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
        if self._style is Style.LOOP:
            return ["row = tl.program_id(0)", *self._loops()]
        computed = [line for index, step in self._numbered for line in self._step(step, index)]
        return [*self._start(), *self._load(), *computed, self._store()]

    @property
    def _numbered(self) -> list[tuple[int, ChainStep]]:
        """Return the steps, each with the number of those of the chain before it."""
        return list(enumerate(self._part.steps, self._steps_done))

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
        offset = "offs" if self._is_flat else f"{row} * cols + offs"
        if self._part.turns_at_load:
            offset = "offs * rows + row"
        name = value(self._steps_done)
        return [*before, f"{name} = tl.load({name}_ptr + {offset}, mask=mask, other=0.0)"]

    def _store(self) -> str:
        result = value(self._steps_done + len(self._part.steps))
        if self._part.has(Shape.REDUCE):
            return f"tl.store(out_ptr + row, {result}{', mask=row < rows' if self._is_tile else ''})"
        offset = f"{self._col} * rows + row" if self._part.turns_at_store else self._offset
        return f"tl.store(out_ptr + {offset}, {result}, mask=mask)"

    @property
    def _offset(self) -> str:
        return "offs" if self._is_flat else f"row * cols + {self._col}"

    def _step(self, step: ChainStep, index: int) -> list[str]:
        expression = step.triton.replace("{axis}", self._axis[0])
        before, after = self._operand(step), list[str]()
        if step.op.shape is Shape.MATMUL:
            before, after = [named(line, index) for line in _PRODUCT[0]], _PRODUCT[1]
        elif step.op.shape is Shape.MOVE:
            before, self._col, expression = [f"col = {expression.replace('{col}', self._col)}"], "col", "x"
        stats = [line for stat in _stats(step) for line in self._stat(stat, index)]
        return [_comment(step, index), *before, *stats, _assignment(expression, index), *after]

    def _operand(self, step: ChainStep) -> list[str]:
        name = step.op.operand
        if step.op.shape is not Shape.MAP or not name:
            return []
        read = OPERANDS[name].read.format(col=self._col, offset=self._offset)
        mask = "offs < cols" if self._is_tile and OPERANDS[name].is_parameter else "mask"
        return [f"{name} = tl.load({name}_ptr + {read}, mask={mask}, other=0.0)"]

    def _stat(self, stat: Stat, index: int) -> list[str]:
        return [f"{stat.name} = {self._fold(stat, index)}", *_statistic_line(stat)]

    def _fold(self, stat: Stat, index: int) -> str:
        return f"tl.{stat.fold}(tl.where(mask, {named(stat.value, index)}, {stat.neutral}), axis={self._axis})"

    def _loops(self) -> Iterator[str]:
        """Yield a loop for each statistic and one that stores, or, after a reduction, what is done with its value."""
        inside: list[str] = []
        is_reduced = False
        for index, step in self._numbered:
            comment = [_comment(step, index)]
            for stat in _stats(step):
                yield from (*comment, f"{stat.name} = {stat.neutral}")
                yield from self._loop(
                    [*inside, f"{stat.name} = {stat.joined.format(stat.name, self._fold(stat, index))}"]
                )
                yield from _statistic_line(stat)
                comment, inside = [], [line for line in inside if not line.startswith("#")]
            is_reduced = is_reduced or step.op.shape is Shape.REDUCE
            if is_reduced:
                yield from (*comment, _assignment(step.triton, index))
            inside += [*comment, *self._operand(step), _assignment(step.triton, index)]
        if is_reduced:
            yield self._store()
        else:
            yield from self._loop([*inside, self._store()])

    def _loop(self, inside: Sequence[str]) -> list[str]:
        lines = ["offs = start + tl.arange(0, BLOCK)", "mask = offs < cols", *self._load(), *inside]
        return ["for start in range(0, cols, BLOCK):", *(f"    {line}" for line in lines)]


def _stats(step: ChainStep) -> tuple[Stat, ...]:
    return () if step.is_imagined else step.op.stats


def _statistic_line(stat: Stat) -> list[str]:
    """Return the line that turns a folded row into its statistic, if it is another one."""
    return [] if stat.after == "{}" else [f"{stat.name} = {stat.after.format(stat.name)}"]


def _assignment(expression: str, index: int) -> str:
    """Return the line that computes a step; one that only moves elements passes its value on."""
    return f"{value(index + 1)} = {named(expression or 'x', index)}"


def _comment(step: ChainStep, index: int) -> str:
    """Return the line that tells which step of the reference follows."""
    return f"# {torch_lines((step,), index)[0]}"


_PRODUCT = (
    [
        "k = tl.arange(0, BLOCK)[:, None]",
        "wide = tl.arange(0, WIDE)[None, :]",
        "w = tl.load(w_ptr + k * width + wide, mask=(k < cols) & (wide < width), other=0.0)",
        "x = tl.where(mask, x, 0.0)",
    ],
    ["cols, offs = width, wide", "mask = (row < rows) & (offs < cols)"],
)
"""Lines of a kernel before and after the product of `x` with `w`."""
