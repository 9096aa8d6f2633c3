# SPDX-License-Identifier: Apache-2.0
"""The correctness stage: the trials of a plan, of which one runs in the other mode, and the ablation."""

from __future__ import annotations

from functools import partial
from typing import cast

from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.ipc.messages import Mode
from verl_kernel.env.judge.ablation import Ablation
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.output_check import difference
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.steps import LoadedCandidate
from verl_kernel.env.judge.trials.plan import FURTHER_TRIALS, Counts, TrialPlan, worst
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.result import EvalStatus, Trials
from verl_kernel.env.tamper.trace_checks import are_alike, only_kernels_compute, own_launches

# The trial in the other mode: with gradients recorded, and switched between train and eval where the task allows it.
#
# Trials and clocks run without gradients, in train mode. A program can read both, and could behave well only then. So
# one trial, at a secret place, runs in the other mode; there too the program must be right and launch kernels. If it
# runs something else in that mode, one more ablation checks that its output comes from its kernels there.


_FAILED = (EvalStatus.RUNTIME_ERROR, EvalStatus.OOM)
"""Statuses of an exception in a forward."""
WHERE = ", where gradients are recorded and modules are in their other mode (train or eval)"
"""Part of a sentence about the other mode."""


def other_mode(session: CandidateSession, gradients: bool = True) -> Mode:
    """Return the other mode; modules are switched if the reference's output is the same in train and eval mode."""
    return {"gradients": gradients, "switched": session.reference.is_switchable}


def forward_in_other_mode(
    session: CandidateSession, number: int, kind: Kind, inspect: bool
) -> tuple[Agreement, Mode | None]:
    """Do one trial in the other mode; return the agreement and the mode that was used in the end.

    Autograd refuses some operations that are right without it (results written into given tensors, changes of
    parameters). So a program that fails with gradients runs again without them.
    """
    mode: Mode | None = other_mode(session)
    try:
        return session.forward(number, kind=kind, inspect=inspect, mode=mode), mode
    except Verdict as verdict:
        if verdict.status not in _FAILED or not session.client.runner.alive:
            raise
    mode = other_mode(session, gradients=False) if session.reference.is_switchable else None
    return session.forward(number, kind=kind, inspect=inspect, mode=mode), mode


def differs(session: CandidateSession) -> bool:
    """Whether the latest forward in the other mode launched or computed something else than the latest usual one."""
    return not are_alike([*session.traces[-1:], *session.other_traces[-1:]], session.source)


_ABLATION_STRIDE = 1000
"""Distance of the trial numbers of further ablations, which no earlier ablation reaches: inputs are drawn from the
number of a trial, and no two forwards may have the same."""
_AUDIT = 3
"""The ablation at the audited size is numbered this many such distances after the trials."""


