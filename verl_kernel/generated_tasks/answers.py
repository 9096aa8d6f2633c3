# SPDX-License-Identifier: Apache-2.0
"""Answers to a task: right ones in several styles, decoys, and right ones with a flaw as models make them.

A flaw edits the steps or the text of a right answer. It is only offered where the gym would notice it: a changed step
must change the result, a missing mask must have something to hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from verl_kernel.generated_tasks.chains import (
    CONSTANTS,
    DTYPES,
    SHIFTS,
    ChainStep,
    Program,
    Steps,
    draw_constant,
    evaluate,
    is_other,
    launched,
    torch_lines,
    value,
)
from verl_kernel.generated_tasks.kernels import ChainPart, Style, fused, kernel, launch, module, render, styles
from verl_kernel.generated_tasks.kinds import LAZY_SHARE, Kind
from verl_kernel.generated_tasks.ops import EXISTING, OPS, Shape

_PADDING = 1.25
"""Smallest ratio of a block to the columns in it at which wrong treatment of the padding is clearly visible."""


@dataclass(frozen=True)
class Answer:
    """A program that answers a task."""

    program: Program
    kind: Kind
    name: str
    """How the work is shared, e.g. `torch1+row2`, or the name of a decoy or a flaw."""
    parts: tuple[ChainPart, ...]
    dtype: str
    """Type of the output."""
    source: str
    sound: Answer | None = None
    """The answer without its flaw; None if it has none."""

    @property
    def torch_ops(self) -> list[str]:
        """Return the ops that torch executes in one forward, apart from those that only allocate."""
        ops = [name for part in self.parts if not part.style for step in part.steps for name in launched(step)]
        is_cast = not self.parts[-1].style and self.dtype != "float32"
        return [*ops, *["_to_copy"] * is_cast]

    def fuses(self, families: Container[str]) -> bool:
        """Whether a kernel does a step of one of these families, or does it for show."""
        parts = [part for part in self.parts if part.style or not self.kernels]
        return any(step.op.family in families for part in parts for step in part.steps)

    @property
    def kernels(self) -> int:
        """Return the number of Triton kernels."""
        return sum(part.style is not None for part in self.parts)

    @property
    def share(self) -> float:
        """Return the Triton kernels' share of the device kernels of one forward."""
        return self.kernels / (self.kernels + len(self.torch_ops))

    @property
    def intent(self) -> Kind:
        """Return the kind that the answer has without its flaw, and in the right type."""
        if not self.kernels:
            return Kind.DECOY
        if all(part.style for part in self.parts):
            return Kind.FUSED
        return Kind.LAZY if self.share < LAZY_SHARE else Kind.PARTIAL


def right_answers(program: Program, dtype: str = "") -> list[Answer]:
    """Return all answers without a flaw; the first ones do every step in kernels.

    Args:
        program: the task.
        dtype: type of the output; the task's if empty. Answers of another one are of the kind `type`.
    """
    dtype = dtype or program.dtype
    return [_answer(program, parts, dtype) for parts in _layouts(program.steps)]


def _layouts(steps: Steps) -> Iterator[tuple[ChainPart, ...]]:
    """Yield the ways to share a chain between kernels and torch."""
    for style in styles(fused(steps)[0]):
        yield _parts(steps, style)
    for cut in range(1, len(steps)):
        before, after = steps[:cut], steps[cut:]
        if _computes(after):
            yield (ChainPart(before), *_parts(after))
        if _computes(before):
            yield (*_parts(before), ChainPart(after))
        middle, tail = steps[cut : cut + 1], steps[cut + 1 :]
        if ChainPart(middle).has(Shape.MATMUL) and tail and _computes(before) and _computes(tail):
            yield (*_parts(before), ChainPart(middle), *_parts(tail))


def _parts(steps: Steps, style: Style = Style.ROW) -> tuple[ChainPart, ...]:
    """Return the kernels that do these steps, in a style where it fits."""
    runs = [(run, styles(run)) for run in fused(steps)]
    return tuple(ChainPart(run, style if style in fitting else fitting[0]) for run, fitting in runs)


def _computes(steps: Steps) -> bool:
    return not all(step.op.shape in (Shape.MOVE, Shape.TRANSPOSE, Shape.GATHER) for step in steps)


def _answer(program: Program, parts: tuple[ChainPart, ...], dtype: str) -> Answer:
    name = "+".join(f"{part.style.value if part.style else 'torch'}{len(part.steps)}" for part in parts)
    answer = Answer(program, Kind.FUSED, name, parts, dtype, render(program, parts, dtype))
    return replace(answer, kind=answer.intent if dtype == program.dtype else Kind.TYPE)


def decoys(program: Program, dtype: str = "") -> list[Answer]:
    """Return the answers in which torch does everything, with a kernel for show."""
    dtype = dtype or program.dtype
    first = _parts(program.steps)[0]
    text, start = kernel(first, "fused_kernel"), launch(first, "fused_kernel", dtype)
    lines = [*torch_lines(program.steps), f"return {value(program.level)}.to(torch.{dtype})"]
    sources = {
        "unused_launch": module(program, [text], [*start, *lines]),
        "never_launched": module(program, [text], lines),
    }
    kind = Kind.DECOY if dtype == program.dtype else Kind.TYPE
    parts = (ChainPart(program.steps),)
    return [Answer(program, kind, name, parts, dtype, source) for name, source in sources.items()]


# Flaws: each takes an answer without one and returns a source, or None where the flaw would not be noticed.
Flaw = Callable[[Answer, Random], "str | None"]


