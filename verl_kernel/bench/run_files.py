# SPDX-License-Identifier: Apache-2.0
"""Reads the files that a bench left in its folder: `run.json`, `turns.jsonl` and `tasks.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from verl_kernel.bench.records import FORMAT, BenchTurn, RunHeader, SuiteTask
from verl_kernel.errors import DataError

HEADER, TURNS, TASKS = "run.json", "turns.jsonl", "tasks.jsonl"
Line = TypeVar("Line", bound=BaseModel)


def read_run(folder: Path) -> tuple[RunHeader, list[BenchTurn]]:
    """Return the header of a run and its judged answers, in the order of the file.

    An incomplete last line, as a killed run leaves it, is skipped. Of two answers to the same task, sample and turn
    the later one counts: the gym had failed to judge the earlier one.

    Raises:
        DataError: there is no such run, it has another format, or one of its files is damaged; the message names the
            line.
    """
    return read_header(folder), read_turns(folder)


def read_answers(folder: Path) -> tuple[RunHeader, list[BenchTurn]]:
    """Read a run like `read_run`, for callers that need at least one judged answer.

    Raises:
        DataError: the run has no judged answer; otherwise as `read_run`.
    """
    header, turns = read_run(folder)
    if not turns:
        raise DataError(f"{folder} holds no judged answer: its command of `verl-kernel bench`, given again, goes on")
    return header, turns


def read_turns(folder: Path) -> list[BenchTurn]:
    """Return the judged answers of a run; see `read_run`."""
    turns = {(one.task_id, one.sample, one.turn): one for one in _lines(folder / TURNS, BenchTurn)}
    return list(turns.values())


def read_header(folder: Path) -> RunHeader:
    """Return the header of a run.

    Raises:
        DataError: there is no such run, or it has another format, or the header is damaged.
    """
    path = folder / HEADER
    if not path.is_file():
        raise DataError(f"{folder} holds no {HEADER}: name the folder that `verl-kernel bench --out` wrote")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise DataError(f"{path} cannot be read ({exc}): run the bench again in a new folder") from None
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise DataError(
            f"{path} has format {found!r} and this version reads format {FORMAT}: use the version that wrote it"
        )
    try:
        return RunHeader.model_validate(data)
    except ValidationError as exc:
        raise DataError(f"{path} is damaged ({_first(exc)}): run the bench again in a new folder") from None


def read_tasks(folder: Path) -> list[SuiteTask]:
    """Return the tasks of a run's suite, in order; empty if the run did not store them.

    Raises:
        DataError: the file is damaged; the message names the line.
    """
    return list(_lines(folder / TASKS, SuiteTask)) if (folder / TASKS).is_file() else []


def _lines(path: Path, kind: type[Line]) -> Iterator[Line]:
    if not path.is_file():
        return
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError as exc:
        raise DataError(f"{path} cannot be read: {exc}") from None
    *whole, _cut = text.split("\n")
    for number, line in enumerate(whole, 1):
        try:
            yield kind.model_validate_json(line.encode("utf-8", errors="surrogateescape"))
        except ValidationError as exc:
            raise DataError(
                f"{path}, line {number} is damaged ({_first(exc)}): take that line out, and go on with the run"
            ) from None


def _first(exc: ValidationError) -> str:
    error = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, error["loc"]))
    return f"{where}: {error['msg']}" if where else str(error["msg"])
