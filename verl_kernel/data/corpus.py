# SPDX-License-Identifier: Apache-2.0
"""Conversations for the warm start: task, answer, the gym's feedback, next answer.

The kinds of answers are mixed as an imperfect model would mix them, so that the first rollouts of
reinforcement learning already hold every outcome. Feedback texts come from `rollout.feedback` and
verdicts like those the gym returns for such programs.
"""

from __future__ import annotations

from random import Random

from verl_kernel.data.tasks import Program, draw_program
from verl_kernel.data.variants import Kind, Variant, variants
from verl_kernel.data.verdicts import expected_verdict
from verl_kernel.rollout.feedback import format_feedback

Message = dict[str, str]
Mixture = dict[Kind, float]

FIRST: Mixture = {
    Kind.FUSED: 0.38,
    Kind.PARTIAL: 0.08,
    Kind.LAZY: 0.30,
    Kind.WRONG: 0.08,
    Kind.BROKEN: 0.08,
    Kind.DECOY: 0.08,
}
AFTER_FUSED: Mixture = {
    Kind.FUSED: 0.74,
    Kind.PARTIAL: 0.06,
    Kind.LAZY: 0.06,
    Kind.WRONG: 0.07,
    Kind.BROKEN: 0.05,
    Kind.DECOY: 0.02,
}
AFTER_OTHER: Mixture = {
    Kind.FUSED: 0.50,
    Kind.PARTIAL: 0.10,
    Kind.LAZY: 0.15,
    Kind.WRONG: 0.11,
    Kind.BROKEN: 0.09,
    Kind.DECOY: 0.05,
}
SINGLE_TURN = 0.5
"""Share of conversations that end after the first answer."""
FEEDBACK_CHARS = 360
"""`kernelgym.feedback_chars` of the CPU recipe."""
_CONFIDENT = ("One kernel does the whole chain.", "I fuse every step into one Triton kernel.")
_PROSE: dict[Kind, tuple[str, ...]] = {
    Kind.FUSED: _CONFIDENT,
    Kind.WRONG: _CONFIDENT,
    Kind.BROKEN: _CONFIDENT,
    Kind.PARTIAL: ("A kernel takes a part of the chain.", "I move some steps into Triton."),
    Kind.LAZY: ("Torch does most of the work here.", "A small kernel is the safe choice."),
    Kind.DECOY: ("Torch keeps the result exact.", "The torch path stays as it is."),
}


def task_messages(program: Program) -> list[Message]:
    """Return the prompt of a task."""
    text = f"Rewrite Model as ModelNew with a Triton kernel.\n```python\n{program.reference}```"
    return [{"role": "user", "content": text}]


def answer_text(variant: Variant, rng: Random) -> str:
    """Return an answer: a line of prose and the program in a fenced block."""
    return f"{rng.choice(_PROSE[variant.kind])}\n```python\n{variant.source}```"


def draw_variant(program: Program, mixture: Mixture, rng: Random) -> Variant:
    """Draw a kind by its weight, then one of its layouts or flaws."""
    kind = rng.choices(list(mixture), weights=list(mixture.values()))[0]
    return rng.choice([variant for variant in variants(program, rng) if variant.kind is kind])


def draw_conversation(program: Program, rng: Random) -> list[Message]:
    """Return prompt, answer, feedback and second answer."""
    first = draw_variant(program, FIRST, rng)
    second = draw_variant(program, AFTER_FUSED if first.kind is Kind.FUSED else AFTER_OTHER, rng)
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
