# SPDX-License-Identifier: Apache-2.0
"""The figures once more, by plain loops over answers: what the package's sums and weights must agree with."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from verl_kernel.figures.attempts import Attempt, PlannedTask, RunPlan

STATUSES = ("ok", "incorrect", "unsafe", "hacking", "decoy", "compile_error", "infra_error")
SPEEDUPS = (0.25, 0.5, 1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 3.0)
LEVELS, FAMILIES = (1, 2, None), ("map", "row", None)


@st.composite
def runs(draw: st.DrawFn, most_tasks: int = 4) -> tuple[list[Attempt], RunPlan]:
    """Answers of a run, some of which never came, and what it was asked for."""
    tasks = [
        PlannedTask(f"t{number}", draw(st.sampled_from(LEVELS)), draw(st.sampled_from(FAMILIES)))
        for number in range(draw(st.integers(1, most_tasks)))
    ]
    asked = RunPlan(tuple(tasks), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    attempts = []
    for task, sample in itertools.product(tasks, range(asked.samples)):
        before = None
        for turn in range(1, 1 + draw(st.integers(0, asked.turns))):
            after_wrong = None if before is None or before.lost else not before.correct
            before = replace(draw(answers(task, sample, turn)), after_wrong=after_wrong)
            attempts.append(before)
    return draw(st.permutations(attempts)), asked


@st.composite
def answers(draw: st.DrawFn, task: PlannedTask, sample: int, turn: int) -> Attempt:
    status = draw(st.one_of(st.just("ok"), st.sampled_from(STATUSES)))  # correct ones have to meet in a sample
    correct = status == "ok" and draw(st.integers(0, 3)) > 0
    speedup = draw(st.sampled_from((None, *SPEEDUPS))) if correct else None
    sure = draw(st.sampled_from((None, *SPEEDUPS))) if correct else None
    predicted = draw(st.sampled_from((None, *SPEEDUPS))) if correct else None
    share = st.one_of(st.none(), st.floats(0.0, 1.0)) if correct else st.none()
    return Attempt(
        task.task, sample, turn, status, correct, draw(st.booleans()), speedup, sure, draw(share), draw(share),
        draw(st.one_of(st.none(), st.integers(0, 99))), task.level, task.family,
        predicted_low=predicted,
    )  # fmt: skip


def share(answers: Sequence[Attempt], holds: Callable[[Attempt], bool]) -> float | None:
    judged = [one for one in answers if not one.lost]
    return len([one for one in judged if holds(one)]) / len(judged) if judged else None


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def geometric(values: Sequence[float]) -> float | None:
    return math.prod(values) ** (1.0 / len(values)) if values else None


def lower_end(one: Attempt) -> float:
    """Of the interval of a speedup, which is predicted or measured; 0 where it is unknown."""
    ends = [end for end in (one.predicted_low, one.sure_speedup) if end is not None]
    return ends[0] if ends else 0.0


def figure(name: str, answers: Sequence[Attempt]) -> float | None:
    """One figure by its name, from the words of its definition."""
    judged = [one for one in answers if not one.lost]
    if name.startswith("fast@"):
        threshold = float(name.split()[0].removeprefix("fast@"))
        if name.endswith("(sure)"):
            return share(answers, lambda one: one.correct and lower_end(one) > threshold)
        return share(answers, lambda one: one.correct and (one.speedup or 0.0) > threshold)
    return {
        "correct": lambda: share(answers, lambda one: one.correct),
        "compiled": lambda: share(answers, lambda one: one.compiled),
        "unsafe": lambda: share(answers, lambda one: one.status == "unsafe"),
        "hacking": lambda: share(answers, lambda one: one.status in {"hacking", "decoy"}),
        "speedup (correct)": lambda: geometric([one.speedup for one in judged if one.correct and one.speedup]),
        "speedup (all)": lambda: geometric([(one.correct and one.speedup) or 1.0 for one in judged]),
        "roofline": lambda: mean([one.roofline for one in judged if one.correct]),
        "repaired": lambda: mean([float(one.correct) for one in judged if one.after_wrong]),
        "SOL": lambda: mean([one.sol for one in judged if one.correct]),
    }[name]()


def percentile(values: Sequence[float], share: float) -> float:
    """By linear interpolation between order statistics."""
    ordered, place = sorted(values), share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def drawn(tasks: Sequence[str], resamples: int, seed: int) -> list[list[str]]:
    """The tasks of each resample."""
    numbers = np.random.default_rng(seed).integers(len(tasks), size=(resamples, len(tasks)))
    return [[tasks[number] for number in row] for row in numbers]


def interval(
    tasks: Sequence[str], value: Callable[[list[str]], float | None], resamples: int, seed: int, confidence: float
) -> tuple[float | None, float | None]:
    """Percentiles of a figure over resamples of tasks."""
    if len(tasks) < 2 or value(list(tasks)) is None:
        return None, None
    known = [found for some in drawn(tasks, resamples, seed) if (found := value(some)) is not None]
    tail = (1.0 - confidence) / 2.0
    return (percentile(known, tail), percentile(known, 1.0 - tail)) if known else (None, None)
