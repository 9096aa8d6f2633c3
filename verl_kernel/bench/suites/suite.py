# SPDX-License-Identifier: Apache-2.0
"""A suite: tasks in a fixed order, each with its prompt."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace

from verl_kernel.env import Task
from verl_kernel.errors import ConfigError, DataError

Message = dict[str, str]


@dataclass(frozen=True)
class SuiteItem:
    """A task with the prompt by which a suite asks it."""

    task: Task
    messages: tuple[Message, ...]
    """The first messages to the model: `{role, content}`."""
    level: int | None = None
    family: str | None = None


@dataclass(frozen=True)
class Suite:
    """Tasks with distinct names.

    Raises:
        DataError: there are no tasks, or two have the same name.
    """

    name: str
    tasks: tuple[SuiteItem, ...]
    max_tokens: int = 8192
    """Default limit of tokens of an answer."""
    feedback_chars: int = 800
    """Default length limit of the feedback on an answer."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise DataError(f"suite {self.name} holds no tasks: name a suite that has some")
        counts = Counter(item.task.task_id for item in self.tasks)
        twice = next((name for name, count in counts.items() if count > 1), None)
        if twice is not None:
            raise DataError(
                f"suite {self.name} holds {counts[twice]} tasks called {twice}: give each a name of its own"
            )

    @property
    def hash(self) -> str:
        """Return SHA-256 over the hashes of the tasks' texts, in order."""
        return hashlib.sha256("".join(item.task.text_hash for item in self.tasks).encode()).hexdigest()

    @property
    def prompt_hash(self) -> str:
        """Return SHA-256 over names and prompts, in order."""
        said = [[item.task.task_id, list(item.messages)] for item in self.tasks]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def first(self, count: int) -> Suite:
        """Return the suite of the first `count` tasks."""
        if count < 1:
            raise ConfigError(f"--tasks is {count}; it must be at least 1")
        return replace(self, tasks=self.tasks[:count])

    def only(self, names: set[str]) -> Suite:
        """Return the suite of the tasks with these names."""
        return replace(self, tasks=tuple(item for item in self.tasks if item.task.task_id in names))
