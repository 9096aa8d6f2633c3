# SPDX-License-Identifier: Apache-2.0
"""One candidate on many inputs, none left out because another one failed: a row of the table that ACES reads.

A survey gives no verdict: it knows neither ablation nor clock. It loads a candidate and compares its outputs with the
reference's as the trials of an evaluation do, on inputs that are the same for every candidate of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from verl_kernel.env.judge.evaluation import Evaluation
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.steps import EvaluationContext, LoadedCandidate, Steps
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalStatus

Outcome = EvalStatus | None
"""How one trial ended; None if it was not run."""


def survey(
    context: EvaluationContext, reference: Reference, request: EvalRequest, kinds: Sequence[Kind]
) -> list[Outcome]:
    """How each trial ended: `ok`, `incorrect`, or what the candidate did instead.

    A candidate that the gate or the load refuses, or that games the evaluation, has that status in all trials left.
    One that runs out of time is not run any further: it has as much as an evaluation of so many trials gives it.
    """
    trials = SurveyTrials(context.options, kinds)
    result = Evaluation(context, reference, Steps(trials, times=None)).run(request)
    outcomes = trials.outcomes
    left = None if result.status in (EvalStatus.OK, EvalStatus.TIMEOUT) and outcomes else result.status
    return outcomes + [left] * (len(kinds) - len(outcomes))


class SurveyTrials:
    """Trials of given kinds, each done whatever became of the others.

    Args:
        options: as of an evaluation.
        kinds: of the trials, in order.
    """

    def __init__(self, options: GymOptions, kinds: Sequence[Kind]) -> None:
        self._options, self._kinds = options, tuple(kinds)
        self.outcomes: list[Outcome] = []
        """Of the trials so far."""

    def take(self, candidate: LoadedCandidate) -> None:
        """Do them until the time is up (raises Verdict on a candidate that games the evaluation)."""
        candidate.session.seconds_left *= max(1.0, len(self._kinds) / self._options.correctness_trials)
        candidate.begin_trials(self._options.memory_checks)
        for number, kind in enumerate(self._kinds):
            self.outcomes.append(_outcome(candidate, number, kind))
            if self.outcomes[-1] is EvalStatus.TIMEOUT:
                return


def _outcome(candidate: LoadedCandidate, number: int, kind: Kind) -> EvalStatus:
    session = candidate.session
    try:
        right = candidate.watched(number, kind, partial(session.forward, number, kind=kind)).ok
    except Verdict as verdict:
        if verdict.status is EvalStatus.HACKING:
            raise
        if verdict.status is not EvalStatus.TIMEOUT:
            session.client.runner.end()  # one that lives holds half a record, with which the next would not agree
            candidate.loading.again(session)
        return verdict.status
    return EvalStatus.OK if right else EvalStatus.INCORRECT
