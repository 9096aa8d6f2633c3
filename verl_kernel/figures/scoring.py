# SPDX-License-Identifier: Apache-2.0
"""Computes the scores of a run from its answers; pass@k is that of Chen et al., arXiv 2107.03374, eq. 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from verl_kernel.figures.attempts import Attempt, PlannedTask, RunPlan, best_by_task
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


def passes(samples: Samples, plan: RunPlan, bootstrap: Bootstrap) -> tuple[PassAtK, ...]:
    """Return pass@k for k = 1, 2, 4, ... and n, by every criterion, of last answers and of best ones."""
    views: tuple[tuple[View, Sequence[Attempt]], ...] = (
        ("last turn", last_turn(samples, plan.turns)),
        ("best of history", best_of_history(samples, plan.turns)),
    )
    tasks = [task.task for task in plan.tasks]
    return tuple(
        _mean_pass_at_k(ratio(criterion, answers, tasks), k, criterion, view, bootstrap)
        for view, answers in views
        for criterion in CRITERIA
        for k in _ks(plan.samples)
    )


def _ks(samples: int) -> list[int]:
    powers = [2**exponent for exponent in range(samples.bit_length())]
    return [k for k in dict.fromkeys([*powers, samples]) if 0 < k <= samples]


def _mean_pass_at_k(successes: Ratio, k: int, criterion: str, view: View, bootstrap: Bootstrap) -> PassAtK:
    has_enough = successes.counts >= k
    pairs = zip(successes.counts, successes.sums, has_enough, strict=True)
    values = np.array([pass_at_k(int(count), round(passed), k) if enough else 0.0 for count, passed, enough in pairs])
    (estimate,) = bootstrap.estimates({criterion: Ratio(values, has_enough.astype(np.float64))}).values()
    return PassAtK(k=k, criterion=criterion, view=view, estimate=estimate, tasks=int(has_enough.sum()))


def score(attempts: Sequence[Attempt], plan: RunPlan, bootstrap: Bootstrap | None = None) -> Scores:
    """Return the scores of a run.

    Args:
        attempts: the run's answers, each once.
        plan: the tasks, samples and turns that the run was asked for; a sample without an answer counts as a failure.
        bootstrap: how intervals are drawn.

    Raises:
        DataError: an answer was not asked for, or occurs twice.
    """
    plan.refuse_others(attempts)
    bootstrap = bootstrap or Bootstrap()
    samples = samples_of(attempts, plan)
    scorer = _Scorer(samples, plan.turns, bootstrap)
    turns = range(1, plan.turns + 1)
    return Scores(
        tasks=len(plan.tasks),
        samples=plan.samples,
        turns=plan.turns,
        answers=len(attempts),
        lost=sum(attempt.lost for attempt in attempts),
        missing=sum(not answers for answers in samples.values()),
        ended_early=sum(bool(answers) and answers[-1].turn < plan.turns for answers in samples.values()),
        verl_acc=_verl_acc(samples, plan, bootstrap),
        overall=scorer.views(plan.tasks, turns),
        by_turn=tuple(scorer.views(plan.tasks, [turn]) for turn in turns),
        by_level=scorer.groups(plan.tasks, turns, lambda task: task.level),
        by_family=scorer.groups(plan.tasks, turns, lambda task: task.family),
        passes=passes(samples, plan, bootstrap),
        confidence=bootstrap.confidence,
        resamples=bootstrap.resamples,
        seed=bootstrap.seed,
    )


def novel_best(attempts: Sequence[Attempt], bootstrap: Bootstrap | None = None) -> Estimate:
    """Return the share of tasks whose best answer is novel, of those with a correct one."""
    best_answers = best_by_task([attempt for attempt in attempts if not attempt.lost])
    sums = np.array([float(bool(attempt.novel)) for attempt in best_answers.values()])
    counts = np.array([float(attempt.novel is not None) for attempt in best_answers.values()])
    return (bootstrap or Bootstrap()).estimates({"novel": Ratio(sums, counts)})["novel"]


class _Scorer:
    """Computes figures of parts of a run."""

    def __init__(self, samples: Samples, turns: int, bootstrap: Bootstrap) -> None:
        self._samples, self._bootstrap = samples, bootstrap
        self._figure_names = known_figures([answer for answers in samples.values() for answer in answers], turns)

    def views(self, tasks: Sequence[PlannedTask], turns: Sequence[int]) -> Views:
        """Return the three views of some tasks, until the last of some turns."""
        names = [task.task for task in tasks]
        chosen, until = set(names), max(turns, default=0)
        samples = {key: answers for key, answers in self._samples.items() if key[0] in chosen}
        parts = (all_answers(samples, turns), last_turn(samples, until), best_of_history(samples, until))
        every, last, best = (self._figures(answers, names) for answers in parts)
        return Views(all_answers=every, last_turn=last, best_of_history=best, tokens=_tokens(samples, until))

    def groups(
        self, tasks: Sequence[PlannedTask], turns: Sequence[int], key: Callable[[PlannedTask], object]
    ) -> dict[str, Views]:
        """Return the views of each group of tasks, by name; empty if no task states its group."""
        if all(key(task) is None for task in tasks):
            return {}
        names = {task.task: "unknown" if key(task) is None else str(key(task)) for task in tasks}
        return {
            name: self.views([task for task in tasks if names[task.task] == name], turns)
            for name in sorted(set(names.values()), key=lambda name: (name == "unknown", name))
        }

    def _figures(self, answers: Sequence[Attempt], tasks: Sequence[str]) -> Figures:
        lost = sum(attempt.lost for attempt in answers)
        return Figures(
            answers=len(answers) - lost,
            missing=sum(attempt.status == MISSING for attempt in answers),
            lost=lost,
            values=self._bootstrap.estimates({name: ratio(name, answers, tasks) for name in self._figure_names}),
        )


def _verl_acc(samples: Samples, plan: RunPlan, bootstrap: Bootstrap) -> Estimate:
    """Return the share of all requested samples whose last answer is correct; a lost answer counts as wrong."""
    index = {task.task: number for number, task in enumerate(plan.tasks)}
    sums = np.zeros(len(index))
    for attempt in last_turn(samples, plan.turns):
        sums[index[attempt.task]] += attempt.correct and not attempt.lost
    accuracy = Ratio(sums, np.full(len(index), float(plan.samples)))
    return bootstrap.estimates({"acc": accuracy})["acc"]


def _tokens(samples: Samples, until: int) -> float | None:
    token_counts = [attempt.tokens for answers in samples.values() for attempt in answers if attempt.turn <= until]
    if not token_counts or not samples or None in token_counts:
        return None
    return sum(tokens for tokens in token_counts if tokens is not None) / len(samples)
