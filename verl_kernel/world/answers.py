# SPDX-License-Identifier: Apache-2.0
"""Answers to a task: right ones in several styles, decoys, and right ones with a flaw as models make them.

A flaw edits the steps or the text of a right answer. It is only offered where the gym would notice it: a changed step
must change the result, a missing mask must have something to hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from verl_kernel.world.chains import (
    CONSTANTS,
    DTYPES,
    SHIFTS,
    Program,
    Step,
    Steps,
    draw_constant,
    evaluate,
    is_other,
    launched,
)
from verl_kernel.world.kernels import Part, Style, fused, kernel, launch, module, render, styles
from verl_kernel.world.ops import EXISTING, OPS, Shape

LAZY_SHARE = 0.3
"""Coverage below which profiling-based rejection drops a kernel."""
_PADDING = 1.25
"""Smallest ratio of a block to the columns in it at which wrong treatment of the padding is clearly visible."""


class Kind(str, Enum):
    """What the gym is expected to say of an answer."""

    FUSED = "fused"
    """Right; torch does none of the steps."""
    PARTIAL = "partial"
    """Right; torch does some steps."""
    LAZY = "lazy"
    """Right; the kernels' share of the device kernels is below `LAZY_SHARE`."""
    DECOY = "decoy"
    """The result does not depend on a kernel."""
    WRONG = "wrong"
    """Another result."""
    TYPE = "type"
    """The right values in another type."""
    OUTSIDE = "outside"
    """Memory outside of the tensors is read or written."""
    BROKEN = "broken"
    """Refused by its text, or does not compile or launch."""


RIGHT = (Kind.FUSED, Kind.PARTIAL, Kind.LAZY)


@dataclass(frozen=True)
class Answer:
    """A program that answers a task."""

    program: Program
    kind: Kind
    name: str
    """How the work is shared, e.g. `torch1+row2`, or the name of a decoy or a flaw."""
    parts: tuple[Part, ...]
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


def _layouts(steps: Steps) -> Iterator[tuple[Part, ...]]:
    """Yield the ways to share a chain between kernels and torch."""
    for style in styles(fused(steps)[0]):
        yield _parts(steps, style)
    for cut in range(1, len(steps)):
        before, after = steps[:cut], steps[cut:]
        if _computes(after):
            yield (Part(before), *_parts(after))
        if _computes(before):
            yield (*_parts(before), Part(after))
        middle, rest = steps[cut : cut + 1], steps[cut + 1 :]
        if Part(middle).has(Shape.MATMUL) and rest and _computes(before) and _computes(rest):
            yield (*_parts(before), Part(middle), *_parts(rest))


def _parts(steps: Steps, style: Style = Style.ROW) -> tuple[Part, ...]:
    """Return the kernels that do these steps, in a style where it fits."""
    runs = [(run, styles(run)) for run in fused(steps)]
    return tuple(Part(run, style if style in fitting else fitting[0]) for run, fitting in runs)


def _computes(steps: Steps) -> bool:
    return not all(step.op.shape in (Shape.MOVE, Shape.TRANSPOSE, Shape.GATHER) for step in steps)


def _answer(program: Program, parts: tuple[Part, ...], dtype: str) -> Answer:
    name = "+".join(f"{part.style.value if part.style else 'torch'}{len(part.steps)}" for part in parts)
    answer = Answer(program, Kind.FUSED, name, parts, dtype, render(program, parts, dtype))
    return replace(answer, kind=answer.intent if dtype == program.dtype else Kind.TYPE)


def decoys(program: Program, dtype: str = "") -> list[Answer]:
    """Return the answers in which torch does everything, with a kernel for show."""
    dtype = dtype or program.dtype
    first = _parts(program.steps)[0]
    text, start = kernel(first, "fused_kernel"), launch(first, "fused_kernel", dtype)
    lines = [*(step.torch for step in program.steps), f"return x.to(torch.{dtype})"]
    sources = {
        "unused_launch": module(program, [text], [*start, *lines]),
        "never_launched": module(program, [text], lines),
    }
    kind = Kind.DECOY if dtype == program.dtype else Kind.TYPE
    parts = (Part(program.steps),)
    return [Answer(program, kind, name, parts, dtype, source) for name, source in sources.items()]


# Flaws: each function takes an answer without one and returns a source, or None where the flaw would not be noticed.


def _changed(answer: Answer, place: tuple[int, int], *steps: Step) -> str | None:
    """Return the source with other steps in a kernel, at part and step `place`; None if the result were the same."""
    number, index = place
    part = answer.parts[number]
    inside = (*part.steps[:index], *steps, *part.steps[index + 1 :])
    parts = (*answer.parts[:number], replace(part, steps=inside), *answer.parts[number + 1 :])
    whole = tuple(step for part in parts for step in part.steps)
    if not inside or part.style not in styles(inside) or len(fused(inside)) > 1:
        return None
    if evaluate(whole) is None or not is_other(answer.program.steps, whole):
        return None
    return render(answer.program, parts, answer.dtype)


def _places(answer: Answer) -> Iterator[tuple[tuple[int, int], Step]]:
    """Yield the steps in kernels, each with its part and its index there."""
    for number, part in enumerate(answer.parts):
        if part.style:
            yield from (((number, index), step) for index, step in enumerate(part.steps))


def _first(sources: Iterator[str | None]) -> str | None:
    return next((source for source in sources if source), None)


