# SPDX-License-Identifier: Apache-2.0
"""The durable record of a service: tasks, accepted evaluations and how they ended, in one SQLite file.

A row is committed before its evaluation is accepted, and stays after a kill of the service. Committed rows are in the
operating system's memory at once and on the disk a little later: a power cut may lose the last ones.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from verl_kernel.client.messages import (
    State,
    TaskText,
    evaluation_id,
    packed,
    unpacked,
)
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import ConfigError, StorageError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS evaluations (
    namespace TEXT, id TEXT, request TEXT, state TEXT, answer TEXT, starts INTEGER, changed REAL,
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unfinished ON evaluations (state, changed);
CREATE TABLE IF NOT EXISTS tasks (
    namespace TEXT, id TEXT, body TEXT, PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Ending:
    """How an evaluation ended."""

    state: State
    answer: str
    """JSON of an `EvalResult` if the state is `done`, else of a `Problem`; empty while it waits."""


class ServiceRecord:
    """A folder's record; all methods may be called from several threads.

    Args:
        folder: made if it does not exist; one service at a time uses it.

    Raises:
        ConfigError: the folder cannot be written, or holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._path = folder / "record.sqlite"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=1.0)
            self._path.chmod(0o600)
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._file.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as exc:
            raise ConfigError(
                f"serve.state is {folder}, where nothing can be recorded ({exc}): name a folder of your own that no "
                "other service uses"
            ) from exc

    def accept(self, requests: Sequence[EvalRequest]) -> None:
        """Record requests as waiting, all or none; those that have ended before begin again.

        Raises:
            StorageError: they cannot be recorded.
        """
        rows = [(request.task.namespace, evaluation_id(request), packed(request), time.time()) for request in requests]
        with self._writing() as file:
            file.executemany("INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, 'waiting', '', 0, ?)", rows)

    def end(self, namespace: str, name: str, ending: Ending) -> None:
        """Record how an evaluation ended.

        Raises:
            StorageError: it cannot be recorded.
        """
        values = (ending.state, ending.answer, time.time(), namespace, name)
        with self._writing() as file:
            file.execute(
                "UPDATE evaluations SET state = ?, answer = ?, changed = ? WHERE namespace = ? AND id = ?", values
            )

    def ending(self, namespace: str, name: str) -> Ending | None:
        """Return what is known of an evaluation; None if the namespace has none of this id."""
        row = self._fetch_row("SELECT state, answer FROM evaluations WHERE namespace = ? AND id = ?", namespace, name)
        return None if row is None else Ending(cast(State, row[0]), row[1])

    def unfinished(self) -> list[tuple[EvalRequest, int]]:
        """Return requests that wait, in the order of their acceptance, and how often each one had begun.

        Each of them counts as begun once more.
        """
        with self._writing() as file:
            rows = file.execute(
                "SELECT request, starts FROM evaluations WHERE state = 'waiting' ORDER BY changed"
            ).fetchall()
            file.execute("UPDATE evaluations SET starts = starts + 1 WHERE state = 'waiting'")
        return [(unpacked(text), starts) for text, starts in rows]

    def forget_starts(self) -> None:
        """Count no start of what waits: this service ends as it should, so none of it can have ended it."""
        with self._writing() as file:
            file.execute("UPDATE evaluations SET starts = 0 WHERE state = 'waiting'")

    def store_task(self, namespace: str, name: str, task: TaskText) -> None:
        """Record a task under its id.

        Raises:
            StorageError: it cannot be recorded.
        """
        with self._writing() as file:
            body = json.dumps(task.model_dump())  # pydantic's own JSON refuses lone surrogates
            file.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", (namespace, name, body))

    def task(self, namespace: str, name: str) -> TaskText | None:
        """Return a task of a namespace by its id; None if there is none."""
        row = self._fetch_row("SELECT body FROM tasks WHERE namespace = ? AND id = ?", namespace, name)
        return None if row is None else TaskText(**json.loads(row[0]))

    def forget(self, before: float) -> None:
        """Delete evaluations that ended before a time, in seconds since the epoch."""
        with self._writing() as file:
            file.execute("DELETE FROM evaluations WHERE state != 'waiting' AND changed < ?", (before,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _fetch_row(self, query: str, *values: str) -> tuple[str, ...] | None:
        with self._lock:
            row: tuple[str, ...] | None = self._file.execute(query, values).fetchone()
        return row

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the file inside a transaction.

        Raises:
            StorageError: the disk is full, or the file cannot be written.
        """
        with self._lock:
            try:
                self._file.execute("BEGIN IMMEDIATE")
                yield self._file
                self._file.execute("COMMIT")
            except sqlite3.Error as exc:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise StorageError(f"{self._path} cannot be written ({exc}): free space on its disk") from exc
