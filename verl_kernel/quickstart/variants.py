# SPDX-License-Identifier: Apache-2.0
"""Candidates for a task: the fused kernel and the typical mistakes of models.

A layout gives a correct candidate; a flaw edits the steps or the text of the fused one, like a model that forgets a
mask, confuses two operations or calls a function that Triton does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from verl_kernel.quickstart.kernels import Layout, layouts, module, render
from verl_kernel.quickstart.ops import MAPS, Step
from verl_kernel.quickstart.tasks import Program

_PADDING_COUNTS = ("layer", "softmax", "log_softmax")
"""Operations whose result zeros beyond the end of a row would change."""
LAZY_SHARE = 0.3
"""Coverage below which profiling-based rejection drops a kernel."""


class Kind(str, Enum):
    """The intended kind of a candidate."""

    FUSED = "fused"
    """One kernel holds every step."""
    PARTIAL = "partial"
    """Correct; some steps stay in torch."""
    LAZY = "lazy"
    """Correct; the kernel's share of the device kernels is below `LAZY_SHARE`."""
    WRONG = "wrong"
    """Runs and gives another result."""
    BROKEN = "broken"
    """Does not load, compile or launch."""
    DECOY = "decoy"
    """The result does not depend on a kernel."""


@dataclass(frozen=True)
class Variant:
    """A candidate program, with its kind and name."""

    kind: Kind
    flaw: str
    """Name of the layout or of the flaw, e.g. `dropped`."""
    source: str
    torch_ops: tuple[str, ...] = ()
    """Device kernels that torch launches in one forward, if the candidate is correct."""


# Wrong answers: each function takes the program and returns a source, or None if it would not be wrong.


def _mistaken(program: Program, rng: Random) -> str | None:
    index, step = rng.choice([(index, step) for index, step in enumerate(program.steps) if step.op.mistake])
    return _with_step(program, index, replace(step, name=step.op.mistake))


def _with_step(program: Program, index: int, *steps: Step) -> str:
    return render(program, Layout((), (*program.steps[:index], *steps, *program.steps[index + 1 :])))


def _dropped(program: Program, rng: Random) -> str | None:
    return _with_step(program, rng.choice([i for i, step in enumerate(program.steps) if step.name in MAPS]))


def _unmasked(program: Program, rng: Random) -> str | None:
    rows = [index for index, step in enumerate(program.steps) if "mask" in step.triton[0]]
    moved = rows and any(step.name == "shift" for step in program.steps[: rows[0]])
    if not rows or not (moved or program.steps[rows[0]].name in _PADDING_COUNTS):
        return None
    return re.sub(r"    x = tl\.where\(mask, x, .*\n", "", _fused(program))


def _padded_width(program: Program, rng: Random) -> str | None:
    return _fused(program).replace("/ cols", "/ BLOCK") if "/ cols" in _fused(program) else None


def _first_rows(program: Program, rng: Random) -> str | None:
    start = "tl.program_id(0) * 16 + "
    if start in _fused(program):
        return _fused(program).replace(start, "")
    return _fused(program).replace("x_ptr + row * cols + offs", "x_ptr + offs", 1)


def _fused(program: Program) -> str:
    return render(program, layouts(program)[0])


# Broken answers.


def _edited(old: str, new: str) -> Callable[[Program, Random], str | None]:
    return lambda program, rng: _fused(program).replace(old, new, 1)


def _invented(program: Program, rng: Random) -> str | None:
    index = rng.randrange(len(program.steps))
    return _with_step(program, index, replace(program.steps[index], is_invented=True))


def _no_block(program: Program, rng: Random) -> str | None:
    return re.sub(r", BLOCK=.*", ")", _fused(program))


# Decoys.


def _unused(program: Program, rng: Random) -> str | None:
    launched = render(program, Layout((), ()))
    return launched.removesuffix("        return out\n") + "".join(f"        {line}\n" for line in _torch(program))


def _never_launched(program: Program, rng: Random) -> str | None:
    source = _fused(program)
    kernel = source[source.index("@triton.jit") : source.index("\nclass ModelNew")]
    return module(program, kernel, _torch(program))


def _torch(program: Program) -> tuple[str, ...]:
    return (*(step.torch for step in program.steps), "return x")


Flaw = Callable[[Program, Random], "str | None"]
FLAWS: dict[Kind, dict[str, Flaw]] = {
    Kind.WRONG: {
        "mistaken": _mistaken,
        "dropped": _dropped,
        "unmasked": _unmasked,
        "padded_width": _padded_width,
        "first_rows": _first_rows,
    },
    Kind.BROKEN: {
        "missing_function": _invented,
        "undefined_name": _edited("    row = ", "    rows = "),
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
    kind = Kind.FUSED if layout.share == 1 else Kind.PARTIAL if layout.share >= LAZY_SHARE else Kind.LAZY
    name = "+".join(str(len(steps)) for steps in (layout.before, layout.inside, layout.after))
    return Variant(kind, name, render(program, layout), layout.torch_ops)
