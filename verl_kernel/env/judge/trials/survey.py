# SPDX-License-Identifier: Apache-2.0
"""The outcomes of one candidate on many inputs: a row of the table that ACES reads.

A survey goes on after a failed trial. It gives no verdict, and has neither ablation nor clock. It loads a candidate and
compares its outputs with the reference's, as an evaluation does. All candidates of a task get the same inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from verl_kernel.env.judge.evaluation import CandidateEvaluation
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.steps import EvaluationContext, EvaluationSteps, LoadedCandidate
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
    """Return how each trial ended: `ok`, `incorrect`, or the status of another failure.

    If the gate or the load refuses the candidate, or if it games the evaluation, all remaining trials have that status.
    If its time runs out, the remaining trials are None; the time grows with the number of trials.
    """
    trials = SurveyTrials(context.options, kinds)
    steps = EvaluationSteps(reference, trials, times=None)
    (result,) = CandidateEvaluation(context, [request], [steps]).run()
    outcomes = trials.outcomes
    rest_status = None if result.status in (EvalStatus.OK, EvalStatus.TIMEOUT) and outcomes else result.status
    return outcomes + [rest_status] * (len(kinds) - len(outcomes))


class SurveyTrials:
    """Trials of given kinds; a failed one does not stop the next.

    Args:
        options: how to judge.
        kinds: of the trials, in order.
    """

    def __init__(self, options: GymOptions, kinds: Sequence[Kind]) -> None:
        self._options, self._kinds = options, tuple(kinds)
        self.outcomes: list[Outcome] = []
        """Outcomes of the trials so far."""

    def take(self, candidate: LoadedCandidate) -> None:
        """Do the trials until the time runs out (raises Verdict if the candidate games the evaluation)."""
        # The limit is meant for the usual number of trials.
        candidate.session.seconds_left *= max(1.0, len(self._kinds) / self._options.correctness_trials)
        candidate.begin_trials(self._options.memory_checks)
        for number, kind in enumerate(self._kinds):
            self.outcomes.append(_outcome(candidate, number, kind))
            if self.outcomes[-1] is EvalStatus.TIMEOUT:
                return


def _outcome(candidate: LoadedCandidate, number: int, kind: Kind) -> EvalStatus:
    session = candidate.session
    try:
        is_right = candidate.watched(number, kind, partial(session.forward, number, kind=kind)).ok
    except Verdict as verdict:
        if verdict.status is EvalStatus.HACKING:
            raise
        if verdict.status is not EvalStatus.TIMEOUT:
            session.client.runner.end()  # its unfinished record would not agree with the next trial
            candidate.loading.again(session)
        return verdict.status
    return EvalStatus.OK if is_right else EvalStatus.INCORRECT
