# SPDX-License-Identifier: Apache-2.0
"""The evaluation of a task that is too large, where kernels run compiled.

Its trials at reduced sizes run compiled alone. Without data the candidate is followed twice, at the larger reduced size
and at the true one, its launches sampled: the first must show what was verified there, the second is charged.
"""

from __future__ import annotations

from functools import partial

from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.evaluation import Evaluation
from verl_kernel.env.judge.findings import Findings
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.native_trials import NativeTrials
from verl_kernel.env.judge.sizes.dry_session import DrySession, NotFollowed
from verl_kernel.env.judge.sizes.reduced_evaluation import Charged, ReducedEvaluation
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.true_size.consistency import Followed
from verl_kernel.env.true_size.dry_pass import DryForward
from verl_kernel.env.true_size.native.consistency import Counted, difference, not_repeated
from verl_kernel.env.true_size.shrinking import Copy

_NONE = Measurement(None, None, None)


class NativeReducedEvaluation(ReducedEvaluation):
    """One candidate's way through the stages, on reduced copies of its task, compiled; used once."""

    _further: NativeTrials | None = None
    """At the second size."""

    def _load(self, session: CandidateSession) -> None:
        Evaluation._load(self, session)

    def _is_traced(self, number: int, plan: object, secret: bytes) -> bool:
        return False

    def _further_loading(self, scratch: Scratch, memory: SharedMemory, found: Findings) -> Loading:
        assert self._executor is not None  # kernels run compiled
        begin = partial(self._executor.begin, self._request.source)
        return Loading(self._options, self._zygote, scratch, memory, found, [], begin)

    def _load_further(self, loading: Loading, session: CandidateSession) -> None:
        session.is_native = True
        loading.load(session)
        self._further = NativeTrials(loading, self._found.env, alone=True)

    def _further_trial(self, session: CandidateSession, number: int) -> Agreement:
        assert self._further is not None  # its candidate is loaded
        kind: Kind = "varied" if number else "drawn"
        return self._further.watched(session, number, partial(session.forward, number, kind=kind))

    def _at_true_size(self, sessions: list[CandidateSession]) -> Charged:
        first, copies = sessions[0], self._shrunk.copies
        dry = DrySession(self._options, self._zygote, self._stages, self._device.timing_source, self._executor)
        sizes = [copies[len(sessions) - 1].dry, self._shrunk.true]
        seed = seed_of(b"dry", first.secret)
        try:
            again, true = dry.follow(self._request.task, self._request.source, sizes, seed, first.reference.weight_seed)
        except NotFollowed as exc:
            return _NONE, str(exc), (HackFlag.SIZE_DEPENDENT,) * exc.is_unlike
        verified = [_verified(*each) for each in zip(sessions, (self._native, self._further), copies, strict=False)]
        if reason := not_repeated(verified[-1], _counted(again, sizes[0])):
            return _NONE, reason, ()
        if unlike := difference(verified, _counted(true, sizes[1])):
            return _NONE, unlike.sentence, (HackFlag.SIZE_DEPENDENT,) * unlike.is_candidates
        return self._charged(first, true), None, ()


def _counted(followed: Followed, dry: DryForward) -> Counted:
    return Counted(followed.events, followed.tallies, dry.flops, _read(dry))


def _verified(session: CandidateSession, trials: NativeTrials | None, copy: Copy) -> Counted:
    """Its first forward: one without data is the first of its model, too."""
    assert trials is not None  # there were some
    dry = copy.dry
    return Counted(session.traces[0], [work["tally"] for work in trials.works[0]], dry.flops, _read(dry))


def _read(dry: DryForward) -> float:
    """The part of its inputs that the reference reads; weights, which it reads too, are not among them."""
    size = sum(tensor.nbytes for tensor in dry.inputs.tensors)
    return min(1.0, dry.demand.read / size) if size else 1.0
