# SPDX-License-Identifier: Apache-2.0
"""The tools, as functions that answer with text.

`check`, `run` and `profile` use judges of their own, whose inputs have a seed that everybody may know. What they say
holds nothing of the inputs by which `submit` judges, nor of what is expected for them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_kernel.client import Gym
from verl_kernel.env import EvalStatus, Task
from verl_kernel.errors import DataError
from verl_kernel.reward.extract import extract_code
from verl_kernel.rollout.feedback import format_feedback
from verl_kernel.rollout.tool_replies import tried_text

_LONGEST_ANSWER = 4000
"""Characters of a verdict in a tool's answer."""
_UNCOUNTED = (EvalStatus.REJECTED_STATIC, EvalStatus.INFRA_ERROR)
"""Verdicts without a judge's work, which cost no submission; `check` gives the first one for nothing too."""


@dataclass(frozen=True)
class Stated:
    """A task and how it is asked."""

    task: Task
    prompt: str


class Toolbox:
    """The tools of one session.

    Args:
        tasks: what can be worked on.
        public: judges with the seed `tried.PUBLIC_SEED`.
        judges: those whose inputs nobody knows.
        submissions: how often `submit` judges; then it refuses.
    """

    def __init__(self, tasks: Sequence[Stated], public: Gym, judges: Gym, submissions: int) -> None:
        self._tasks: Mapping[str, Stated] = {stated.task.task_id: stated for stated in tasks}
        self._public, self._judges = public, judges
        self._budget, self._remaining = submissions, submissions

    async def list_tasks(self) -> str:
        """List the names of all tasks, one in a line."""
        return "\n".join(self._tasks)

    async def get_task(self, task: str) -> str:
        """Show what a task asks for: its prompt with the reference program."""
        return self._find_task(task).prompt

    async def check(self, task: str, source: str) -> str:
        """Check that a program is accepted, loads, compiles and runs; it says nothing of its values."""
        return await self._try_program("check", task, source)

    async def run(self, task: str, source: str) -> str:
        """Run a program on public inputs, and say whether it agrees with the reference there, and how fast it is."""
        return await self._try_program("run", task, source)

    async def profile(self, task: str, source: str) -> str:
        """Say what bounds each kernel of a program, and which change would save most time, as predicted."""
        return await self._try_program("profile", task, source)

    async def submit(self, task: str, source: str) -> str:
        """Have a program judged on secret inputs; the number of submissions is limited."""
        stated = self._find_task(task).task
        if not self._remaining:
            return f"All {self._budget} submissions are spent: nothing was judged."
        self._remaining -= 1
        result = await self._judges.evaluate(stated, _program(stated, source))
        if result.status in _UNCOUNTED:  # no judge has run it
            self._remaining += 1
        if result.status is EvalStatus.INFRA_ERROR:
            return "The judge failed, so this was not judged and is not counted: submit it again."
        feedback = format_feedback(
            result, _LONGEST_ANSWER, candidate_class=stated.candidate_class, instruction=_instruction(stated)
        )
        return f"{feedback}\n{self._remaining} of {self._budget} submissions are left."

    def _find_task(self, name: str) -> Stated:
        if name not in self._tasks:
            raise DataError(f"there is no task {name!r}: list_tasks names them all")
        return self._tasks[name]

    async def _try_program(self, tool: str, name: str, source: str) -> str:
        task = self._find_task(name).task
        result = await self._public.evaluate(task, _program(task, source))
        return tried_text(tool, result, _LONGEST_ANSWER, task.candidate_class, _instruction(task))


def _program(task: Task, source: str) -> str:
    """Return the program of a source: the source itself, or the ```python block of one that is an answer."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what Python's parser raises for hostile texts
        return extract_code(source, task.candidate_class) or source
    return source


def _instruction(task: Task) -> str:
    return f"Call check, run or submit with a whole program that defines {task.candidate_class}."
