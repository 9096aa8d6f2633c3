# SPDX-License-Identifier: Apache-2.0
"""The files of a bench: a header, `run.json`; `tasks.jsonl`, one line per task; `turns.jsonl`, one line per answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from verl_kernel.errors import DataError
from verl_kernel.figures.record import FrozenRecord
from verl_kernel.reward.record import JudgedTurn

FORMAT = 1
"""Version of the files' format; raised whenever an older file could be misread."""

Failure = Literal["no_code", "too_long", "context_overflow", "malformed"]
"""Why an answer holds no program: none in the text, cut at the token limit, prompt too long, or no text at all."""
HEADER, TURNS, TASKS = "run.json", "turns.jsonl", "tasks.jsonl"
Line = TypeVar("Line", bound=BaseModel)


class RunHeader(FrozenRecord):
    """The request of a run. A run continues only if everything except `started` is the same."""

    format: int = FORMAT
    suite: str
    suite_hash: str
    """SHA-256 over the hashes of the tasks' texts, in order."""
    prompt_hash: str = ""
    """SHA-256 over the tasks' names and prompts, in order."""
    tasks: int
    model: str
    """Name of the model at the endpoint, or name of its folder."""
    source: Literal["endpoint", "vllm", "kernels"]
    samples: int
    turns: int
    context: str
    """Which earlier turns a prompt shows: `concat`, `last`, `best_window` or `top_w`."""
    window: int | None = None
    """Number of earlier turns shown, if limited."""
    temperature: float
    top_p: float
    max_tokens: int
    """Limit of tokens of one answer."""
    total_tokens: int | None = None
    """Limit of tokens of a trajectory, prompts included: once it is reached, no further turn begins."""
    total_seconds: float | None = None
    feedback: str = "short"
    """Form of the message after a turn: `short`, `full` or `none`."""
    feedback_chars: int = 800
    seed: int
    device: str
    baseline: Literal["eager", "compile", "best"]
    """Mode of the reference that speedups are over; `best` is the faster of the other two, task by task."""
    gym: dict[str, object]
    """Options of the gym that differ from their defaults."""
    reward: dict[str, object] = Field(default_factory=dict)
    """Options of the reward that differ from their defaults."""
    versions: dict[str, str]
    started: str
    """Date and time, UTC, ISO 8601."""


class SuiteTask(FrozenRecord):
    """One task of the suite, a line of `tasks.jsonl`, so that a task without any answer is not forgotten."""

    task_id: str
    task_hash: str
    level: int | None = None
    family: str | None = None
    reference: str | None = None
    """Text of the program; null in runs that did not record it."""


class BenchTurn(JudgedTurn):
    """One answer of a model, with its verdict."""

    task_id: str
    task_hash: str
    """`env.Task.text_hash`: of the reference's text without comments and white space."""
    sample: Annotated[int, Field(ge=0)]
    turn: Annotated[int, Field(ge=1)]
    completion: str | None = None
    failure: Failure | None = None
    completion_tokens: int | None = None
    generate_s: float = 0.0
    judge_s: float = 0.0
    level: int | None = None
    family: str | None = None


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
    turns = {(turn.task_id, turn.sample, turn.turn): turn for turn in _lines(folder / TURNS, BenchTurn)}
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
    file_format = data.get("format") if isinstance(data, dict) else None
    if file_format != FORMAT:
        raise DataError(
            f"{path} has format {file_format!r} and this version reads format {FORMAT}: use the version that wrote it"
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
