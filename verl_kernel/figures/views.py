# SPDX-License-Identifier: Apache-2.0
"""The answers that a figure covers: all, or each sample's last or best one until a turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from verl_kernel.figures.attempts import Attempt, RunPlan, best

MISSING = "missing"
"""Status of the attempt that replaces a sample without any answer."""
Samples = dict[tuple[str, int], list[Attempt]]
"""Maps task and sample to the sample's answers, in order of turns; empty if none came."""


def samples_of(attempts: Sequence[Attempt], plan: RunPlan) -> Samples:
    """Return the answers of every sample that was asked for."""
    by_sample: defaultdict[tuple[str, int], list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda attempt: attempt.turn):
        by_sample[attempt.task, attempt.sample].append(attempt)
    keys = ((task.task, sample) for task in plan.tasks for sample in range(plan.samples))
    return {key: _in_turn(by_sample[key]) for key in keys}


def _in_turn(history: Sequence[Attempt]) -> list[Attempt]:
    """Return a sample's answers, each with whether the one before it was wrong."""
    following = [
        replace(attempt, after_wrong=None if before.lost else not before.correct)
        for before, attempt in pairwise(history)
    ]
    return [*history[:1], *following]


def all_answers(samples: Samples, turns: Sequence[int]) -> list[Attempt]:
    """Return every answer at one of these turns; a sample without any answer is one failure at turn 1."""
    answers = [attempt for history in samples.values() for attempt in history if attempt.turn in turns]
    return answers + [missing(*key) for key, history in samples.items() if not history and 1 in turns]


def last_turn(samples: Samples, until: int) -> list[Attempt]:
    """Return each sample's last answer until a turn."""
    return _one_per_sample(samples, until, lambda history: history[-1])


def best_of_history(samples: Samples, until: int) -> list[Attempt]:
    """Return each sample's best answer until a turn."""
    # The best one tends to follow a wrong one: that says nothing of how often wrong ones are repaired.
    return _one_per_sample(samples, until, lambda history: replace(best(history), after_wrong=None))


def missing(task: str, sample: int) -> Attempt:
    """Return the failure at turn 1 that replaces a sample without any answer."""
    return Attempt(task=task, sample=sample, turn=1, status=MISSING, correct=False)


def _one_per_sample(samples: Samples, until: int, choose: Callable[[list[Attempt]], Attempt]) -> list[Attempt]:
    histories = {key: [attempt for attempt in history if attempt.turn <= until] for key, history in samples.items()}
    return [choose(history) if history else missing(*key) for key, history in histories.items()]
