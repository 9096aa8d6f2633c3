# SPDX-License-Identifier: Apache-2.0
"""The scores of a run, the source of its times, and the comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask, read_answers, read_run, read_tasks
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt, PlannedTask, RunPlan, attempt_of
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.comparison import FigureComparison, Side, compare
from verl_kernel.figures.record import FrozenRecord, Scores
from verl_kernel.figures.scoring import score
from verl_kernel.reward.novelty import ColdStart

CLOCKS = {
    "simulated": "simulated: a model of a GPU, no measurement",
    "simulated_unvalidated": "simulated_unvalidated: a model of a GPU that was compared with no measurement",
    "cuda_event": "measured on a GPU",
}
_ALIKE = ("format", "suite", "suite_hash", "tasks", "started")
"""Fields of a header that are not compared: they must agree anyway, or their difference does not matter."""


def timing_sources(turns: Iterable[BenchTurn]) -> list[str]:
    """Return the clocks that timed some answers, sorted; empty where no kernel was timed."""
    return sorted({turn.result.timing_source for turn in turns if turn.result.timing_source is not None})


def clock(turns: Iterable[BenchTurn]) -> str:
    """Return the source of the times, and their meaning."""
    sources = timing_sources(turns)
    if not sources:
        return "none: no kernel was timed"
    words = [CLOCKS.get(source, source) for source in sources]
    return words[0] if len(words) == 1 else f"mixed, and not comparable: {'; '.join(words)}"


def times(turns: Iterable[BenchTurn]) -> str:
    """Return the source of the times in two or three words, for a title."""
    sources = timing_sources(turns)
    return f"{' and '.join(sources)} times" if sources else "nothing timed"


def baseline(header: RunHeader, turns: Iterable[BenchTurn]) -> str:
    """Return what speedups are over, in a few words; for `best` also how often that was the compiled reference."""
    if header.baseline != "best":
        return header.baseline
    modes = {turn.task_id: turn.result.reference_mode for turn in turns if turn.result.reference_mode is not None}
    compiled = sum(mode == "compile" for mode in modes.values())
    return f"the faster of eager and compile (compile for {compiled} of {len(modes)} timed tasks)"


def attempt(turn: BenchTurn, cold_start: ColdStart | None = None) -> Attempt:
    """Return what figures need to know about an answer; whether it is novel only with a cold start."""
    tokens = (turn.prompt_tokens, turn.completion_tokens)
    return attempt_of(
        turn.result,
        task=turn.task_id,
        sample=turn.sample,
        turn=turn.turn,
        level=turn.level,
        family=turn.family,
        tokens=None if tokens[0] is None or tokens[1] is None else tokens[0] + tokens[1],
        novelty=None if cold_start is None or turn.code is None else cold_start.novelty(turn.code),
    )


def run_plan(header: RunHeader, tasks: Sequence[SuiteTask], turns: Sequence[BenchTurn]) -> RunPlan:
    """Return the tasks, samples and turns a run was asked for; tasks without a name become `unanswered task 1`, ...

    Raises:
        DataError: the answers are to more tasks than the header counts.
    """
    # A name's first entry fixes its place, which must not depend on the order of answers: intervals draw by place.
    entries: list[BenchTurn | SuiteTask] = [*tasks, *sorted(turns, key=lambda turn: turn.task_id), *tasks]
    named = {entry.task_id: PlannedTask(entry.task_id, entry.level, entry.family) for entry in entries}
    missing = header.tasks - len(named)
    if missing < 0:
        raise DataError(
            f"the run's header counts {header.tasks} tasks and its answers are to {len(named)}: "
            "give each run a folder of its own"
        )
    unnamed = (PlannedTask(f"unanswered task {number}") for number in range(1, missing + 1))
    return RunPlan((*named.values(), *unnamed), header.samples, header.turns)


def score_run(
    folder: Path, bootstrap: Bootstrap | None = None, cold_start: ColdStart | None = None
) -> tuple[RunHeader, Scores]:
    """Return the header and the scores of a run; with a cold start, also how much of it is novel.

    Raises:
        DataError: the folder holds no readable run.
    """
    header, turns = read_run(folder)
    plan = run_plan(header, read_tasks(folder), turns)
    return header, score([attempt(turn, cold_start) for turn in turns], plan, bootstrap)


class RunComparison(FrozenRecord):
    """The differences of two runs in settings and in figures."""

    a: str
    b: str
    """The runs' folders, as they were named."""
    settings: dict[str, tuple[str, str]]
    """Settings that differ, by name: of a and of b."""
    times: str
    """Source of the times of both runs."""
    baseline: str
    """Mode of the reference that the speedups of both runs are over."""
    comparison: FigureComparison


def compare_runs(a: Path, b: Path, bootstrap: Bootstrap | None = None) -> RunComparison:
    """Compare two runs of one suite.

    Raises:
        DataError: a folder holds no run, or the runs are of different suites, baselines or clocks.
    """
    runs = [(folder, *read_answers(folder)) for folder in (a, b)]
    _refuse_different(*runs)
    tasks = [*read_tasks(a), *read_tasks(b), *(_task(turn) for _, _, turns in runs for turn in turns)]
    sides = [Side([attempt(turn) for turn in turns], run_plan(header, tasks, turns)) for _, header, turns in runs]
    compared = compare(sides[0], sides[1], bootstrap)
    settings, answers = _differences(runs[0][1], runs[1][1]), [turn for _, _, turns in runs for turn in turns]
    return RunComparison(
        a=str(a),
        b=str(b),
        settings=settings,
        times=clock(answers),
        baseline=runs[0][1].baseline,
        comparison=compared,
    )


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
