# SPDX-License-Identifier: Apache-2.0
"""Times of a task that is too large to run: values are compared at reduced sizes, time is that of the true size.

The evaluation goes through its usual stages on the first reduced copy of the task. After the exit the candidate is
verified at a second size, in another runner. Then it runs without data in a third runner, and its launches are sampled:
at the larger reduced size, where it must do what it did when verified, and at the true size, of which time is charged.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.candidate_session import CandidateSession, MemoryLayout
from verl_kernel.env.judge.execution_client import CandidateEmulator
from verl_kernel.env.judge.findings import Findings
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.native_trials import NativeTrials
from verl_kernel.env.judge.output_check import difference as wrong_values
from verl_kernel.env.judge.sizes.dry_session import DrySession, NotFollowed
from verl_kernel.env.judge.steps import EvaluationContext, LoadedCandidate
from verl_kernel.env.judge.trials.plan import worst
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalStatus, TrueSize
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE, Scratch
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.true_size.consistency import Counted, difference, functions, not_repeated
from verl_kernel.env.true_size.shrinking import Copy, Shrunk

_FURTHER_TRIALS = 2
"""Trials at each size but the first: one drawn, one varied. They are few, as copies at these sizes are larger."""
_NONE = Measurement(None, None, None)
Charged = tuple[Measurement, str | None, bool]
"""The times; the reason if there are none; whether the candidate does something else at the true size."""


class ReducedTimes:
    """Times at the true size, after trials on the first reduced copy of the task.

    Args:
        context: what the judge gives to the evaluation.
        references: of each of the task's copies, in order.
        shrunk: the copies.
        request: of the evaluation.
    """

    def __init__(
        self, context: EvaluationContext, references: list[Reference], shrunk: Shrunk, request: EvalRequest
    ) -> None:
        self._context, self._options, self._device = context, context.options, context.device
        self._further_references, self._shrunk, self._request = references[1:], shrunk, request
        self._copied = tuple(dict(copy.sizes) for copy in shrunk.copies)

    @property
    def true_size(self) -> TrueSize:
        """What a result says of the true size if the evaluation ends early."""
        return TrueSize(sizes=self._copied, unknown="the evaluation ended at a reduced size")

    def while_running(self, candidate: LoadedCandidate) -> Measurement:
        """Measure nothing: a zygote has one runner at a time, and other sizes need other runners."""
        return _NONE

    def after_exit(self, candidate: LoadedCandidate, measured: Measurement) -> Measurement:
        """Verify the candidate at the other sizes, then time it at the true size (raises Verdict)."""
        session, findings = candidate.session, candidate.findings
        verified = [_counted(session, self._shrunk.copies[0])]
        with candidate.stages.stage("correctness"):
            for reference, copy in zip(self._further_references, self._shrunk.copies[1:], strict=True):
                verified.append(self._verified(candidate, reference, copy))
        with candidate.stages.stage("true_size"):
            measured, unknown, is_mismatch = self._at_true_size(candidate, verified)
        findings.true_size = TrueSize(sizes=self._copied, unknown=unknown)
        if unknown is not None and is_mismatch:
            # check: work-does-not-depend-on-size
            raise session.client.verdict(EvalStatus.SIZE_DEPENDENT, "SizeDependent", unknown)
        return measured

    def _verified(self, candidate: LoadedCandidate, reference: Reference, copy: Copy) -> Counted:
        """Verify the candidate at another size (raises Verdict)."""
        layout, findings = MemoryLayout(reference), Findings(self._device.timing_source, {})
        with closing(Scratch(self._request.source)) as scratch, closing(SharedMemory.create(layout.size)) as memory:
            begin = partial(self._sampler.begin, self._request.source)
            loading = Loading(
                options=self._options,
                zygote=self._context.zygote,
                scratch=scratch,
                memory=memory,
                findings=findings,
                describe=[],
                execution=begin,
            )
            session = loading.start(
                reference, layout=layout, stages=candidate.stages, guard=self._context.guard, is_sealed=True
            )
            trials = NativeTrials(loading, candidate.findings.env)
            try:
                loading.load(session)
                # One evaluation has one secret, to which its result is committed (`seed_commit`).
                session.secret = candidate.session.secret
                _further_trials(candidate.findings, session, trials)
                if code := session.client.runner.finish():
                    raise session.client.crash(code)  # check: exit-after-reduced-sizes-is-clean
            finally:
                session.client.runner.end()
                loading.end()
        return _counted(session, copy)

    def _at_true_size(self, candidate: LoadedCandidate, verified: list[Counted]) -> Charged:
        """Return the times of candidate and reference at the true size, or why there are none.

        Args:
            candidate: at the first reduced size.
            verified: forwards at the reduced sizes.
        """
        session = candidate.session
        dry = DrySession(
            options=self._options,
            zygote=self._context.zygote,
            stages=candidate.stages,
            timing_source=self._device.timing_source,
            emulator=self._sampler,
        )
        sizes = [self._shrunk.copies[len(verified) - 1].dry, self._shrunk.true]
        # Which programs are sampled is secret, or a kernel could work in these only.
        seed = seed_of(b"dry", session.secret)
        task, source, weight_seed = self._request.task, self._request.source, session.reference.weight_seed
        try:
            repeated, true = dry.follow(task, source, sizes, seed, weight_seed)
        except NotFollowed as exc:
            return _NONE, str(exc), exc.is_mismatch
        # Counting without data is tested first, where the truth is known: a deviation there proves nothing.
        if reason := not_repeated(verified[-1], repeated):
            return _NONE, reason, False
        if mismatch := difference(verified, repeated, true):
            return _NONE, mismatch.sentence, mismatch.is_candidates
        return self._charged(session, true), None, False

    def _charged(self, session: CandidateSession, true: Counted) -> Measurement:
        """Measure candidate and reference at the true size."""
        events = [replace(e, source=session.source) if e.source == CANDIDATE_FILE else e for e in true.events]
        # From here on the clock sees the forwards at the true size in place of the trials'.
        session.charged, session.demand = (self._shrunk.true.events, [events]), self._shrunk.true.demand
        session.charged_report = [*true.works]
        return self._context.clock.measure(session)

    @property
    def _sampler(self) -> CandidateEmulator:
        assert self._context.emulator is not None  # a device that runs kernels itself runs every task at its own size
        return self._context.emulator


def _counted(session: CandidateSession, copy: Copy) -> Counted:
    """Return the first forward of a candidate, as the forward without data is its model's first, too."""
    tallies = [work["tally"] for work in session.launch_reports[0]]
    dry = copy.dry
    return Counted(session.traces[0], tallies, dry.flops, dry.share_read, functions=functions(dry.events))


def _further_trials(findings: Findings, session: CandidateSession, native: NativeTrials) -> None:
    for number in range(_FURTHER_TRIALS):
        kind: Kind = "varied" if number else "drawn"
        agreement = native.watched(session, number, kind, partial(session.forward, number, kind=kind))
        trials = findings.trials
        assert trials is not None  # the trials at the first size have ended
        findings.trials = worst(trials.model_copy(update={"total": trials.total + 1}), agreement)
        if not agreement.ok:
            # check: reduced-output-is-right
            raise session.client.verdict(EvalStatus.INCORRECT, "WrongValues", wrong_values(agreement))
