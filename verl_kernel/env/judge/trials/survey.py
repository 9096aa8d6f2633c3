# SPDX-License-Identifier: Apache-2.0
"""One candidate on many inputs, none left out because another one failed: a row of the table that ACES reads.

A survey gives no verdict: it knows neither ablation nor clock. It loads a candidate and compares its outputs with the
reference's as the trials of an evaluation do, on inputs that are the same for every candidate of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.evaluation import Evaluation
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalStatus

Outcome = EvalStatus | None
"""How one trial ended; None if it was not run."""


class Survey(Evaluation):
    """A candidate's way through gate, load and trials of given kinds; used once."""

    def outcomes(self, request: EvalRequest, kinds: Sequence[Kind]) -> list[Outcome]:
        """How each trial ended: `ok`, `incorrect`, or what the candidate did instead.

        A candidate that the gate or the load refuses, or that games the evaluation, has that status in all trials left.
        One that runs out of time is not run any further: it has as much as an evaluation of so many trials gives it.
        """
        self._kinds, self._outcomes = tuple(kinds), list[Outcome]()
        result = self.run(request)
        left = None if result.status in (EvalStatus.OK, EvalStatus.TIMEOUT) and self._outcomes else result.status
        return self._outcomes + [left] * (len(kinds) - len(self._outcomes))

    def _judge(self, session: CandidateSession) -> None:
        session.secret = self._draw_secret()
        session.seconds_left *= max(1.0, len(self._kinds) / self._options.correctness_trials)
        self._begin_trials(checked_in=-1)
        with self._stages.stage("correctness"):
            for number, kind in enumerate(self._kinds):
                self._outcomes.append(self._outcome(session, number, kind))
                if self._outcomes[-1] is EvalStatus.TIMEOUT:
                    return

    def _outcome(self, session: CandidateSession, number: int, kind: Kind) -> EvalStatus:
        try:
            right = self._watched(session, number, kind, partial(session.forward, number, kind=kind)).ok
        except Verdict as verdict:
            if verdict.status is EvalStatus.HACKING:
                raise
            if verdict.status is not EvalStatus.TIMEOUT:
                # A surviving runner has a partial trace, which would not match the seals of the next forward.
                session.client.runner.end()
                self._loading.again(session)
            return verdict.status
        return EvalStatus.OK if right else EvalStatus.INCORRECT
