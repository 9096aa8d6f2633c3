# SPDX-License-Identifier: Apache-2.0
"""Answers to a task of the hard world: one kernel for some steps of the chain, and the typical mistakes of models.

Each program of a kernel takes one row. All answers share the order of their lines, so a small model learns them once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from verl_kernel.quickstart.hard.ops import MAPS, Step
from verl_kernel.quickstart.hard.tasks import DTYPES, Program

Steps = tuple[Step, ...]
_IMPORTS = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"
_KERNEL_PASSES = 2.0
"""A kernel reads its rows once and writes them once."""


class Extent(str, Enum):
    """How much of the chain the kernel does."""

    FULL = "full"
    """All steps."""
    PARTIAL = "partial"
    """The kernel saves more than half of the memory passes that a kernel can save."""
    LAZY = "lazy"
    """The kernel saves less, and torch does the rest."""
    DECOY = "decoy"
    """A kernel is launched and its result discarded; torch does everything, by its shortest ops."""


@dataclass(frozen=True)
class Layout:
    """The place of each step of a program: in the kernel, or in torch before or after it."""

    before: Steps
    inside: Steps
    after: Steps = ()
    is_decoy: bool = False

    @property
    def saved(self) -> float:
        """Return the memory passes that the kernel saves."""
        return sum(step.op.passes for step in self.inside) - _KERNEL_PASSES

    @property
    def extent(self) -> Extent:
        """Return the extent of the layout."""
        if self.is_decoy:
            return Extent.DECOY
        if not self.before + self.after:
            return Extent.FULL
        whole = sum(step.op.passes for step in self.before + self.inside + self.after) - _KERNEL_PASSES
        return Extent.PARTIAL if self.saved > 0.5 * whole else Extent.LAZY


@dataclass(frozen=True)
class Answer:
    """An answer: a layout, the type of its output, and its flaw."""

    program: Program
    layout: Layout
    dtype: str
    flaw: str = ""
    """A key of `FLAWS`; empty if the answer has no flaw."""
    flawed: str = ""
    """The source with its flaw."""

    @property
    def source(self) -> str:
        """Return the source text."""
        return self.flawed or render(self.program, self.layout, self.dtype)

    @property
    def outcome(self) -> str:
        """Return the intended verdict: `ok`, `decoy`, `form` (only the type is wrong), or that of its flaw."""
        if self.flaw:
            return FLAWS[self.flaw][0]
        if self.dtype != self.program.dtype:
            return "form"
        return "decoy" if self.layout.is_decoy else "ok"


def layouts(program: Program) -> list[Layout]:
    """Return every way to give a run of the chain's steps to a kernel that saves a pass; the first is the full one."""
    steps, found = program.steps, [Layout((), program.steps)]
    for start in range(len(steps)):
        for end in range(start + 1, len(steps) + 1):
            layout = Layout(steps[:start], steps[start:end], steps[end:])
            if (start, end) != (0, len(steps)) and layout.saved > 0:
                found.append(layout)
    return found


def render(program: Program, layout: Layout, dtype: str) -> str:
    """Return the source of an answer without a flaw."""
    if layout.is_decoy:
        return _decoy(program, dtype)
    lines = [*program.head, *_torch(layout.before), *_launch(program, layout, dtype)]
    if layout.after or program.tail:
        lines += ["x = out", *_torch(layout.after), *program.tail, f"return {_cast('x', dtype)}"]
    else:
        lines.append("return out")
    return _module(program, _kernel(layout.inside), lines)


def decoy(program: Program, dtype: str) -> Answer:
    """Return the answer whose kernel has no effect on the result."""
    return Answer(program, Layout((), (), program.steps, is_decoy=True), dtype)


def with_flaw(answer: Answer, rng: Random) -> Answer | None:
    """Return an answer with a random flaw that fits its kernel; None where none does."""
    names = [name for name in FLAWS if name != "unpadded" or _needs_padding(answer.layout)]
    flaw = rng.choice(names)
    flawed = FLAWS[flaw][1](answer, rng)
    return None if flawed is None else replace(answer, flaw=flaw, flawed=flawed)


def _decoy(program: Program, dtype: str) -> str:
    lines = [*program.head, "out = x.new_zeros(16)", "copy_kernel[(1,)](out, out, 16, BLOCK=16)"]
    lines += [line for step in program.steps for line in step.builtin]
    return _module(program, _kernel(()), [*lines, *program.tail, f"return {_cast('x', dtype)}"])


