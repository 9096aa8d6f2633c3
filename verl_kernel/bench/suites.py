# SPDX-License-Identifier: Apache-2.0
"""The suites of a bench: tasks in a fixed order with their prompts, built in or from files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_kernel.data.kernelbench import read_kernelbench
from verl_kernel.data.rows import check_rows, read_rows, task_from_row, task_prompt
from verl_kernel.data.source_files import read_source
from verl_kernel.env import Task
from verl_kernel.errors import ConfigError, DataError, TaskError
from verl_kernel.generated_tasks.kinds import DATA_SOURCE
from verl_kernel.quickstart.options import Quickstart

Message = dict[str, str]
MAX_TOKENS = 512
"""Large enough for the quickstart: the answers of its cold start have at most 500 tokens."""


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
        prompts = [[item.task.task_id, list(item.messages)] for item in self.tasks]
        return hashlib.sha256(json.dumps(prompts, sort_keys=True).encode()).hexdigest()

    def first(self, count: int) -> Suite:
        """Return the suite of the first `count` tasks."""
        if count < 1:
            raise ConfigError(f"--tasks is {count}; it must be at least 1")
        return replace(self, tasks=self.tasks[:count])

    def only(self, names: set[str]) -> Suite:
        """Return the suite of the tasks with these names."""
        return replace(self, tasks=tuple(item for item in self.tasks if item.task.task_id in names))


def kernelbench_suite(path: Path, levels: Collection[int], targets: Sequence[str] = ()) -> Suite:
    """Return KernelBench's problems from a checkout or parquet files, with this package's prompt."""
    problems = read_kernelbench(path, levels)
    tasks = tuple(_item_of(problem.task(), problem.level, targets) for problem in problems)
    name = ",".join(map(str, sorted({problem.level for problem in problems})))
    return Suite(f"kernelbench level {name}", tasks)


def parquet_suite(path: Path) -> Suite:
    """Return the rows of a data set, with their own prompts.

    Raises:
        DataError: a row lacks a prompt, a reference or a name; the message says which.
    """
    check_rows(path)
    return Suite(path.stem, tuple(map(_row, read_rows(path))))


def folder_suite(folder: Path, targets: Sequence[str] = ()) -> Suite:
    """Return the reference programs of a folder, one per file, named after their files.

    Raises:
        DataError: there is no program, or one does not parse; the message names the file.
    """
    files = sorted(folder.glob("*.py"))
    if not files:
        raise DataError(f"{folder} holds no Python files: name a folder of reference programs")
    return Suite(folder.resolve().name, tuple(_item_of(_task(file), None, targets) for file in files))


def _item_of(task: Task, level: int | None, targets: Sequence[str]) -> SuiteItem:
    return SuiteItem(task, tuple(task_prompt(task.reference, task.entry_point, targets)), level)


def _task(file: Path) -> Task:
    try:
        return Task(read_source(file), file.stem)
    except TaskError as exc:
        raise DataError(f"{file}: {exc}") from exc


def _row(row: Mapping[str, Any]) -> SuiteItem:
    info, task = row.get("extra_info") or {}, task_from_row(row)
    level, family = info.get("level"), info.get("family")
    if family is None:
        family = _split_name(str(row.get("data_source")))
    messages = tuple({"role": message["role"], "content": message["content"]} for message in row["prompt"])
    return SuiteItem(task, messages, None if level is None else int(level), None if family is None else str(family))


def _split_name(source: str) -> str | None:
    """Return the split in the name of a data source; None for one without."""
    return source.removeprefix(f"{DATA_SOURCE}_") if source.startswith(f"{DATA_SOURCE}_") else None


def cpu_suite() -> Suite:
    """Return the validation tasks of the quickstart with seed 0, with prompts in the form that its model has learnt.

    Their families are the validation's splits.
    """
    from verl_kernel.generated_tasks.conversations import FEEDBACK_CHARS
    from verl_kernel.quickstart.drawing import draw  # torch

    quickstart = draw(Quickstart(), conversations=0)
    rows = [row for split, tasks in quickstart.validated.items() for row in quickstart.world.rows(tasks, split)]
    return Suite("cpu", tuple(map(_row, rows)), max_tokens=MAX_TOKENS, feedback_chars=FEEDBACK_CHARS)


def load_suite(name: str, levels: Collection[int] = (), targets: Sequence[str] = ()) -> Suite:
    """Return the suite called `cpu`, `kernelbench:PATH`, `FILE.parquet` or `FOLDER`.

    Args:
        name: name of the suite.
        levels: levels of KernelBench's problems; all if none is named.
        targets: GPUs that this package's prompt names.

    Raises:
        DataError: the suite does not exist, or one of its tasks is damaged; the message names the file.
        ConfigError: levels are given for another suite, or targets for one with prompts of its own.
    """
    kind, colon, path = name.partition(":")
    is_kernelbench = bool(colon) and kind == "kernelbench"
    if levels and not is_kernelbench:
        raise ConfigError(f"--levels chooses problems of KernelBench, and --suite is {name}: leave it out")
    if targets and (name == "cpu" or Path(name).is_file()):
        raise ConfigError(f"--name-targets changes this package's prompt, and --suite {name} has its own: leave it out")
    if name == "cpu":
        return cpu_suite()
    if not (is_kernelbench or _is_there(Path(name))):
        raise DataError(
            f"--suite is {name!r}; it must be cpu, kernelbench:PATH, a parquet file or a folder of references"
        )
    if is_kernelbench:
        return kernelbench_suite(Path(path), levels, targets)
    return folder_suite(Path(name), targets) if Path(name).is_dir() else parquet_suite(Path(name))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long, or the folder may not be read
        return False
