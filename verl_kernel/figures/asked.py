# SPDX-License-Identifier: Apache-2.0
"""The tasks, samples and turns a run was asked for, so that an answer that never came can count as a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt


@dataclass(frozen=True)
class AskedTask:
    """A task with its level and family, under which it is reported."""

    task: str
    level: int | None = None
    family: str | None = None


@dataclass(frozen=True)
class Asked:
    """Tasks, samples of each and turns of each sample."""

    tasks: tuple[AskedTask, ...]
    samples: int
    turns: int = 1

    @classmethod
    def of(cls, attempts: Sequence[Attempt]) -> Asked:
        """Infer the request from the attempts: every task that occurs, with the largest sample and turn numbers."""
        tasks = {one.task: AskedTask(one.task, one.level, one.family) for one in attempts}
        samples, turns = (max((getattr(one, key) for one in attempts), default=0) for key in ("sample", "turn"))
        return cls(tuple(tasks.values()), samples + bool(attempts), turns)

    def refuse_others(self, attempts: Sequence[Attempt]) -> None:
        """Check that the attempts are answers to what was asked, each given once.

        Raises:
            DataError: an attempt was not asked for, or occurs twice.
        """
        tasks, seen = {one.task for one in self.tasks}, set()
        if len(tasks) < len(self.tasks):
            raise DataError("two tasks of the suite have the same name: give each task a name of its own")
        for one in attempts:
            place = (one.task, one.sample, one.turn)
            if one.task not in tasks or not 0 <= one.sample < self.samples or not 1 <= one.turn <= self.turns:
                raise DataError(f"{_name(one)} was not asked for: take the results of one run of this suite only")
            if place in seen:
                raise DataError(f"{_name(one)} is there twice: take the results of one run only")
            seen.add(place)


def _name(one: Attempt) -> str:
    return f"the answer to task {one.task}, sample {one.sample}, turn {one.turn}"