def _module(program: Program, kernel: str, forward: list[str]) -> str:
    body = "".join(f"        {line}\n" for line in forward)
    return (
        f"{_IMPORTS}{kernel}\nclass ModelNew(nn.Module):\n    def forward(self, {', '.join(program.inputs)}):\n{body}"
    )


def _cast(name: str, dtype: str) -> str:
    return f"{name}.to(torch.{dtype})"


def _torch(steps: Steps) -> list[str]:
    return [line for step in steps for line in step.torch]


def _kernel(steps: Steps) -> str:
    reduces = any(step.op.reduces for step in steps)
    store = "tl.store(out_ptr + row, x)" if reduces else "tl.store(out_ptr + row * cols + offs, x, mask=mask)"
    lines = (
        "row = tl.program_id(0)",
        "offs = tl.arange(0, BLOCK)",
        "mask = offs < cols",
        "x = tl.load(x_ptr + row * cols + offs, mask=mask, other=0.0)",
        *(line for step in steps for line in step.triton),
        store,
    )
    name = "row_kernel" if steps else "copy_kernel"
    body = "".join(f"    {line}\n" for line in lines)
    return f"@triton.jit\ndef {name}(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):\n{body}"


def _launch(program: Program, layout: Layout, dtype: str) -> tuple[str, ...]:
    is_last = not (layout.after or program.tail)
    own = f"dtype=torch.{dtype}" if is_last else "dtype=x.dtype"
    reduces = any(step.op.reduces for step in layout.inside)
    return (
        "cols = x.shape[-1]",
        f"out = torch.empty_like(x[..., :1], {own})" if reduces else f"out = torch.empty_like(x, {own})",
        "row_kernel[(x.numel() // cols,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), num_warps=32)",
    )


# Flaws: each function takes an answer and returns a source, or None if the flaw would change nothing.


def _step_changed(answer: Answer, index: int, *steps: Step) -> str:
    layout = answer.layout
    inside = (*layout.inside[:index], *steps, *layout.inside[index + 1 :])
    return render(answer.program, replace(layout, inside=inside), answer.dtype)


def _mistaken(answer: Answer, rng: Random) -> str | None:
    inside = answer.layout.inside
    index = rng.randrange(len(inside))
    step = replace(inside[index], name=inside[index].op.mistake)
    return _step_changed(answer, index, replace(step, a=step.a or "0.5"))


def _dropped(answer: Answer, rng: Random) -> str | None:
    inside = answer.layout.inside
    maps = [index for index, step in enumerate(inside) if step.name in MAPS]
    return _step_changed(answer, rng.choice(maps)) if maps and len(inside) > 1 else None


def _invented(answer: Answer, rng: Random) -> str | None:
    index = rng.randrange(len(answer.layout.inside))
    return _step_changed(answer, index, replace(answer.layout.inside[index], is_invented=True))


def _edited(old: str, new: str) -> Callable[[Answer, Random], str | None]:
    def edit(answer: Answer, rng: Random) -> str | None:
        source = render(answer.program, answer.layout, answer.dtype)
        return source.replace(old, new, 1) if old in source else None

    return edit


def _unpadded(answer: Answer, rng: Random) -> str | None:
    source = render(answer.program, answer.layout, answer.dtype)
    return re.sub(r"    x = tl\.where\(mask, x, .*\n", "", source)


def _needs_padding(layout: Layout) -> bool:
    """Whether zeros beyond the end of a row would change a result."""
    return any(step.name in ("softmax", "log_softmax", "layer", "max") for step in layout.inside)


FLAWS: dict[str, tuple[str, Callable[[Answer, Random], str | None]]] = {
    "mistaken": ("wrong", _mistaken),
    "dropped": ("wrong", _dropped),
    "unpadded": ("wrong", _unpadded),
    "missing_function": ("broken", _invented),
    "missing_argument": ("broken", _edited("BLOCK=triton.next_power_of_2(cols), ", "")),
    "undefined_name": ("broken", _edited("    row = ", "    rows = ")),
    "unmasked_load": ("outside", _edited("offs, mask=mask, other=0.0)", "offs)")),
    "unmasked_store": ("outside", _edited("offs, x, mask=mask)", "offs, x)")),
}
"""Maps a flaw to the kind of its verdict and to the edit that makes it."""


def other(dtype: str) -> str:
    """Return the other type that an output can have."""
    return next(name for name in DTYPES if name != dtype)
