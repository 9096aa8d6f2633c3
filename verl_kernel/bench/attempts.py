# SPDX-License-Identifier: Apache-2.0
"""Turns the judged answers of a bench into its scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.bench.run_files import read_run, read_tasks
from verl_kernel.errors import DataError
from verl_kernel.figures.asked import Asked, AskedTask
from verl_kernel.figures.attempts import Attempt, attempt_of
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.record import Scores
from verl_kernel.figures.scoring import score


def attempt(turn: BenchTurn) -> Attempt:
    """Return what figures need to know about an answer."""
    tokens = (turn.prompt_tokens, turn.completion_tokens)
    return attempt_of(
        turn.result, task=turn.task_id, sample=turn.sample, turn=turn.turn, level=turn.level, family=turn.family,
        tokens=None if tokens[0] is None or tokens[1] is None else tokens[0] + tokens[1],
    )  # fmt: skip


def asked_of(header: RunHeader, tasks: Sequence[SuiteTask], turns: Sequence[BenchTurn]) -> Asked:
    """Return the tasks, samples and turns a run was asked for; tasks without a name become `unanswered task 1`, ...

    Raises:
        DataError: the answers are to more tasks than the header counts.
    """
    # A name's first entry fixes its place, which must not depend on the order of answers: intervals draw by place.
    every: list[BenchTurn | SuiteTask] = [*tasks, *sorted(turns, key=lambda one: one.task_id), *tasks]
    named = {one.task_id: AskedTask(one.task_id, one.level, one.family) for one in every}
    missing = header.tasks - len(named)
    if missing < 0:
        raise DataError(
            f"the run's header counts {header.tasks} tasks and its answers are to {len(named)}: "
            "give each run a folder of its own"
        )
    unnamed = (AskedTask(f"unanswered task {number}") for number in range(1, missing + 1))
    return Asked((*named.values(), *unnamed), header.samples, header.turns)


def score_run(folder: Path, bootstrap: Bootstrap | None = None) -> tuple[RunHeader, Scores]:
    """Return the header and the scores of a run.

    Raises:
        DataError: the folder holds no readable run.
    """
    header, turns = read_run(folder)
    asked = asked_of(header, read_tasks(folder), turns)
    return header, score([attempt(one) for one in turns], asked, bootstrap)
