# SPDX-License-Identifier: Apache-2.0
"""Prompts that a pretrained model can follow, and the talks of its cold start.

Tasks, programs and feedback are the quickstart's; the prompt says what is wanted and shows one example. Every answer of
a talk is right: reinforcement learning teaches the cost of mistakes.
"""

from __future__ import annotations

from random import Random

from verl_kernel.rollout.feedback import format_feedback
from verl_kernel.world.answers import Answer, right_answers
from verl_kernel.world.chains import Program, Step
from verl_kernel.world.difficulty import read_difficulty
from verl_kernel.world.kernels import Style
from verl_kernel.world.kinds import Kind
from verl_kernel.world.talks import FEEDBACK_CHARS, Message, answer_text
from verl_kernel.world.verdicts import expected_verdict
from verl_kernel.world.world import World

STEPS = (2, 3)
"""Numbers of steps of a task."""
_EXAMPLE = Program((Step("shift", "2.5"), Step("abs")), (4, 128, 16))
"""Its constant is no task's."""
_FUSED = 0.4
"""Share of first answers that do everything in kernels."""


def task_messages(program: Program) -> list[Message]:
    """Return the prompt of a task."""
    steps = "\n".join(step.torch for step in _EXAMPLE.steps)
    text = (
        "Write a Triton kernel: rewrite the PyTorch class Model as a class ModelNew that returns the same and does all "
        f"of the work in one kernel.\n\nExample. If forward of Model is\n```python\n{steps}\nreturn x\n```\n"
        "the answer is\n"
        f"```python\n{example().source}```\n\nThe task. Answer with one python block that defines ModelNew for this "
        f"Model:\n```python\n{program.prompt}```"
    )
    return [{"role": "user", "content": text}]


def example() -> Answer:
    """Return the answer that the prompt shows."""
    return right_answers(_EXAMPLE)[0]


def draw_tasks(count: int, rng: Random, taken: set[str]) -> list[Program]:
    """Draw `count` tasks that one kernel of a row a program does and whose references are not in `taken`; add these."""
    world = World(read_difficulty("easy"))
    programs: list[Program] = []
    while len(programs) < count:
        (program,) = world.tasks(1, rng, taken)
        if len(program.steps) in STEPS and right_answers(program)[0].name == f"{Style.ROW.value}{len(program.steps)}":
            programs.append(program)
    return programs


def draw_talk(program: Program, rng: Random) -> list[Message]:
    """Return prompt, answer, feedback and second answer."""
    fused, *rest = right_answers(program)
    shared = [answer for answer in rest if answer.kind is not Kind.FUSED]
    first = rng.choice(shared) if shared and rng.random() >= _FUSED else fused
    feedback = format_feedback(expected_verdict(first, rng), FEEDBACK_CHARS)
    return [
        *task_messages(program),
        {"role": "assistant", "content": answer_text(first)},
        {"role": "user", "content": feedback},
        {"role": "assistant", "content": answer_text(fused)},
    ]


def draw_talks(count: int, rng: Random, taken: set[str]) -> list[list[Message]]:
    """Draw `count` talks, each about a different task with a reference not in `taken`, and add these to it."""
    return [draw_talk(program, rng) for program in draw_tasks(count, rng, taken)]
