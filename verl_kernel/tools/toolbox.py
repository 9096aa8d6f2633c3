# SPDX-License-Identifier: Apache-2.0
"""The tools, as functions that answer with text.

`check`, `run` and `profile` use judges of their own, whose inputs have a seed that everybody may know. What they say
holds nothing of the inputs by which `submit` judges, nor of what is expected for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_kernel.client import Gym
from verl_kernel.env import EvalResult, EvalStatus, Task
from verl_kernel.errors import DataError
from verl_kernel.rollout.feedback import format_feedback
from verl_kernel.rollout.tried import tried_text

_LONGEST_ANSWER = 4000


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
        self._budget, self._left = submissions, submissions

    async def list_tasks(self) -> str:
        """List the names of all tasks, one in a line."""
        return "\n".join(self._tasks)

    async def get_task(self, task: str) -> str:
        """Show what a task asks for: its prompt with the reference program."""
        return self._stated(task).prompt

    async def check(self, task: str, source: str) -> str:
        """Check that a program is accepted, loads, compiles and runs; it says nothing of its values."""
        return await self._tried("check", task, source)

    async def run(self, task: str, source: str) -> str:
        """Run a program on public inputs, and say whether it agrees with the reference there, and how fast it is."""
        return await self._tried("run", task, source)

    async def profile(self, task: str, source: str) -> str:
        """Say what bounds each kernel of a program, and which change would save most time, as predicted."""
        return await self._tried("profile", task, source)

    async def submit(self, task: str, source: str) -> str:
        """Have a program judged on secret inputs; the number of submissions is limited."""
        stated = self._stated(task)
        if not self._left:
            return f"All {self._budget} submissions are spent: nothing was judged."
        self._left -= 1
        result = await self._judges.evaluate(stated.task, source)
        if result.status is EvalStatus.INFRA_ERROR:
            self._left += 1
            return "The judge failed, so this was not judged and is not counted: submit it again."
        return f"{self._said(task, result)}\n{self._left} of {self._budget} submissions are left."

    def _stated(self, name: str) -> Stated:
        if name not in self._tasks:
            raise DataError(f"there is no task {name!r}: list_tasks names them all")
        return self._tasks[name]

    async def _tried(self, tool: str, name: str, source: str) -> str:
        task = self._stated(name).task
        return tried_text(tool, await self._public.evaluate(task, source), _LONGEST_ANSWER, task.candidate_class)

    def _said(self, name: str, result: EvalResult) -> str:
        candidate = self._stated(name).task.candidate_class
        return format_feedback(result, _LONGEST_ANSWER, candidate_class=candidate)
