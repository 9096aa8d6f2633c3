# SPDX-License-Identifier: Apache-2.0
"""Candidate programs for a task: one correct fused kernel and the ways in which models miss it.

Every program is complete (`class ModelNew` and what it needs). A layout says which steps run in torch
before and after the kernel and which run inside it; a flaw edits the steps or the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from verl_kernel.data.tasks import OPS, REDUCTIONS, Program, Step, draw_constant, uses_y

Steps = tuple[Step, ...]
_MOVES_ZERO = ("shift", "sub", "sigmoid", "exp")
_IMPORTS = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"


class Kind(str, Enum):
    """What a candidate is meant to be."""

    FUSED = "fused"
    """One kernel holds every step."""
    PARTIAL = "partial"
    """Correct; some steps stay in torch."""
    LAZY = "lazy"
    """Correct; the kernel holds at most a third of the device kernels."""
    WRONG = "wrong"
    """Runs and gives another result."""
    BROKEN = "broken"
    """Does not load, compile or launch."""
    DECOY = "decoy"
    """The result does not depend on a kernel."""


@dataclass(frozen=True)
class Layout:
    """Where each step of a program runs."""

    before: Steps
    inside: Steps
    after: Steps
    copied: bool = False
    """Whether the kernel only copies what `before` computed."""

    @property
    def torch_ops(self) -> tuple[str, ...]:
        """Device kernels of one forward that torch launches."""
        return tuple(name for step in self.before + self.after for name in OPS[step.name].aten)

    @property
    def share(self) -> float:
        """The kernel's share of the device kernels of one forward."""
        return 1 / (1 + len(self.torch_ops))


@dataclass(frozen=True)
class Variant:
    """A candidate program and what it is."""

    kind: Kind
    flaw: str
    """Name of the layout or of the flaw, e.g. `constant`."""
    source: str
    torch_ops: tuple[str, ...] = ()
    """Device kernels of one forward that torch launches, where the candidate is correct."""


def layouts(program: Program) -> list[Layout]:
    """List every split of a program around one kernel; the first one is fully fused."""
    steps = program.steps
    splits = [Layout((), steps, ())]
    for cut in range(1, len(steps)):
        splits.append(Layout(steps[:cut], steps[cut:], ()))
        splits.append(Layout((), steps[:cut], steps[cut:]))
    return [*splits, Layout(steps, (), (), copied=True)]


def render(program: Program, layout: Layout, block: int = 512) -> str:
    """Return the source of a candidate."""
    kernel, launch = (_row if layout.inside and layout.inside[-1].name in REDUCTIONS else _flat)(layout, block)
    lines = [f"x = {step.torch('x')}" for step in layout.before] + launch
    lines += [f"out = {step.torch('out')}" for step in layout.after] + ["return out"]
    body = "".join(f"        {line}\n" for line in lines)
    return f"{_IMPORTS}{kernel}\nclass ModelNew(nn.Module):\n    def forward(self, {program.inputs}):\n{body}"


def _kernel_name(layout: Layout) -> str:
    if layout.copied:
        return "copy_kernel"
    return "part_kernel" if layout.before + layout.after else "fused_kernel"


def _kernel(name: str, inputs: list[str], size: str, lines: list[str]) -> str:
    pointers = ", ".join(f"{tensor}_ptr" for tensor in [*inputs, "out"])
    body = "".join(f"    {line}\n" for line in lines)
    return f"@triton.jit\ndef {name}({pointers}, {size}, BLOCK: tl.constexpr):\n{body}"


