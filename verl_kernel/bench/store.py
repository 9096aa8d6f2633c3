# SPDX-License-Identifier: Apache-2.0
"""A run's folder while it is written: created or reopened, locked, with one line for each judged answer.

A line is written by one call, and kept as a whole or not at all: the part of a line that a killed run or a full disk
left is cut off when the run continues. `records` reads the folder.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel

from verl_kernel.bench.records import (
    HEADER,
    TASKS,
    TURNS,
    BenchTurn,
    RunHeader,
    SuiteTask,
    read_header,
    read_tasks,
    read_turns,
)
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.env import EvalStatus
from verl_kernel.errors import ConfigError, DataError, StorageError
from verl_kernel.files import replacing

_OF_THE_SUITE = {"suite", "suite_hash", "prompt_hash", "tasks"}
_SYNC_S = 5.0
"""Seconds after which an answer that is appended also forces the file to the disk."""
SampleKey = tuple[str, int]
"""Task and sample."""


def refuse_difference(old: RunHeader, new: RunHeader, tasks: Sequence[SuiteTask], suite: Suite, folder: Path) -> None:
    """Refuse to continue a different run; the start time may differ.

    Args:
        old: header of the run that the folder holds.
        new: header of the run that is asked for.
        tasks: tasks of the run in the folder.
        suite: suite of the run that is asked for.
        folder: folder of the run.

    Raises:
        ConfigError: the runs differ; the message names the first difference.
    """
    old_values, new_values = (header.model_dump(mode="json", exclude={"started"}) for header in (old, new))
    key = next((key for key in new_values if old_values[key] != new_values[key]), None)
    if key is None:
        return
    if key in _OF_THE_SUITE:
        what = _suite_difference(old, new, tasks, suite)
    else:
        name, before, after = _first_difference(key, old_values[key], new_values[key])
        what = f"a run whose {name} is {before!r}, and this one's is {after!r}"
    raise ConfigError(f"{folder} holds {what}: repeat the command of that run, or name another folder with --out")


def _suite_difference(old: RunHeader, new: RunHeader, tasks: Sequence[SuiteTask], suite: Suite) -> str:
    if (old.suite, old.tasks) != (new.suite, new.tasks):
        return f"a run on {old.tasks} tasks of suite {old.suite}, and this one is on {new.tasks} of suite {new.suite}"
    old_hashes = {task.task_id: task.task_hash for task in tasks}
    new_hashes = {item.task.task_id: item.task.text_hash for item in suite.tasks}
    if missing := next((name for name in new_hashes if old_hashes and name not in old_hashes), None):
        return f"a run on suite {old.suite} without task {missing}, which this one asks"
    if changed := next(
        (name for name in new_hashes if old_hashes.get(name, new_hashes[name]) != new_hashes[name]), None
    ):
        return f"a run on suite {old.suite} in which task {changed} has another reference than now"
    what = "prompts" if old.suite_hash == new.suite_hash else "tasks"
    return f"a run on suite {old.suite} whose {what} are others than now"


def _first_difference(key: str, old_values: Any, new_values: Any) -> tuple[str, Any, Any]:
    """Return key and values; for two mappings, those of the first entry that differs."""
    if isinstance(old_values, dict) and isinstance(new_values, dict):
        entry = next(
            name for name in sorted({*old_values, *new_values}) if old_values.get(name) != new_values.get(name)
        )
        return f"{key}.{entry}", old_values.get(entry), new_values.get(entry)
    return key, old_values, new_values


class Store:
    """The folder of a run; use it as a context manager.

    Args:
        folder: created if missing; if it holds a run, that run continues.
        header: header of the run that is asked for.
        suite: tasks of the run.

    Raises:
        ConfigError: the folder holds another run, or one that another process is writing.
        DataError: the folder's files are damaged.
        StorageError: the folder cannot be written.
    """

    def __init__(self, folder: Path, header: RunHeader, suite: Suite) -> None:
        self.folder, self._synced = folder, time.monotonic()
        make_folder(folder)
        try:
            self._fd = os.open(folder / TURNS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as exc:
            raise _write_error(folder, exc) from exc
        self._header: RunHeader | None = header
        self._suite = suite
        try:
            self._lock()
            self._resume(header)
            self._cut_partial_line()
            turns = read_turns(folder)
            self.histories, self.lost = _by_sample(turns)
            self.has_answers = any(turn.failure != "malformed" for turn in turns)
        except BaseException:  # closing the descriptor releases the lock after any error
            self.close()
            raise

    def history(self, job: tuple[SuiteItem, int]) -> list[BenchTurn]:
        """Return the turns of a trajectory when the folder was opened, up to the first that the gym failed to judge."""
        return list(self.histories.get((job[0].task.task_id, job[1]), []))

    def append(self, turn: BenchTurn) -> BenchTurn:
        """Store an answer and return it as a reader of the file will see it.

        Raises:
            StorageError: the disk is full; the file is as before.
        """
        self._begin()
        line = turn.model_dump_json().encode() + b"\n"
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line) < len(line):
                raise OSError(0, "no space is left")
            if time.monotonic() - self._synced > _SYNC_S:
                os.fsync(self._fd)
                self._synced = time.monotonic()
        except OSError as exc:
            with suppress(OSError):  # no part of a line may stay in the file
                os.ftruncate(self._fd, size)
            raise _write_error(self.folder, exc) from exc
        return as_written(turn)

    def close(self) -> None:
        """Close the file, which releases the lock."""
        with suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise ConfigError(f"{self.folder} is in use by another bench: wait for it, or name another --out") from exc

    def _resume(self, header: RunHeader) -> None:
        """Continue the run in the folder; a start without any answer has left no run."""
        if not os.fstat(self._fd).st_size:
            return
        if not (self.folder / HEADER).exists():
            raise DataError(f"{self.folder} holds {TURNS} without {HEADER}: name another folder with --out")
        refuse_difference(read_header(self.folder), header, read_tasks(self.folder), self._suite, self.folder)
        self._header = None

    def _begin(self) -> None:
        """Store the request, before the first answer."""
        if self._header is None:
            return
        self._write(TASKS, map(_record, self._suite.tasks))
        self._write(HEADER, [self._header], indent=2)  # last: the header makes the folder a run
        self._header = None

    def _write(self, name: str, records: Iterable[BaseModel], indent: int | None = None) -> None:
        """Write a file that appears only when it is complete."""
        text = "".join(record.model_dump_json(indent=indent) + "\n" for record in records)
        try:
            write_whole(self.folder / name, text)
        except OSError as exc:
            raise _write_error(self.folder, exc) from exc

    def _cut_partial_line(self) -> None:
        data = (self.folder / TURNS).read_bytes()
        os.ftruncate(self._fd, data.rfind(b"\n") + 1)


def _record(item: SuiteItem) -> SuiteTask:
    task = item.task
    return SuiteTask(
        task_id=task.task_id, task_hash=task.text_hash, level=item.level, family=item.family, reference=task.reference
    )


def make_folder(folder: Path) -> None:
    """Create the folder of a run if it is missing.

    Raises:
        ConfigError: the path is a file or lies below one.
        StorageError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as exc:
        file = next(path for path in (folder, *folder.parents) if path.exists())
        raise ConfigError(f"--out is {folder}, and {file} is a file: name a folder") from exc
    except OSError as exc:
        raise StorageError(
            f"--out is {folder}, which cannot be made ({exc.strerror or exc}): name a folder where you may write"
        ) from exc


