# SPDX-License-Identifier: Apache-2.0
"""Compares two bench runs: decides whether they may be compared, and how they differ."""

from __future__ import annotations

from pathlib import Path

from verl_kernel.bench.attempts import asked_of, attempt
from verl_kernel.bench.clock import clock, timing_sources
from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.bench.run_files import read_answers, read_tasks
from verl_kernel.errors import DataError
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.comparison import Comparison, Side, compare
from verl_kernel.figures.record import Record

_ALIKE = ("format", "suite", "suite_hash", "tasks", "started")
"""Fields of a header that are not compared: they must agree anyway, or their difference does not matter."""


class RunComparison(Record):
    """The differences of two runs in settings and in figures."""

    a: str
    b: str
    """The runs' folders, as they were named."""
    settings: dict[str, tuple[str, str]]
    """Settings that differ, by name: of a and of b."""
    times: str
    """Source of the times of both runs."""
    comparison: Comparison


def compare_runs(a: Path, b: Path, bootstrap: Bootstrap | None = None) -> RunComparison:
    """Compare two runs of one suite.

    Raises:
        DataError: a folder holds no run, or the runs are of different suites, baselines or clocks.
    """
    runs = [(folder, *read_answers(folder)) for folder in (a, b)]
    _refuse_different(*runs)
    known = [*read_tasks(a), *read_tasks(b), *(_task(one) for _, _, turns in runs for one in turns)]
    sides = [Side([attempt(one) for one in turns], asked_of(header, known, turns)) for _, header, turns in runs]
    compared = compare(sides[0], sides[1], bootstrap)
    settings, answers = _differences(runs[0][1], runs[1][1]), [one for _, _, turns in runs for one in turns]
    return RunComparison(a=str(a), b=str(b), settings=settings, times=clock(answers), comparison=compared)


def _refuse_different(a: tuple[Path, RunHeader, list[BenchTurn]], b: tuple[Path, RunHeader, list[BenchTurn]]) -> None:
    if a[1].suite_hash != b[1].suite_hash:
        raise DataError(
            f"{a[0]} ran suite {a[1].suite} and {b[0]} suite {b[1].suite}, whose tasks differ: "
            "compare runs of one suite"
        )
    if a[1].baseline != b[1].baseline:
        raise DataError(
            f"{a[0]} has speedups over {a[1].baseline} and {b[0]} over {b[1].baseline}: "
            "run both with the same --baseline"
        )
    sources = timing_sources([*a[2], *b[2]])
    if len(sources) > 1:
        raise DataError(
            f"the times of {a[0]} and {b[0]} are from different clocks ({', '.join(sources)}): "
            "run both on the same device"
        )


def _task(turn: BenchTurn) -> SuiteTask:
    return SuiteTask(task_id=turn.task_id, task_hash=turn.task_hash, level=turn.level, family=turn.family)


def _differences(a: RunHeader, b: RunHeader) -> dict[str, tuple[str, str]]:
    pairs = ((key, getattr(a, key), getattr(b, key)) for key in RunHeader.model_fields if key not in _ALIKE)
    return {key: (str(ours), str(theirs)) for key, ours, theirs in pairs if ours != theirs}