def _flat(layout: Layout, block: int) -> tuple[str, list[str]]:
    name, inputs = _kernel_name(layout), ["x", "y"] if uses_y(layout.inside) else ["x"]
    lines = ["offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "mask = offs < n"]
    lines += [f"{tensor} = tl.load({tensor}_ptr + offs, mask=mask)" for tensor in inputs]
    lines += [f"x = {step.triton('x')}" for step in layout.inside]
    lines += ["tl.store(out_ptr + offs, x, mask=mask)"]
    launch = [
        "n = x.numel()",
        "out = torch.empty_like(x)",
        f"{name}[(triton.cdiv(n, {block}),)]({', '.join(inputs)}, out, n, BLOCK={block})",
    ]
    return _kernel(name, inputs, "n", lines), launch


def _row(layout: Layout, block: int) -> tuple[str, list[str]]:
    name, (*head, last) = _kernel_name(layout), layout.inside
    lines = ["row = tl.program_id(0)", "offs = tl.arange(0, BLOCK)", "mask = offs < cols"]
    lines += ["x = tl.load(x_ptr + row * cols + offs, mask=mask, other=0.0)"]
    lines += [f"x = {step.triton('x')}" for step in head]
    lines += [f"x = tl.where(mask, x, {'0.0' if last.name == 'sum' else '-1e9'})"]
    if last.name == "softmax":
        lines += ["x = tl.exp(x - tl.max(x, axis=0))", f"x = {last.triton('x')}"]
        lines += ["tl.store(out_ptr + row * cols + offs, x, mask=mask)"]
    else:
        lines += [f"tl.store(out_ptr + row, {last.triton('x')})"]
    launch = [
        "rows, cols = x.shape",
        f"out = {'torch.empty_like(x)' if last.name == 'softmax' else 'x.new_empty(rows)'}",
        f"{name}[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))",
    ]
    return _kernel(name, ["x"], "cols", lines), launch


# Wrong answers: each takes the program and returns a source, or None where it would not be wrong.


def _constant(program: Program, rng: Random) -> str | None:
    places = [index for index, step in enumerate(program.steps) if step.a]
    index = rng.choice(places)
    step = program.steps[index]
    other = replace(step, a=draw_constant(rng, other_than=step.a))
    return _with_step(program, index, other)


def _mistaken(program: Program, rng: Random) -> str | None:
    index = rng.randrange(len(program.steps) - program.is_row)
    step = program.steps[index]
    return _with_step(program, index, replace(step, name=OPS[step.name].mistake, a=step.a or "0.5"))


def _with_step(program: Program, index: int, step: Step) -> str:
    steps = (*program.steps[:index], step, *program.steps[index + 1 :])
    return render(program, Layout((), steps, ()))


def _dropped(program: Program, rng: Random) -> str | None:
    index = rng.randrange(len(program.steps) - program.is_row)
    return render(program, Layout((), (*program.steps[:index], *program.steps[index + 1 :]), ()))


def _reordered(program: Program, rng: Random) -> str | None:
    first, second, *rest = program.steps
    kinds = ({"scale", "div"}, {"shift", "sub"})
    if not any(first.name in kind and second.name in other for kind, other in (kinds, kinds[::-1])):
        return None
    return render(program, Layout((), (second, first, *rest), ()))


def _tail(program: Program, rng: Random) -> str | None:
    if program.is_row or program.shape[0] * program.shape[1] % 512 == 0:
        return None
    return render(program, layouts(program)[0]).replace("triton.cdiv(n, 512)", "n // 512")


def _unmasked(program: Program, rng: Random) -> str | None:
    *_, before, last = program.steps
    padding_counts = any(step.name in _MOVES_ZERO for step in program.steps) or last.name == "softmax"
    if last.name not in ("sum", "softmax") or not padding_counts:
        return None
    filler = "0.0" if last.name == "sum" else "-1e9"
    return render(program, layouts(program)[0]).replace(f"    x = tl.where(mask, x, {filler})\n", "")


# Broken answers.


def _edited(old: str, new: str) -> Callable[[Program, Random], str | None]:
    def edit(program: Program, rng: Random) -> str | None:
        return render(program, layouts(program)[0]).replace(old, new, 1)

    return edit


def _missing(program: Program, rng: Random) -> str | None:
    step = rng.choice(program.steps)
    return render(program, layouts(program)[0]).replace(step.triton("x"), step.missing("x"), 1)


def _no_block(program: Program, rng: Random) -> str | None:
    source = render(program, layouts(program)[0])
    start = source.index(", BLOCK=")
    return source[:start] + source[source.index("\n", start) - 1 :]


# Decoys.


def _unused(program: Program, rng: Random) -> str | None:
    split = rng.choice([layout for layout in layouts(program) if not layout.before or layout.copied])
    source = render(program, Layout((), () if split.copied else split.inside, (), copied=split.copied))
    return _returning_torch(program, source)


def _never_launched(program: Program, rng: Random) -> str | None:
    source = render(program, layouts(program)[0])
    return _returning_torch(program, source[: source.index("):\n        ", source.index("ModelNew")) + 3])


def _returning_torch(program: Program, source: str) -> str:
    lines = [f"x = {step.torch('x')}" for step in program.steps] + ["return x"]
    return source.removesuffix("        return out\n") + "".join(f"        {line}\n" for line in lines)


Flaw = Callable[[Program, Random], "str | None"]
FLAWS: dict[Kind, dict[str, Flaw]] = {
    Kind.WRONG: {
        "constant": _constant,
        "mistaken": _mistaken,
        "dropped": _dropped,
        "reordered": _reordered,
        "tail": _tail,
        "unmasked": _unmasked,
    },
    Kind.BROKEN: {
        "undefined_name": _edited("mask = offs", "msk = offs"),
        "missing_function": _missing,
        "syntax": _edited("class ModelNew(nn.Module):", "class ModelNew(nn.Module)"),
        "missing_import": _edited("import triton.language as tl\n", ""),
        "missing_argument": _no_block,
    },
    Kind.DECOY: {"unused_launch": _unused, "never_launched": _never_launched},
}


def variants(program: Program, rng: Random) -> list[Variant]:
    """Return one candidate of every applicable layout and flaw."""
    found = [_correct(program, layout) for layout in layouts(program)]
    for kind, flaws in FLAWS.items():
        for name, flaw in flaws.items():
            source = flaw(program, rng)
            if source is not None:
                found.append(Variant(kind, name, source))
    return found


def _correct(program: Program, layout: Layout) -> Variant:
    kind = Kind.FUSED if layout.share == 1 else Kind.PARTIAL if layout.share >= 0.4 else Kind.LAZY
    name = "copied" if layout.copied else f"{len(layout.before)}+{len(layout.inside)}+{len(layout.after)}"
    return Variant(kind, name, render(program, layout), layout.torch_ops)
