# SPDX-License-Identifier: Apache-2.0
"""Conversations for a cold start: prompt, answer, the gym's feedback, next answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import TypeVar

from verl_kernel.generated_tasks.answers import FLAWS, Answer, decoys, right_answers, with_flaw
from verl_kernel.generated_tasks.chains import DTYPES, Program, Steps
from verl_kernel.generated_tasks.difficulty import Difficulty
from verl_kernel.generated_tasks.kinds import RIGHT, Kind
from verl_kernel.generated_tasks.pre_tokens import pieces
from verl_kernel.generated_tasks.verdicts import expected_verdict
from verl_kernel.rollout.feedback import format_feedback
from verl_kernel.rollout.tool_replies import ACCEPTED, tried_text

Message = dict[str, str]
T = TypeVar("T")
FEEDBACK_CHARS = 440
"""`kernelgym.feedback_chars` of the recipes."""
TOOLS = ("check", "run")
"""Tools that the cold start teaches."""
TOOLS_FILE = Path(__file__).with_name("tools.yaml")
"""What verl reads of them."""
SHORTEST, LONGEST = 200, 380
"""Pieces of an answer that is shown. A few pieces take several tokens: an answer has at most 500 of these."""
_PROSE = {
    Kind.FUSED: "Triton does every step.",
    Kind.PARTIAL: "Triton does most steps.",
    Kind.LAZY: "Triton does the easy steps.",
    Kind.DECOY: "Torch does it fast.",
}
_QUESTION = "Rewrite Model as ModelNew with Triton kernels."


def task_messages(program: Program) -> list[Message]:
    """Return the prompt of a task."""
    return reference_prompt(program.prompt)


def reference_prompt(reference: str) -> list[Message]:
    """Return the prompt for a reference program as it is to be shown."""
    return [{"role": "user", "content": f"{_QUESTION}\n```python\n{reference}```"}]


def answer_text(answer: Answer) -> str:
    """Return an answer: a line that tells what was meant, and the program in a fenced block."""
    return f"{_PROSE[answer.intent]} It returns {answer.dtype}.\n```python\n{answer.source}```"


def first_answer(program: Program, difficulty: Difficulty, rng: Random) -> Answer:
    """Draw a first answer: a kind, how the work is shared, and the output's type, a guess where the prompt hides it."""
    while True:
        answer = _answer_of_kind(program, _weighted(difficulty.first, rng), rng)
        if answer is not None:
            return answer


def second_answer(first: Answer, difficulty: Difficulty, rng: Random) -> Answer:
    """Draw the answer that follows a first one and the feedback on it."""
    moves: dict[str, float] = getattr(difficulty.after, first.kind.value, difficulty.after.error)
    move = _weighted({**moves, "fresh": max(0.0, 1 - sum(moves.values()))}, rng)
    if move == "same":
        return first
    if move == "repaired":
        return _repaired(first)
    if move in ("larger", "honest"):
        better = [answer for answer in _short_right_answers(first.program, first.dtype) if answer.share > first.share]
        return rng.choice(better) if better else first
    return first_answer(first.program, difficulty, rng)


def draw_talk(program: Program, difficulty: Difficulty, rng: Random) -> list[Message]:
    """Return prompt and answer and, in some conversations, a second prompt and answer; none fuses an unseen family."""
    first = _unless_fused(lambda: first_answer(program, difficulty, rng), difficulty)
    talk = [*task_messages(program), _message(first)]
    chance = rng.random()
    if chance < difficulty.single_turn:
        return talk
    if difficulty.tools:
        return [*talk[:-1], *_tool_talk(first, difficulty, rng)]
    is_unsaid = chance < difficulty.single_turn + difficulty.unsaid
    draw = partial(first_answer, program) if is_unsaid else partial(second_answer, first)
    second = _unless_fused(lambda: draw(difficulty, rng), difficulty)
    form = "none" if is_unsaid else "short"
    feedback = format_feedback(expected_verdict(first, rng), FEEDBACK_CHARS, form=form)
    return [*talk, {"role": "user", "content": feedback}, _message(second)]


def _tool_talk(first: Answer, difficulty: Difficulty, rng: Random) -> list[Message]:
    """Return an answer that calls a tool, what the tool says, and the answer that is judged."""
    tool = rng.choice(TOOLS)
    reply = tried_text(tool, expected_verdict(first, rng), FEEDBACK_CHARS, "ModelNew")
    called = f"{answer_text(first)}\n{call_text(tool)}"
    second = first if reply == ACCEPTED else _unless_fused(lambda: second_answer(first, difficulty, rng), difficulty)
    return [{"role": "assistant", "content": called}, {"role": "tool", "content": reply}, _message(second)]


def call_text(tool: str) -> str:
    """Return a call in the form of verl's parser `hermes`; its program is the last one that was written."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': {}})}</tool_call>"


def _unless_fused(draw: Callable[[], Answer], difficulty: Difficulty) -> Answer:
    """Draw until no kernel of the answer does a step of an unseen family."""
    return next(answer for answer in iter(draw, None) if not answer.fuses(difficulty.unseen))


def is_shown(answer: Answer) -> bool:
    """Whether an answer has a length that the cold start shows."""
    return SHORTEST <= len(pieces(answer_text(answer))) <= LONGEST


def is_answerable(steps: Steps, unfused: Container[str] = ()) -> bool:
    """Whether a chain has a right answer that the cold start may show, whatever its sizes.

    Args:
        steps: the chain.
        unfused: families that the answer has to leave to torch.
    """
    return not all(answer.fuses(unfused) for answer in _short_right_answers(Program(steps, (4, 64, 16)), DTYPES[0]))


def _message(answer: Answer) -> Message:
    return {"role": "assistant", "content": answer_text(answer)}


def _answer_of_kind(program: Program, kind: Kind, rng: Random) -> Answer | None:
    """Draw an answer of a kind; None where the task has none that is short enough."""
    dtype = rng.choice(DTYPES) if "dtype" in program.hidden else program.dtype
    if kind is Kind.TYPE:
        dtype = rng.choice([candidate for candidate in DTYPES if candidate != program.dtype])
        return _chosen(_short_right_answers(program, dtype), rng)
    if kind is Kind.DECOY:
        return _chosen([answer for answer in decoys(program, dtype) if is_shown(answer)], rng)
    if kind in RIGHT:  # but for its type, which may be a wrong guess
        return _chosen([answer for answer in _short_right_answers(program, dtype) if answer.intent is kind], rng)
    sound = _chosen(_short_right_answers(program, dtype), rng)
    flaws = [name for name, (effect, _) in FLAWS.items() if effect is kind]
    flawed = sound and with_flaw(sound, rng.choice(flaws), rng)
    return flawed if flawed and is_shown(flawed) else None


@lru_cache(maxsize=4096)
def _short_right_answers(program: Program, dtype: str) -> tuple[Answer, ...]:
    """Return the right answers that are short enough, of one type."""
    return tuple(answer for answer in right_answers(program, dtype) if is_shown(answer))


def _repaired(first: Answer) -> Answer:
    if first.kind is not Kind.TYPE:
        assert first.sound is not None
        return first.sound
    answers = [*right_answers(first.program), *decoys(first.program)]
    return next(answer for answer in answers if (answer.name, answer.parts) == (first.name, first.parts))


def _chosen(answers: list[T] | tuple[T, ...], rng: Random) -> T | None:
    return rng.choice(answers) if answers else None


def _weighted(weights: Mapping[T, float], rng: Random) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]
