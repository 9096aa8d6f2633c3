# SPDX-License-Identifier: Apache-2.0
"""A run's folder while it is written: made or taken up again, locked, one line for each judged answer.

A line is written by one call and kept whole or not at all: what a killed run left of one is cut off when the run goes
on, and so is what a full disk left. Reading is in `run_files`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel

from verl_kernel.bench.header import refuse_difference
from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.bench.run_files import HEADER, TASKS, TURNS, read_header, read_run
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.env import EvalStatus
from verl_kernel.errors import ConfigError, DataError, StorageError

_SYNC_S = 5.0
Place = tuple[str, int]
"""Task and sample."""


class Store:
    """The folder of a run; use it as a context manager.

    Args:
        folder: made if need be; where it holds a run, that run goes on.
        header: of the run that is asked for.
        suite: its tasks.

    Raises:
        ConfigError: the folder holds another run, or one that is under way in another process.
        DataError: its files are damaged.
        StorageError: it cannot be written.
    """

    def __init__(self, folder: Path, header: RunHeader, suite: Suite) -> None:
        self.folder, self._synced = folder, time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(folder / TURNS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as exc:
            raise self._cannot(exc) from exc
        try:
            self._lock()
            self._begin(header, suite)
            self._cut()
            self.done, self.lost = _by_place(read_run(folder)[1])
        except BaseException:  # whatever it was, the lock goes with the descriptor
            self.close()
            raise

    def history(self, job: tuple[SuiteItem, int]) -> list[BenchTurn]:
        """What was done of a trajectory when the folder was opened, up to the first turn that the gym lost."""
        return list(self.done.get((job[0].task.task_id, job[1]), []))

    def append(self, turn: BenchTurn) -> BenchTurn:
        """Write an answer down; returns it as whoever reads the file will see it.

        Raises:
            StorageError: there is no room for it; the file holds what it held before.
        """
        line = turn.model_dump_json().encode() + b"\n"
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line) < len(line):
                raise OSError(0, "no space is left")
            if time.monotonic() - self._synced > _SYNC_S:
                os.fsync(self._fd)
                self._synced = time.monotonic()
        except OSError as exc:
            with suppress(OSError):
                os.ftruncate(self._fd, size)
            raise self._cannot(exc) from exc
        return BenchTurn.model_validate_json(line)

    def close(self) -> None:
        """Close the file, which takes the lock off."""
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

    def _begin(self, header: RunHeader, suite: Suite) -> None:
        if (self.folder / HEADER).exists():
            refuse_difference(read_header(self.folder), header, self.folder)
            return
        if os.fstat(self._fd).st_size:
            raise DataError(f"{self.folder} holds {TURNS} without {HEADER}: name another folder with --out")
        tasks = (
            SuiteTask(task_id=item.task.task_id, task_hash=item.task.text_hash, level=item.level, family=item.family)
            for item in suite.tasks
        )
        self._write(TASKS, tasks)
        self._write(HEADER, [header], indent=2)  # last: with it the folder is a run

    def _write(self, name: str, records: Iterable[BaseModel], indent: int | None = None) -> None:
        """Make a file that appears when it is complete."""
        text = "".join(record.model_dump_json(indent=indent) + "\n" for record in records)
        try:
            write_whole(self.folder / name, text)
        except OSError as exc:
            raise self._cannot(exc) from exc

    def _cut(self) -> None:
        data = (self.folder / TURNS).read_bytes()
        os.ftruncate(self._fd, data.rfind(b"\n") + 1)

    def _cannot(self, exc: OSError) -> StorageError:
        return StorageError(
            f"{self.folder} cannot be written ({exc.strerror or exc}): see to room and permissions; what was finished "
            "stays, and the same command goes on"
        )


def write_whole(path: Path, text: str) -> None:
    """Write a file that is never seen in part; raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _by_place(turns: Iterable[BenchTurn]) -> tuple[dict[Place, list[BenchTurn]], dict[Place, BenchTurn]]:
    """Of each trajectory its judged turns up to the first that is missing, and the one that the gym lost."""
    found: defaultdict[Place, dict[int, BenchTurn]] = defaultdict(dict)
    for one in turns:
        found[one.task_id, one.sample][one.turn] = one
    done: dict[Place, list[BenchTurn]] = {}
    lost: dict[Place, BenchTurn] = {}
    for place, numbered in found.items():
        history = done[place] = []
        for number in range(1, len(numbered) + 1):
            turn = numbered.get(number)
            if turn is None:
                break
            if turn.result.status is EvalStatus.INFRA_ERROR:
                lost[place] = turn
                break
            history.append(turn)
    return done, lost
