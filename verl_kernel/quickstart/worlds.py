# SPDX-License-Identifier: Apache-2.0
"""The quickstart's worlds: each draws tasks and the conversations of their cold start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal, Protocol

from verl_kernel.errors import ConfigError
from verl_kernel.quickstart import corpus, tasks
from verl_kernel.quickstart.corpus import Message
from verl_kernel.quickstart.hard import mix as hard_mix
from verl_kernel.quickstart.hard import talks as hard_talks
from verl_kernel.quickstart.hard import tasks as hard_tasks

Name = Literal["easy", "hard"]


class TaskProgram(Protocol):
    """The interface of a world's tasks."""

    @property
    def reference(self) -> str:
        """Return the source text of the reference program."""

    @property
    def task_id(self) -> str:
        """Return the name of the task."""

    @property
    def level(self) -> int:
        """Return the difficulty, from 1."""


class World(Protocol):
    """Tasks of one kind."""

    @property
    def numbers(self) -> Sequence[str]:
        """Return the numbers in the texts, each of which becomes one token."""

    def tasks(self, count: int, rng: Random, taken: set[str]) -> Sequence[TaskProgram]:
        """Draw tasks whose references are not in `taken`, and add them to it."""

    def messages(self, program: TaskProgram) -> list[Message]:
        """Return the prompt of one of its tasks."""

    def talks(self, count: int, rng: Random, held_out: set[str]) -> list[list[Message]]:
        """Draw conversations about tasks whose references are not in `held_out`."""


class EasyWorld:
    """Small tasks that a warm-started model gets right more often than not."""

    numbers: Sequence[str] = tasks.NUMBERS

    def tasks(self, count: int, rng: Random, taken: set[str]) -> Sequence[TaskProgram]:
        """Draw tasks like `World.tasks`."""
        return tasks.draw_distinct(count, rng, taken)

    def messages(self, program: TaskProgram) -> list[Message]:
        """Return a prompt like `World.messages`."""
        assert isinstance(program, tasks.Program)
        return corpus.task_messages(program)

    def talks(self, count: int, rng: Random, held_out: set[str]) -> list[list[Message]]:
        """Draw conversations like `World.talks`."""
        return corpus.draw_corpus(count, rng, held_out)


class HardWorld:
    """Tasks at true sizes, right in 2 to 40 % of first answers at the start.

    Args:
        mix: file with the table of answers.

    Raises:
        ConfigError: the file cannot be read, or is no such table.
    """

    numbers: Sequence[str] = hard_tasks.NUMBERS

    def __init__(self, mix: Path | None = None) -> None:
        self._mix = hard_mix.read_mix(mix or hard_mix.DEFAULT)

    def tasks(self, count: int, rng: Random, taken: set[str]) -> Sequence[TaskProgram]:
        """Draw tasks like `World.tasks`."""
        return hard_tasks.draw_distinct(count, rng, taken)

    def messages(self, program: TaskProgram) -> list[Message]:
        """Return a prompt like `World.messages`."""
        assert isinstance(program, hard_tasks.Program)
        return hard_talks.task_messages(program)

    def talks(self, count: int, rng: Random, held_out: set[str]) -> list[list[Message]]:
        """Draw conversations like `World.talks`."""
        return hard_talks.draw_corpus(count, self._mix, rng, held_out)


def make_world(name: Name, mix: Path | None = None) -> World:
    """Return the world of a name.

    Raises:
        ConfigError: there is no such world, it takes no table, or the table is bad.
    """
    if name == "hard":
        return HardWorld(mix)
    if name != "easy":
        raise ConfigError(f"quickstart.world is {name!r}; the worlds are easy and hard")
    if mix is not None:
        raise ConfigError("the easy world takes no table of answers: leave out the table, or choose the world hard")
    return EasyWorld()
