# SPDX-License-Identifier: Apache-2.0
"""Ablation: forwards in which launches skip some of their stores, to see whether the output depends on the kernels.

Stores of computed values are skipped first, while moved (copied) values and constants are still stored: a program that
computes in torch and has a kernel copy the result, or store a 1 to multiply it by, stays right. Where the output stays
right, one more forward skips the moves too: a candidate that is right even then is a decoy, any other one only moves
data. Where moving data is all that the task asks for, everything is skipped at once.

Booleans, integers and one number everywhere may be right by chance: what nobody wrote reads as true, and a store that
was the same in two forwards looks constant. So a program with such outputs is shown inputs at both ends, where answers
are others, and is a decoy only if it is right on these too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.ipc.messages import LeftOut, Mode
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.native_trials import NativeTrials
from verl_kernel.env.judge.output_check import difference
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.reference.kinds import ENDS, Kind
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.trace_checks import Parts

_EVERYTHING: LeftOut = {}
_COMPUTED: LeftOut = {"kept": ["moves", "constant"]}
_MOVED_TOO: LeftOut = {"kept": ["constant"]}
_MOST_GROUPS = 4
"""Most launches (or kernels, where there are more launches) that are left out one at a time."""
_SAMPLES = 4
"""Launches of many that are left out by themselves."""
_PATIENCE, _GRACE_S = 5.0, 2.0
"""A forward without what its kernels compute may run into a loop without end: it gets this many times the time of an
average forward, and this much on top."""


class Ablation:
    """The ablated forwards of one evaluation.

    Args:
        session: the loaded candidate; what makes no difference is noted in its `idle`.
        number: of the first ablated trial; it and all later numbers are not used elsewhere.
        revive: loads the candidate into another runner, if this one ended.
        mode: of all of them.
        native: the candidate's trials, where an executing process runs kernels: it hears when a forward begins.
    """

    def __init__(
        self, session: CandidateSession, number: int, revive: Callable[[], None], mode: Mode | None = None,
        native: NativeTrials | None = None,
    ) -> None:  # fmt: skip
        self._session, self._number, self._revive, self._mode = session, number, revive, mode
        self._is_first_runner, self._native = True, native

    def finds_decoy(self) -> bool:
        """Whether the output is right although the kernels contribute nothing.

        Raises:
            Verdict: the output is wrong with the kernels, on inputs at an end.
        """
        if not self._finds_decoy():
            return False
        # Blocks that were followed may have held one value, as a threshold leaves zeros: at the ends they hold others.
        for kind in ENDS:
            agreement = self._whole(kind)
            if not agreement.ok:
                raise self._session.client.verdict(EvalStatus.INCORRECT, "WrongValues", difference(agreement))
        return self._finds_decoy()

    def _finds_decoy(self) -> bool:
        if self._session.moves_count:
            return self._is_right(_EVERYTHING)
        if not self._is_right(_COMPUTED):
            return False
        if self._is_right(_MOVED_TOO):
            return True
        self._session.idle.update(range(len(self._launches())))
        return False

    def find_idle(self) -> None:
        """Note launches without which the output stays right; `finds_decoy` has settled that for a single launch."""
        session = self._session
        if session.idle or not self._is_first_runner:  # a new runner has not seen what its launches store
            return
        parts = Parts.of(session.traces[-1], session.source, session.moves_count)
        for numbers in parts.groups(_MOST_GROUPS):
            if self._is_right_without(numbers):
                session.idle.update(numbers)
        rest = parts.without(session.idle)
        if len(rest.names) > _MOST_GROUPS:
            self._sample(rest)

    def _sample(self, parts: Parts) -> None:
        """Ask for some of many launches; as large a part of the others is noted as idle as of those that were asked."""
        random = Random(seed_of(self._session.secret, b"idle"))
        drawn = parts.drawn(random, _SAMPLES)
        found = {number for number in dict.fromkeys(drawn) if self._is_right_without([number])}
        if found:
            self._session.idle.update(parts.like(random, drawn, found))

    def _is_right_without(self, numbers: Sequence[int]) -> bool:
        """Whether the output stays right without what these launches store; False once a runner has ended."""
        kept = _EVERYTHING if self._session.moves_count else _COMPUTED
        return self._is_first_runner and self._is_right({**kept, "only": list(numbers)})

    def _whole(self, kind: Kind) -> Agreement:
        """A forward with nothing left out."""
        number = self._next()
        forward = partial(self._session.forward, number, kind=kind, mode=self._mode)
        return forward() if self._native is None else self._native.watched(self._session, number, kind, forward)

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number

    def _launches(self) -> Sequence[object]:
        return [event for event in self._session.traces[-1] if event.kind == "launch"]

    def _is_right(self, left_out: LeftOut) -> bool:
        if not self._is_right_on("drawn", left_out):
            return False
        return self._session.is_telling or all(self._is_right_on(kind, left_out) for kind in ENDS)

    def _is_right_on(self, kind: Kind, left_out: LeftOut) -> bool:
        session, left = self._session, self._session.seconds_left
        average = (session.seconds_granted - left) / max(1, len(session.entries))
        session.seconds_left = min(left, _GRACE_S + _PATIENCE * average)
        try:
            number = self._next()
            if self._native is not None:
                self._native.begin_ablated(session, number)
            return session.forward(number, kind=kind, suppress=left_out, mode=self._mode).ok
        except Verdict as verdict:  # without its kernels it fails, so they matter
            if verdict.status is EvalStatus.HACKING:
                raise
            if not session.client.runner.alive:
                self._is_first_runner = False
                self._revive()
            return False
        finally:
            session.seconds_left = left
