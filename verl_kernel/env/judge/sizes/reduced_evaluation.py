# SPDX-License-Identifier: Apache-2.0
"""The evaluation of a task that is too large: values at reduced sizes, time at the true size.

The stages are those of any evaluation, on the first reduced copy of the task. Then the candidate is verified at a
second size and followed at the true size without data, each in a runner of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace

from verl_kernel.env.clocks.base import Clock, Measurement
from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.candidate_session import CandidateSession, MemoryLayout
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.evaluation import Evaluation
from verl_kernel.env.judge.executing import LaunchExecutor
from verl_kernel.env.judge.findings import Findings
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.output_check import difference
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.judge.sizes.dry_session import DrySession, NotFollowed
from verl_kernel.env.judge.trials.choice import Counts
from verl_kernel.env.judge.trials.plan import TrialPlan, worst
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus, TrueSize
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE, Scratch
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.true_size import consistency
from verl_kernel.env.true_size.consistency import Followed, Verified
from verl_kernel.env.true_size.shrinking import Shrunk

_FURTHER_TRIALS = 2
"""At each size but the first: one as drawn, one varied."""
Charged = tuple[Measurement, str | None, tuple[HackFlag, ...]]
"""The times, why there are none, and what that says of the candidate."""


class ReducedEvaluation(Evaluation):
    """One candidate's way through the stages, on reduced copies of its task; used once.

    Args:
        shrunk: the task's copies.
        references: the reference at each of them, in order.
        others: as for `Evaluation`, but for the reference.
    """

    def __init__(
        self,
        options: GymOptions,
        device: DeviceBackend,
        zygote: Zygote,
        executor: LaunchExecutor | None,
        references: list[Reference],
        guard: Callable[[], AbstractContextManager[object]],
        draw_secret: Callable[[], bytes],
        clock: Clock,
        counts: Counts | None,
        shrunk: Shrunk,
        compiler: LaunchCompiler | None = None,
    ) -> None:
        parts = (options, device, zygote, executor)
        super().__init__(*parts, references[0], guard, draw_secret, clock, counts, compiler)
        self._shrunk, self._others = shrunk, references[1:]
        self._copied = tuple(dict(copy.sizes) for copy in shrunk.copies)
        self._found.true_size = TrueSize(sizes=self._copied, unknown="the evaluation ended at a reduced size")

    def run(self, request: EvalRequest) -> EvalResult:
        """Go through the stages until one of them ends it."""
        self._request = request
        return super().run(request)

    def _load(self, session: CandidateSession) -> None:
        self._loading.load(session, traced=True)

    def _is_traced(self, number: int, plan: TrialPlan, secret: bytes) -> bool:
        """A secret one; where no other size has one, the first, which also does what is done once."""
        place = secret[4] % plan.total if self._others else 0
        return number == (place + (place == plan.switched)) % plan.total

    def _measure(self, session: CandidateSession) -> Measurement:
        """Nothing yet: a zygote has one runner at a time, and further sizes take runners of their own."""
        return Measurement(None, None, None)

    def _take(self, session: CandidateSession, measured: Measurement) -> None:
        sessions = [session]
        with self._stages.stage("correctness"):
            sessions += [self._verified(reference, session.secret) for reference in self._others]
        with self._stages.stage("true_size"):
            measured, unknown, flags = self._at_true_size(sessions)
        super()._take(session, measured)
        self._found.hack_flags += flags
        self._found.true_size = TrueSize(sizes=self._copied, unknown=unknown)

    def _verified(self, reference: Reference, secret: bytes) -> CandidateSession:
        """The candidate at another size, its runner gone (raises Verdict)."""
        layout, found = MemoryLayout(reference), Findings(self._device.timing_source, {})
        with closing(Scratch(self._request.source)) as scratch, closing(SharedMemory.create(layout.size)) as memory:
            loading = self._further_loading(scratch, memory, found)
            session = loading.start(reference, layout, self._stages, self._guard, is_sealed=True)
            session.client.memory_findings = self._session.client.memory_findings
            try:
                self._load_further(loading, session)
                session.secret = secret
                self._further_trials(session)
                if code := session.client.runner.finish():
                    raise session.client.crash(code)
            finally:
                session.client.runner.end()
                loading.end()
                self._session.client.memory_findings = session.client.memory_findings
        return session

    def _further_loading(self, scratch: Scratch, memory: SharedMemory, found: Findings) -> Loading:
        return Loading(self._options, self._zygote, scratch, memory, found)

    def _load_further(self, loading: Loading, session: CandidateSession) -> None:
        loading.load(session, traced=True)

    def _further_trial(self, session: CandidateSession, number: int) -> Agreement:
        return session.forward(number, kind="varied" if number else "drawn", traced=number == 0)

    def _further_trials(self, session: CandidateSession) -> None:
        for number in range(_FURTHER_TRIALS):
            agreement = self._further_trial(session, number)
            trials = self._found.trials
            assert trials is not None  # those at the first size have ended
            self._found.trials = worst(trials.model_copy(update={"total": trials.total + 1}), agreement)
            if not agreement.ok:
                raise session.client.verdict(EvalStatus.INCORRECT, "WrongValues", difference(agreement))

    def _at_true_size(self, sessions: list[CandidateSession]) -> Charged:
        """Times of both sides at the true size; else why there are none."""
        first, shrunk = sessions[0], self._shrunk
        seed = seed_of(b"dry", first.secret)
        dry = DrySession(self._options, self._zygote, self._stages, self._device.timing_source)
        sizes = [shrunk.copies[0].dry, shrunk.true]
        try:
            small, true = dry.follow(self._request.task, self._request.source, sizes, seed, first.reference.weight_seed)
        except NotFollowed as exc:
            return Measurement(None, None, None), str(exc), (HackFlag.SIZE_DEPENDENT,) * exc.is_unlike
        known = {instruction for session in sessions for instruction in session.instructions}
        pairs = zip(sessions, shrunk.copies, strict=True)
        verified = [Verified(session.traces[-1], copy.dry.flops) for session, copy in pairs]
        if unlike := consistency.difference(verified, known, small, true, shrunk.true.flops):
            return Measurement(None, None, None), unlike, (HackFlag.SIZE_DEPENDENT,)
        return self._charged(first, true), None, ()

    def _charged(self, first: CandidateSession, true: Followed) -> Measurement:
        """Times of both sides at the true size."""
        events = [replace(e, source=first.source) if e.source == CANDIDATE_FILE else e for e in true.events]
        first.charged, first.demand = (self._shrunk.true.events, [events]), self._shrunk.true.demand
        return self._clock.measure(first)
