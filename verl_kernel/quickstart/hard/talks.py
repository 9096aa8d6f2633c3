# SPDX-License-Identifier: Apache-2.0
"""Conversations for the hard world's cold start: task, answer, the gym's feedback, next answer."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from verl_kernel.quickstart.hard.answers import Answer, Extent, decoy, layouts, other, with_flaw
from verl_kernel.quickstart.hard.mix import Mix
from verl_kernel.quickstart.hard.tasks import DTYPES, Program, draw_program
from verl_kernel.quickstart.hard.verdicts import expected_verdict
from verl_kernel.rollout.feedback import format_feedback

Message = dict[str, str]
FEEDBACK_CHARS = 440
"""`kernelgym.feedback_chars` of the recipe."""
_PROSE = {
    Extent.FULL: "One kernel does every step.",
    Extent.PARTIAL: "A kernel does most steps.",
    Extent.LAZY: "A kernel does the easy steps.",
    Extent.DECOY: "Torch does it fast.",
}


def task_messages(program: Program) -> list[Message]:
    """Return the prompt of a task."""
    text = f"Rewrite Model as ModelNew with a Triton kernel. Sizes and DTYPE are hidden.\n```python\n{program.model}```"
    return [{"role": "user", "content": text}]


def answer_text(answer: Answer) -> str:
    """Return an answer: a line that describes its program and output, and the program in a fenced block."""
    return f"{_PROSE[answer.layout.extent]} It returns {answer.dtype}.\n```python\n{answer.source}```"


def first_answer(program: Program, mix: Mix, rng: Random) -> Answer:
    """Draw a first answer: a layout, a guess of the output's type, perhaps a flaw."""
    faultless = rng.random() < mix.faultless[program.level]
    if faultless and rng.random() < mix.decoy:
        return decoy(program, rng.choice(DTYPES))
    while True:
        answer = _honest(program, mix, rng.choice(DTYPES), rng)
        flawed = answer if faultless else with_flaw(answer, rng)
        if flawed is not None:
            return flawed


def second_answer(first: Answer, mix: Mix, rng: Random) -> Answer:
    """Draw the answer that follows a first answer and the feedback on it."""
    state = {"ok": first.layout.extent.value, "decoy": "decoy", "form": "wrong_type"}.get(first.outcome, "error")
    moves = mix.after[state]
    fresh = max(0.0, 1 - sum(moves.values()))
    move = rng.choices([*moves, "fresh"], [*moves.values(), fresh])[0]
    if move == "repaired":
        dtype = other(first.dtype) if state == "wrong_type" else first.dtype
        return replace(first, dtype=dtype, flaw="", flawed="")
    if move == "larger":
        more = [layout for layout in layouts(first.program) if layout.saved > first.layout.saved]
        return replace(first, layout=rng.choice(more))
    if move == "honest":
        return _honest(first.program, mix, first.dtype, rng)
    return first if move == "same" else first_answer(first.program, mix, rng)


def draw_talk(program: Program, mix: Mix, rng: Random) -> list[Message]:
    """Return prompt and answer and, in most talks, a second prompt and answer."""
    first = first_answer(program, mix, rng)
    talk = [*task_messages(program), {"role": "assistant", "content": answer_text(first)}]
    drawn = rng.random()
    if drawn < mix.single_turn:
        return talk
    is_unsaid = drawn < mix.single_turn + mix.unsaid
    second = first_answer(program, mix, rng) if is_unsaid else second_answer(first, mix, rng)
    verdict = expected_verdict(first, rng)
    feedback = format_feedback(verdict, FEEDBACK_CHARS, form="none" if is_unsaid else "short")
    return [*talk, {"role": "user", "content": feedback}, {"role": "assistant", "content": answer_text(second)}]


def draw_corpus(count: int, mix: Mix, rng: Random, held_out: set[str]) -> list[list[Message]]:
    """Draw `count` conversations about tasks whose references are not in `held_out`."""
    talks: list[list[Message]] = []
    while len(talks) < count:
        program = draw_program(rng)
        if program.reference not in held_out:
            talks.append(draw_talk(program, mix, rng))
    return talks


def _honest(program: Program, mix: Mix, dtype: str, rng: Random) -> Answer:
    """Draw a layout by its extent, among the extents that the task has."""
    found: dict[str, list[Answer]] = {}
    for layout in layouts(program):
        found.setdefault(layout.extent.value, []).append(Answer(program, layout, dtype))
    shares = [mix.extent[extent] + 1e-9 for extent in found]
    return rng.choice(found[rng.choices(list(found), shares)[0]])