def _write_error(folder: Path, exc: OSError) -> StorageError:
    return StorageError(
        f"{folder} cannot be written ({exc.strerror or exc}): see to room and permissions, or name another folder with "
        "--out; what was finished stays, and the same command goes on"
    )


def as_written(turn: BenchTurn) -> BenchTurn:
    """Return a turn as a reader of the file will see it."""
    return BenchTurn.model_validate_json(turn.model_dump_json())


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically, so that no reader sees a part of it; raises OSError."""
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _by_sample(turns: Iterable[BenchTurn]) -> tuple[dict[SampleKey, list[BenchTurn]], dict[SampleKey, BenchTurn]]:
    """Return each trajectory's judged turns up to the first gap, and the turns that the gym failed to judge."""
    by_turn: defaultdict[SampleKey, dict[int, BenchTurn]] = defaultdict(dict)
    for answer in turns:
        by_turn[answer.task_id, answer.sample][answer.turn] = answer
    histories: dict[SampleKey, list[BenchTurn]] = {}
    lost: dict[SampleKey, BenchTurn] = {}
    for key, numbered in by_turn.items():
        history = histories[key] = []
        for number in range(1, len(numbered) + 1):
            turn = numbered.get(number)
            if turn is None:
                break
            if turn.result.status is EvalStatus.INFRA_ERROR:
                lost[key] = turn
                break
            history.append(turn)
    return histories, lost
