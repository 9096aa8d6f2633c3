# SPDX-License-Identifier: Apache-2.0
"""Computes the scores of a run from its answers; pass@k is that of Chen et al., arXiv 2107.03374, eq. 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from verl_kernel.figures.attempts import Asked, AskedTask, Attempt, best_by_task
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.figures import CRITERIA, Ratio, known_figures, ratio
from verl_kernel.figures.record import Estimate, Figures, PassAtK, Scores, View, Views
from verl_kernel.figures.views import MISSING, Samples, all_answers, best_of_history, last_turn, samples_of


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Return the unbiased estimate from n samples of which c passed: 1 - C(n - c, k) / C(n, k).

    Raises:
        ValueError: k is not between 1 and n, or c not between 0 and n.
    """
    if not 1 <= k <= samples or not 0 <= passed <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {passed} passed is not defined")
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def best_of_k(values: Sequence[float], k: int) -> float:
    """Return the expected largest of k values drawn without replacement; of zeros and ones it is `pass_at_k`.

    Raises:
        ValueError: k is not between 1 and the number of values.
    """
    count = len(values)
    if not 1 <= k <= count:
        raise ValueError(f"the best of {k} of {count} values is not defined")
    # The i-th smallest, counted from 0, is the largest where the others are among the i below it.
    return sum(value * (comb(i, k - 1) / comb(count, k)) for i, value in enumerate(sorted(values)))


def passes(samples: Samples, asked: Asked, bootstrap: Bootstrap) -> tuple[PassAtK, ...]:
    """Return pass@k for k = 1, 2, 4, ... and n, by every criterion, of last answers and of best ones."""
    views: tuple[tuple[View, Sequence[Attempt]], ...] = (
        ("last turn", last_turn(samples, asked.turns)),
        ("best of history", best_of_history(samples, asked.turns)),
    )
    tasks = [one.task for one in asked.tasks]
    return tuple(
        _passing(ratio(criterion, answers, tasks), k, criterion, view, bootstrap)
        for view, answers in views
        for criterion in CRITERIA
        for k in _ks(asked.samples)
    )


def _ks(samples: int) -> list[int]:
    powers = [2**exponent for exponent in range(samples.bit_length())]
    return [k for k in dict.fromkeys([*powers, samples]) if 0 < k <= samples]


def _passing(found: Ratio, k: int, criterion: str, view: View, bootstrap: Bootstrap) -> PassAtK:
    known = found.counts >= k
    pairs = zip(found.counts, found.sums, known, strict=True)
    values = np.array([pass_at_k(int(count), round(passed), k) if enough else 0.0 for count, passed, enough in pairs])
    (estimate,) = bootstrap.estimates({criterion: Ratio(values, known.astype(np.float64))}).values()
    return PassAtK(k=k, criterion=criterion, view=view, estimate=estimate, tasks=int(known.sum()))


def score(attempts: Sequence[Attempt], asked: Asked, bootstrap: Bootstrap | None = None) -> Scores:
    """Return the scores of a run.

    Args:
        attempts: the run's answers, each once.
        asked: the tasks, samples and turns that the run was asked for; a sample without an answer counts as a failure.
        bootstrap: how intervals are drawn.

    Raises:
        DataError: an answer was not asked for, or occurs twice.
    """
    asked.refuse_others(attempts)
    bootstrap = bootstrap or Bootstrap()
    samples = samples_of(attempts, asked)
    scorer = _Scorer(samples, bootstrap)
    turns = range(1, asked.turns + 1)
    return Scores(
        tasks=len(asked.tasks), samples=asked.samples, turns=asked.turns, answers=len(attempts),
        lost=sum(one.lost for one in attempts), missing=sum(not found for found in samples.values()),
        ended_early=sum(bool(found) and found[-1].turn < asked.turns for found in samples.values()),
        verl_acc=_verl_acc(samples, asked, bootstrap), overall=scorer.views(asked.tasks, turns),
        by_turn=tuple(scorer.views(asked.tasks, [turn]) for turn in turns),
        by_level=scorer.groups(asked.tasks, turns, lambda one: one.level),
        by_family=scorer.groups(asked.tasks, turns, lambda one: one.family),
        passes=passes(samples, asked, bootstrap),
        confidence=bootstrap.confidence, resamples=bootstrap.resamples, seed=bootstrap.seed,
    )  # fmt: skip


def novel_best(attempts: Sequence[Attempt], bootstrap: Bootstrap | None = None) -> Estimate:
    """Return the share of tasks whose best answer is novel, of those with a correct one."""
    found = best_by_task([one for one in attempts if not one.lost])
    sums = np.array([float(bool(one.novel)) for one in found.values()])
    counts = np.array([float(one.novel is not None) for one in found.values()])
    return (bootstrap or Bootstrap()).estimates({"novel": Ratio(sums, counts)})["novel"]


class _Scorer:
    """Computes figures of parts of a run."""

    def __init__(self, samples: Samples, bootstrap: Bootstrap) -> None:
        self._samples, self._bootstrap = samples, bootstrap
        self._known = known_figures([one for found in samples.values() for one in found])

    def views(self, tasks: Sequence[AskedTask], turns: Sequence[int]) -> Views:
        """Return the three views of some tasks, until the last of some turns."""
        names = [one.task for one in tasks]
        wanted, until = set(names), max(turns, default=0)
        samples = {place: found for place, found in self._samples.items() if place[0] in wanted}
        parts = (all_answers(samples, turns), last_turn(samples, until), best_of_history(samples, until))
        every, last, best = (self._figures(answers, names) for answers in parts)
        return Views(all_answers=every, last_turn=last, best_of_history=best, tokens=_tokens(samples, until))

    def groups(
        self, tasks: Sequence[AskedTask], turns: Sequence[int], key: Callable[[AskedTask], object]
    ) -> dict[str, Views]:
        """Return the views of each group of tasks, by name; empty if no task states its group."""
        if all(key(one) is None for one in tasks):
            return {}
        names = {one.task: "unknown" if key(one) is None else str(key(one)) for one in tasks}
        return {
            name: self.views([one for one in tasks if names[one.task] == name], turns)
            for name in sorted(set(names.values()), key=lambda name: (name == "unknown", name))
        }

    def _figures(self, answers: Sequence[Attempt], tasks: Sequence[str]) -> Figures:
        lost = sum(one.lost for one in answers)
        return Figures(
            answers=len(answers) - lost,
            missing=sum(one.status == MISSING for one in answers),
            lost=lost,
            values=self._bootstrap.estimates({name: ratio(name, answers, tasks) for name in self._known}),
        )


def _verl_acc(samples: Samples, asked: Asked, bootstrap: Bootstrap) -> Estimate:
    """Return the share of all requested samples whose last answer is correct; a lost answer counts as wrong."""
    place = {one.task: number for number, one in enumerate(asked.tasks)}
    sums = np.zeros(len(place))
    for one in last_turn(samples, asked.turns):
        sums[place[one.task]] += one.correct and not one.lost
    found = Ratio(sums, np.full(len(place), float(asked.samples)))
    return bootstrap.estimates({"acc": found})["acc"]


def _tokens(samples: Samples, until: int) -> float | None:
    spent = [one.tokens for found in samples.values() for one in found if one.turn <= until]
    if not spent or not samples or None in spent:
        return None
    return sum(tokens for tokens in spent if tokens is not None) / len(samples)