def _mistaken(answer: Answer, rng: Random) -> str | None:
    changes = [
        (place, replace(step, name=name, a=step.a or draw_constant(op, rng)))
        for place, step in _places(answer)
        for name, op in OPS.items()
        if name != step.name and (op.family, op.shape, op.operand) == (step.op.family, step.op.shape, step.op.operand)
    ]
    rng.shuffle(changes)
    return _first(_changed(answer, place, step) for place, step in changes)


def _constant(answer: Answer, rng: Random) -> str | None:
    changes = [
        (place, replace(step, a=a))
        for place, step in _places(answer)
        for a in (SHIFTS if step.op.shape is Shape.MOVE else CONSTANTS)
        if step.a not in ("", a)
    ]
    rng.shuffle(changes)
    return _first(_changed(answer, place, step) for place, step in changes)


def _dropped(answer: Answer, rng: Random) -> str | None:
    places = [place for place, step in _places(answer) if step.op.shape in (Shape.MAP, Shape.ROW)]
    rng.shuffle(places)
    return _first(_changed(answer, place) for place in places)


def _imagined(answer: Answer, rng: Random) -> str | None:
    places = [
        (number, index)
        for (number, index), step in _places(answer)
        if step.op.shape in (Shape.MAP, Shape.ROW, Shape.REDUCE) and not step.op.operand and step.name not in EXISTING
    ]
    if not places:
        return None
    number, index = rng.choice(places)
    part = answer.parts[number]
    steps = (*part.steps[:index], replace(part.steps[index], is_imagined=True), *part.steps[index + 1 :])
    parts = (*answer.parts[:number], replace(part, steps=steps), *answer.parts[number + 1 :])
    return render(answer.program, parts, answer.dtype)


def _padded_size(answer: Answer, rng: Random) -> str | None:
    part = answer.parts[0]
    is_seen = any(step.name in ("rms_norm", "l1_norm", "mean") for step in part.steps) and not part.has(Shape.MATMUL)
    if not is_seen or part.style not in (Style.ROW, Style.TILE) or _padding(answer) < _PADDING:
        return None
    return answer.source.replace("/ cols", "/ BLOCK")


def _unmasked_sum(answer: Answer, rng: Random) -> str | None:
    part = answer.parts[0]
    if part.style not in (Style.ROW, Style.TILE) or part.has(Shape.MATMUL) or _padding(answer) < _PADDING:
        return None
    return _replaced(answer.source, r"tl\.where\(mask, (tl\.exp\([^,]*\)), 0\.0\)", r"\1")


def _unmasked(pattern: str, text: str) -> Callable[[Answer, Random], str | None]:
    def edit(answer: Answer, rng: Random) -> str | None:
        first, last = answer.parts[0], answer.parts[-1]
        part = first if "load" in pattern else last
        if part.style is None or first.has(Shape.GATHER) or not _overhangs(answer, part):
            return None
        return _replaced(answer.source, pattern, text)

    return edit


def _overhangs(answer: Answer, part: Part) -> bool:
    """Whether a kernel's last program has lanes beyond the end of its tensors."""
    rows, cols, _ = answer.program.shape
    if part.style is Style.FLAT:
        return bool(rows * cols % 256)
    return not part.has(Shape.MATMUL, Shape.TRANSPOSE, Shape.MOVE) and len(answer.parts) == 1 and bool(cols % 64)


def _padding(answer: Answer) -> float:
    """Return the ratio of a row's block to the columns in it."""
    part = answer.parts[0]
    cols = answer.program.shape[0 if part.style and part.turns_at_load else 1]
    return float(1 << (cols - 1).bit_length()) / cols


def _replaced(source: str, pattern: str, text: str) -> str | None:
    edited = re.sub(pattern, text, source, count=1)
    return edited if edited != source else None


def _edited(pattern: str, text: str) -> Callable[[Answer, Random], str | None]:
    return lambda answer, rng: _replaced(answer.source, pattern, text)


Flaw = Callable[[Answer, Random], "str | None"]
FLAWS: dict[str, tuple[Kind, Flaw]] = {
    "mistaken_step": (Kind.WRONG, _mistaken),
    "wrong_constant": (Kind.WRONG, _constant),
    "dropped_step": (Kind.WRONG, _dropped),
    "padded_size": (Kind.WRONG, _padded_size),
    "unmasked_sum": (Kind.WRONG, _unmasked_sum),
    "unmasked_load": (Kind.OUTSIDE, _unmasked(r"(x = tl\.load\(.*), mask=mask, other=0\.0\)", r"\1)")),
    "unmasked_store": (Kind.OUTSIDE, _unmasked(r"(tl\.store\(.*), mask=mask\)", r"\1)")),
    "imagined_function": (Kind.BROKEN, _imagined),
    "missing_argument": (Kind.BROKEN, _edited(r"(?m), BLOCK=.*\)$", ")")),
    "undefined_name": (Kind.BROKEN, lambda answer, rng: answer.source.replace("mask = ", "masks = ")),
    "missing_import": (Kind.BROKEN, _edited(r"import triton\.language as tl\n", "")),
    "syntax": (Kind.BROKEN, _edited(r"class ModelNew\(nn\.Module\):", "class ModelNew(nn.Module)")),
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
    other = next(dtype for dtype in DTYPES if dtype != program.dtype)
    found = [*right, *decoys(program), replace(right_answers(program, other)[0], name="other_type", sound=right[0])]
    for flaw in FLAWS:
        flawed = (with_flaw(answer, flaw, rng) for answer in rng.sample(right, len(right)))
        found += [answer for answer in flawed if answer][:1]
    return found
