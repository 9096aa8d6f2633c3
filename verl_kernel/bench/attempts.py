# SPDX-License-Identifier: Apache-2.0
"""From the judged answers of a bench to what the scores need of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.bench.run_files import read_run, read_tasks
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import DataError
from verl_kernel.figures.asked import Asked, AskedTask
from verl_kernel.figures.attempts import Attempt
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.record import Scores
from verl_kernel.figures.scoring import score
from verl_kernel.figures.speed_of_light import roofline_share, sol_score


def attempt(turn: BenchTurn) -> Attempt:
    """What the scores need of an answer; a decoy that the gym only recorded is none of its kernels' work either."""
    result, tokens = turn.result, (turn.prompt_tokens, turn.completion_tokens)
    share, sol = _nearness(result) if result.rewarded else (None, None)
    return Attempt(
        task=turn.task_id, sample=turn.sample, turn=turn.turn, status=_status(result), correct=result.rewarded,
        compiled=bool(result.compiled),
        speedup=_positive(result.speedup) if result.rewarded else None,
        sure_speedup=_positive(result.sure_speedup) if result.rewarded else None,
        roofline=share, sol=sol, tokens=None if tokens[0] is None or tokens[1] is None else tokens[0] + tokens[1],
        level=turn.level, family=turn.family,
    )  # fmt: skip


def asked_of(header: RunHeader, tasks: Sequence[SuiteTask], turns: Sequence[BenchTurn]) -> Asked:
    """What a run was asked for; tasks that nothing names stand as `unanswered task 1`, ...

    Raises:
        DataError: the answers are to more tasks than the header counts.
    """
    # The first tells the place, which must not depend on who answered first: intervals draw tasks by their places.
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
    """Header and scores of a run.

    Raises:
        DataError: the folder holds no run that can be read.
    """
    header, turns = read_run(folder)
    asked = asked_of(header, read_tasks(folder), turns)
    return header, score([attempt(one) for one in turns], asked, bootstrap)


def _status(result: EvalResult) -> str:
    is_decoy = result.status is EvalStatus.OK and bool(result.decoy_kernel)
    return (EvalStatus.DECOY if is_decoy else result.status).value


def _nearness(result: EvalResult) -> tuple[float | None, float | None]:
    """Share of the roofline and SOL score."""
    medians = [None if one is None else _positive(one.median) for one in (result.kernel_ms, result.reference_ms)]
    (kernel, reference), roofline = medians, _positive(result.roofline_ms)
    if kernel is None or roofline is None:
        return None, None
    sol = None if reference is None else sol_score(kernel, reference, roofline)
    return roofline_share(kernel, roofline), sol


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None