def _changed(answer: Answer, number: int, index: int, new: Steps) -> str | None:
    """Return the source with other steps in place of one in a kernel; None if the result were the same."""
    part = answer.parts[number]
    inside = (*part.steps[:index], *new, *part.steps[index + 1 :])
    parts = (*answer.parts[:number], replace(part, steps=inside), *answer.parts[number + 1 :])
    whole = tuple(step for part in parts for step in part.steps)
    if not inside or part.style not in styles(inside) or len(fused(inside)) > 1 or evaluate(whole) is None:
        return None
    is_seen = any(step.is_imagined for step in new) or is_other(answer.program.steps, whole)
    return render(answer.program, parts, answer.dtype) if is_seen else None


def _step(variants: Callable[[ChainStep, Random], Iterable[Steps]]) -> Flaw:
    """Return the flaw that puts other steps in place of one that a kernel does."""

    def edit(answer: Answer, rng: Random) -> str | None:
        changes = [
            (number, index, new)
            for number, part in enumerate(answer.parts)
            for index, step in enumerate(part.steps if part.style else ())
            for new in variants(step, rng)
        ]
        rng.shuffle(changes)
        return next(filter(None, (_changed(answer, *change) for change in changes)), None)

    return edit


def _mistaken(step: ChainStep, rng: Random) -> Iterator[Steps]:
    for name, op in OPS.items():
        if name != step.name and (op.family, op.shape, op.operand) == (step.op.family, step.op.shape, step.op.operand):
            yield (replace(step, name=name, a=step.a or draw_constant(op, rng)),)


def _constants(step: ChainStep, rng: Random) -> list[Steps]:
    alternatives = SHIFTS if step.op.shape is Shape.MOVE else CONSTANTS
    return [(replace(step, a=a),) for a in alternatives if step.a not in ("", a)]


def _dropped(step: ChainStep, rng: Random) -> list[Steps]:
    return [()] if step.op.shape in (Shape.MAP, Shape.ROW) else []


def _imagined(step: ChainStep, rng: Random) -> list[Steps]:
    can = step.op.shape in (Shape.MAP, Shape.ROW, Shape.REDUCE) and not step.op.operand and step.name not in EXISTING
    return [(replace(step, is_imagined=True),)] if can else []


def _text(pattern: str, new: str, fits: Callable[[Answer], bool] = lambda answer: True, count: int = 1) -> Flaw:
    """Return the flaw that replaces a pattern in answers that fit."""

    def edit(answer: Answer, rng: Random) -> str | None:
        edited = re.sub(pattern, new, answer.source, count=count)
        return edited if edited != answer.source and fits(answer) else None

    return edit


def _pads(answer: Answer) -> bool:
    """Whether the first part is a kernel whose blocks are clearly wider than the rows that they hold."""
    part, (rows, cols, _) = answer.parts[0], answer.program.shape
    if part.style not in (Style.ROW, Style.TILE) or part.has(Shape.MATMUL):
        return False
    cols = rows if part.turns_at_load else cols
    return float(1 << (cols - 1).bit_length()) / cols >= _PADDING


def _overhangs(answer: Answer) -> bool:
    """Whether the one part is a kernel whose last program has lanes beyond the end of its tensors."""
    part, (rows, cols, _) = answer.parts[0], answer.program.shape
    if len(answer.parts) > 1 or part.has(Shape.MATMUL, Shape.TRANSPOSE, Shape.MOVE, Shape.GATHER):
        return False
    return bool(rows * cols % 256 if part.style is Style.FLAT else cols % 64)


FLAWS: dict[str, tuple[Kind, Flaw]] = {
    "mistaken_step": (Kind.WRONG, _step(_mistaken)),
    "wrong_constant": (Kind.WRONG, _step(_constants)),
    "dropped_step": (Kind.WRONG, _step(_dropped)),
    "padded_size": (Kind.WRONG, _text(r"((power|size) = .*) / cols", r"\1 / BLOCK", _pads)),
    "unmasked_sum": (Kind.WRONG, _text(r"tl\.where\(mask, (tl\.exp\([^,]*\)), 0\.0\)", r"\1", _pads)),
    "unmasked_load": (Kind.OUTSIDE, _text(r"(x = tl\.load\(.*), mask=mask, other=0\.0\)", r"\1)", _overhangs)),
    "unmasked_store": (Kind.OUTSIDE, _text(r"(tl\.store\(.*), mask=mask\)", r"\1)", _overhangs)),
    "imagined_function": (Kind.BROKEN, _step(_imagined)),
    "missing_argument": (Kind.BROKEN, _text(r"(?m), BLOCK=.*\)$", ")")),
    "undefined_name": (Kind.BROKEN, _text("mask = ", "masks = ", count=0)),
    "missing_import": (Kind.BROKEN, _text(r"import triton\.language as tl\n", "")),
    "syntax": (Kind.BROKEN, _text(r"class ModelNew\(nn\.Module\):", "class ModelNew(nn.Module)")),
}
"""Maps a flaw to what it makes of an answer, and to the edit."""


def with_flaw(answer: Answer, flaw: str, rng: Random) -> Answer | None:
    """Return a right answer with a flaw; None where the flaw would not be noticed."""
    kind, edit = FLAWS[flaw]
    source = edit(answer, rng)
    return None if source is None else replace(answer, kind=kind, name=flaw, source=source, sound=answer)


def all_answers(program: Program, rng: Random) -> list[Answer]:
    """Return every right answer, every decoy, a fused answer of another type, and one with each flaw that fits."""
    right = right_answers(program)
    other_dtype = next(dtype for dtype in DTYPES if dtype != program.dtype)
    answers = [
        *right,
        *decoys(program),
        replace(right_answers(program, other_dtype)[0], name="other_type", sound=right[0]),
    ]
    for flaw in FLAWS:
        flawed = (with_flaw(answer, flaw, rng) for answer in rng.sample(right, len(right)))
        answers += [answer for answer in flawed if answer][:1]
    return answers