class CorrectnessTrials:
    """The trials of an evaluation, which ends at the first wrong one.

    Args:
        options: how to judge.
        counts: how many trials of each kind there are; None for the usual numbers.
    """

    def __init__(self, options: GymOptions, counts: Counts | None = None) -> None:
        self._options, self._counts = options, counts

    def take(self, candidate: LoadedCandidate) -> None:
        """Do all trials, and the ablation among them, at the secret places of the plan (raises Verdict)."""
        plan, findings, mode = self._plan(candidate), candidate.findings, None
        is_decoy = False if self._options.ablation else None
        candidate.begin_trials(self._options.memory_checks, plan.inspected)
        findings.trials = Trials(passed=0, total=plan.total)
        for number in range(plan.total):
            mode = _trial(candidate, plan, number) or mode
            # After every trial: the compiler works beside the next one.
            if candidate.compiling is not None:
                candidate.compiling.look(candidate.session)
            if candidate.is_audited and number == 0 and self._may_end_early(candidate):
                is_decoy = self._audit(candidate, plan.total)
            if number + 1 == min(FURTHER_TRIALS, plan.total) and self._may_end_early(candidate):
                findings.trials = findings.trials.model_copy(update={"total": number + 1})
                findings.decoy_kernel = is_decoy
                break
            if number >= plan.ablated and self._may_be_decoy(candidate):
                with candidate.stages.stage("ablation"):
                    _ablation(candidate, plan.total)
        # What looked like a copy at the time of the ablation has computed since: the ablation must be done again.
        if findings.decoy_kernel is False and _shows_more(candidate.session):
            candidate.session.ineffective.clear()
            with candidate.stages.stage("ablation"):
                _ablation(candidate, plan.total + 2 * _ABLATION_STRIDE)
        if findings.decoy_kernel is False and mode is not None and differs(candidate.session):
            with candidate.stages.stage("ablation"):
                findings.decoy_kernel = _ablated(candidate, plan.total + _ABLATION_STRIDE, mode).finds_decoy()
                findings.ablated_where = WHERE

    def _plan(self, candidate: LoadedCandidate) -> TrialPlan:
        secret = candidate.session.secret
        if self._counts is None:
            plan = TrialPlan.draw(secret, self._options.correctness_trials)
        else:
            candidate.findings.env["trial_kinds"] = dict(self._counts)
            plan = TrialPlan.chosen(secret, self._counts)
        return plan if candidate.vouched is None else plan.at_further_size(secret)

    def _may_end_early(self, candidate: LoadedCandidate) -> bool:
        # The runner says which ops of torch ran. The gate and the look at its functions, which comes before the end
        # at every size, keep a program from hiding some; without the gate it may also compute on the host.
        return self._options.static_check != "off" and _only_kernels_compute(candidate)

    def _audit(self, candidate: LoadedCandidate, total: int) -> bool | None:
        """Ablate at a size where the runner's list of ops alone says that the kernels matter."""
        # Between two trials and at a secret size: a program that hides ops cannot tell which forward it is.
        if not self._options.ablation:
            return None
        with candidate.stages.stage("ablation"):
            return _ablated(candidate, total + _AUDIT * _ABLATION_STRIDE).finds_decoy()

    def _may_be_decoy(self, candidate: LoadedCandidate) -> bool:
        undecided = self._options.ablation and candidate.findings.decoy_kernel is None
        return undecided and bool(own_launches(candidate.session.traces[-1], candidate.session.source))


def _only_kernels_compute(candidate: LoadedCandidate) -> bool:
    """Whether nothing but the candidate's kernels can have computed the outputs at a size that is not the first."""
    session, vouched = candidate.session, candidate.vouched
    traces = [*session.traces, *session.other_traces]
    return vouched is not None and all(only_kernels_compute(trace, vouched, session.source) for trace in traces)


def _trial(candidate: LoadedCandidate, plan: TrialPlan, number: int) -> Mode | None:
    """Do one trial; return its mode, None for the usual one (raises Verdict)."""
    forward = partial(_forward, candidate.session, plan, number)
    agreement, mode = candidate.watched(number, plan.kinds[number], forward)
    candidate.findings.trials = worst(cast(Trials, candidate.findings.trials), agreement)
    if not agreement.ok:
        text = difference(agreement) + (WHERE if mode else "")
        raise candidate.session.client.verdict(EvalStatus.INCORRECT, "WrongValues", text)  # check: output-is-right
    return mode


def _forward(session: CandidateSession, plan: TrialPlan, number: int) -> tuple[Agreement, Mode | None]:
    kind, inspect = plan.kinds[number], number == plan.inspected
    if number == plan.switched:
        return forward_in_other_mode(session, number, kind, inspect)
    return session.forward(number, kind=kind, inspect=inspect), None


def _shows_more(session: CandidateSession) -> bool:
    """Whether an ablation found only moves, and a later trial showed that some of these launches compute.

    Small inputs hide what a `clamp` computes. The candidate must have done the same in all trials.
    """
    launches = [event for event in session.known_events if event.kind == "launch"]
    computing = {number for number, event in enumerate(launches) if event.computed}
    return bool(computing & session.only_copying) and are_alike(
        [*session.traces, *session.other_traces], session.source
    )


def _ablation(candidate: LoadedCandidate, total: int) -> None:
    ablation = _ablated(candidate, total)
    candidate.findings.decoy_kernel = ablation.finds_decoy()
    if not candidate.findings.decoy_kernel:
        ablation.find_ineffective()


def _ablated(candidate: LoadedCandidate, number: int, mode: Mode | None = None) -> Ablation:
    session = candidate.session
    return Ablation(session, number, lambda: candidate.loading.again(session), mode, candidate.native)
