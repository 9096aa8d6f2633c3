# SPDX-License-Identifier: Apache-2.0
"""Prompts that a pretrained model can follow, and the talks of its cold start.

Tasks, programs and feedback are the quickstart's; the prompt says what is wanted and shows one example. Every answer of
a talk is right: reinforcement learning teaches the cost of mistakes.
"""

from __future__ import annotations

from random import Random

from verl_kernel.quickstart.corpus import Message, Mixture, answer_text, draw_variant
from verl_kernel.quickstart.kernels import layouts, render
from verl_kernel.quickstart.ops import Step
from verl_kernel.quickstart.tasks import Program, draw_program
from verl_kernel.quickstart.variants import Kind
from verl_kernel.quickstart.verdicts import expected_verdict
from verl_kernel.rollout.feedback import format_feedback

FAMILIES = ("elementwise", "reduction", "normalisation", "softmax")
"""Tasks whose kernels take one row a program, like the example; a matmul's kernel is different."""
FEEDBACK_CHARS = 360
"""`kernelgym.feedback_chars` of the recipe."""
_EXAMPLE = Program("elementwise", (Step("shift", "3.0"), Step("abs")), (4, 128))
"""Constant of the example, which no task has."""
_FIRST: Mixture = {Kind.FUSED: 0.4, Kind.PARTIAL: 0.25, Kind.LAZY: 0.35}
"""Kinds of first answers: correct, with more or less of the work in Triton, so that there is something to improve."""
_SECOND: Mixture = {Kind.FUSED: 1.0}


def task_messages(program: Program) -> list[Message]:
    """Return the prompt of a task."""
    steps = "\n".join(step.torch for step in _EXAMPLE.steps)
    example = render(_EXAMPLE, layouts(_EXAMPLE)[0])
    text = (
        "Write a Triton kernel: rewrite the PyTorch class Model as a class ModelNew that returns the same and does all "
        f"of the work in one kernel.\n\nExample. If forward of Model is\n```python\n{steps}\nreturn x\n```\n"
        "the answer is\n"
        f"```python\n{example}```\n\nThe task. Answer with one python block that defines ModelNew for this Model:\n"
        f"```python\n{program.reference}```"
    )
    return [{"role": "user", "content": text}]


def draw_tasks(count: int, rng: Random, taken: set[str]) -> list[Program]:
    """Draw `count` tasks, families in turn, whose references are not in `taken`, and add these to it."""
    programs: list[Program] = []
    while len(programs) < count:
        program = draw_program(rng, FAMILIES[len(programs) % len(FAMILIES)])
        if program.reference not in taken:
            taken.add(program.reference)
            programs.append(program)
    return programs


def draw_talk(program: Program, rng: Random) -> list[Message]:
    """Return prompt, answer, feedback and second answer."""
    first = draw_variant(program, _FIRST, rng)
    second = draw_variant(program, _SECOND, rng)
    feedback = format_feedback(expected_verdict(program, first, rng), FEEDBACK_CHARS)
    return [
        *task_messages(program),
        {"role": "assistant", "content": answer_text(first, rng)},
        {"role": "user", "content": feedback},
        {"role": "assistant", "content": answer_text(second, rng)},
    ]


def draw_talks(count: int, rng: Random, taken: set[str]) -> list[list[Message]]:
    """Draw `count` talks, each about a different task with a reference not in `taken`, and add these to it."""
    return [draw_talk(program, rng) for program in draw_tasks(count, rng, taken)]
