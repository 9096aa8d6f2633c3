# SPDX-License-Identifier: Apache-2.0
"""Conversations for the warm start: task, answer, the gym's feedback, next answer.

The kinds of answers are mixed as an imperfect model would mix them, so that the first rollouts of
reinforcement learning already include every outcome. Feedback texts come from `rollout.feedback` and
verdicts like those the gym returns for such programs.
"""

from __future__ import annotations

from random import Random
from typing import TypeVar

from verl_kernel.quickstart.tasks import Program, draw_program
from verl_kernel.quickstart.variants import Kind, Variant, variants
from verl_kernel.quickstart.verdicts import expected_verdict
from verl_kernel.rollout.feedback import format_feedback

Message = dict[str, str]
Mixture = dict[Kind, float]
T = TypeVar("T")

FIRST: Mixture = {
    Kind.FUSED: 0.14,
    Kind.PARTIAL: 0.06,
    Kind.LAZY: 0.18,
    Kind.WRONG: 0.28,
    Kind.BROKEN: 0.18,
    Kind.DECOY: 0.16,
}
"""Kinds of first answers."""
_REPAIRED: Mixture = {
    Kind.FUSED: 0.40,
    Kind.PARTIAL: 0.06,
    Kind.LAZY: 0.10,
    Kind.WRONG: 0.22,
    Kind.BROKEN: 0.16,
    Kind.DECOY: 0.06,
}
"""Kinds of answers after an error: mostly the fused kernel without its flaw."""
_IMPROVED: Mixture = {
    Kind.FUSED: 0.32,
    Kind.PARTIAL: 0.12,
    Kind.LAZY: 0.20,
    Kind.WRONG: 0.18,
    Kind.BROKEN: 0.10,
    Kind.DECOY: 0.08,
}
"""Kinds of answers after torch did most of the work."""
_KEPT: Mixture = {
    Kind.FUSED: 0.60,
    Kind.PARTIAL: 0.08,
    Kind.LAZY: 0.08,
    Kind.WRONG: 0.12,
    Kind.BROKEN: 0.08,
    Kind.DECOY: 0.04,
}
"""Kinds of answers after a fused kernel."""
SECOND: dict[Kind, Mixture] = {
    Kind.FUSED: _KEPT,
    Kind.PARTIAL: _IMPROVED,
    Kind.LAZY: _IMPROVED,
    Kind.WRONG: _REPAIRED,
    Kind.BROKEN: _REPAIRED,
    Kind.DECOY: _IMPROVED,
}
"""Kinds of second answers by the kind of the first."""
SINGLE_TURN = 0.5
"""Share of conversations that end after the first answer."""
FEEDBACK_CHARS = 360
"""`kernelgym.feedback_chars` of the CPU recipe."""
_CAREFUL, _QUICK = "I fuse all steps into one kernel.", "One kernel does it all."
_SHARED, _SAFE = "Some steps move into Triton.", "Torch does most of the work."
_PROSE: dict[Kind, dict[str, float]] = {
    Kind.FUSED: {_CAREFUL: 0.7, _QUICK: 0.3},
    Kind.WRONG: {_CAREFUL: 0.3, _QUICK: 0.7},
    Kind.BROKEN: {_CAREFUL: 0.3, _QUICK: 0.7},
    Kind.PARTIAL: {_SHARED: 0.8, _SAFE: 0.2},
    Kind.LAZY: {_SHARED: 0.3, _SAFE: 0.7},
    Kind.DECOY: {_SAFE: 1.0},
}
"""First lines by kind: a hint at the program that follows, never a full description."""


def task_messages(program: Program) -> list[Message]:
    """Return the prompt of a task."""
    text = f"Rewrite Model as ModelNew with a Triton kernel.\n```python\n{program.reference}```"
    return [{"role": "user", "content": text}]


def answer_text(variant: Variant, rng: Random) -> str:
    """Return an answer: a line of prose and the program in a fenced block."""
    return f"{_weighted(_PROSE[variant.kind], rng)}\n```python\n{variant.source}```"


def draw_variant(program: Program, mixture: Mixture, rng: Random) -> Variant:
    """Draw a kind by its weight, then one of its layouts or flaws."""
    kind = _weighted(mixture, rng)
    return rng.choice([variant for variant in variants(program, rng) if variant.kind is kind])


def _weighted(weights: dict[T, float], rng: Random) -> T:
    return rng.choices(list(weights), weights=list(weights.values()))[0]


def draw_conversation(program: Program, rng: Random) -> list[Message]:
    """Return prompt, answer, feedback and second answer."""
    first = draw_variant(program, FIRST, rng)
    second = draw_variant(program, SECOND[first.kind], rng)
    feedback = format_feedback(expected_verdict(program, first, rng), FEEDBACK_CHARS)
    return [
        *task_messages(program),
        {"role": "assistant", "content": answer_text(first, rng)},
        {"role": "user", "content": feedback},
        {"role": "assistant", "content": answer_text(second, rng)},
    ]


def draw_corpus(count: int, rng: Random, held_out: set[str]) -> list[list[Message]]:
    """Draw `count` conversations about tasks whose references are not in `held_out`."""
    conversations: list[list[Message]] = []
    while len(conversations) < count:
        program = draw_program(rng)
        if program.reference not in held_out:
            talk = draw_conversation(program, rng)
            conversations.append(talk[:2] if rng.random() < SINGLE_TURN else talk)
    return conversations
