# SPDX-License-Identifier: Apache-2.0
"""Tasks, answers and conversations of the quickstart's world, as tests of other packages need them."""

from random import Random

from verl_kernel.generated_tasks.answers import Answer, all_answers
from verl_kernel.generated_tasks.chains import Program
from verl_kernel.generated_tasks.conversations import Message, draw_talk
from verl_kernel.generated_tasks.difficulty import read_difficulty
from verl_kernel.generated_tasks.generator import World
from verl_kernel.generated_tasks.kinds import Kind

EASY = read_difficulty("easy")
_WORLD = World(EASY)


def draw_tasks(count: int, rng: Random, taken: set[str] | None = None) -> list[Program]:
    """Distinct tasks."""
    return _WORLD.tasks(count, rng, set() if taken is None else taken)


def draw_conversation(program: Program, rng: Random) -> list[Message]:
    return draw_talk(program, EASY.model_copy(update={"single_turn": 0.0, "unsaid": 0.0}), rng)


def one_of(program: Program, kind: Kind, rng: Random) -> Answer:
    """An answer of a kind, or a fused one where the task has none."""
    found = all_answers(program, rng)
    return next((one for one in found if one.kind is kind), found[0])
