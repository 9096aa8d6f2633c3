# SPDX-License-Identifier: Apache-2.0
"""Ablation: forwards in which launches skip some of their stores, to see whether the output depends on the kernels.

The first forward skips stores of computed values; moved (copied) values and constants are still stored. A program stays
right if it computes in torch and a kernel only copies the result, or stores a 1 to multiply it by. If the output stays
right, the next forward skips the moves too: a candidate that is right even then is a decoy, any other only moves data.
Where moves are all that is asked for (`CandidateSession.moves_count`), the first forward skips everything.

Booleans, integers and outputs that hold one number everywhere may be right by chance: uninitialised memory reads as
true, and a store of the same value in two forwards looks constant. A program with such outputs also runs on inputs at
both ends, where the answers differ. It is a decoy only if it is right there too.

An output that is wrong without the kernels does not show that they compute it: they may add to torch's result what
another one takes away, or hide its bits. So torch's results are looked at too (`OpResults`). Where one of them is the
expected output although stores are left out, on drawn and on varied inputs, those launches make no difference.
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
from verl_kernel.env.tamper.trace_checks import AblationTargets

_EVERYTHING: LeftOut = {}
"""No store of a launch is executed."""
_COMPUTED: LeftOut = {"kept": ["moves", "constant"]}
"""Stores of computed values are left out."""
_COPIED_TOO: LeftOut = {"kept": ["constant"]}
"""Stores of copied values are left out as well."""
_MOST_GROUPS = 4
"""Most launches that are left out one at a time; if there are more, most kernels."""
_SAMPLES = 4
"""Number of launches that are drawn to be left out one at a time, where there are many."""
_PATIENCE = 5.0
"""Limit of an ablated forward as a multiple of an average one: without its stores a program may loop without end."""
_GRACE_S = 2.0
"""Seconds added to that limit."""


class Ablation:
    """The ablated forwards of one evaluation.

    Args:
        session: the loaded candidate; launches that make no difference are noted in its `idle`.
        number: of the first ablated trial; other trials have smaller numbers.
        revive: loads the candidate into another runner, if its runner has ended.
        mode: of all these forwards.
        native: the candidate's trials, if an executing process runs kernels: it is told when a forward begins.
    """

    def __init__(
        self,
        session: CandidateSession,
        number: int,
        revive: Callable[[], None],
        mode: Mode | None = None,
        native: NativeTrials | None = None,
    ) -> None:
        self._session, self._number, self._revive, self._mode = session, number, revive, mode
        self._is_first_runner, self._native = True, native
        self._torch_had_answer = False
        """Whether torch computed the whole output in the latest forward."""

    def finds_decoy(self) -> bool:
        """Whether the output is right although the kernels contribute nothing.

        Raises:
            Verdict: the output is wrong with all stores, on inputs at an end.
        """
        if not self._finds_decoy():
            return False
        # The followed blocks may hold one value only, as a threshold leaves zeros; at the ends they hold others.
        for kind in ENDS:
            agreement = self._forward_with_all_stores(kind)
            if not agreement.ok:
                # check: output-before-ablation-is-right
                raise self._session.client.verdict(EvalStatus.INCORRECT, "WrongValues", difference(agreement))
        return self._finds_decoy()

    def _finds_decoy(self) -> bool:
        if self._session.moves_count:  # copies are all that is asked for
            return self._is_right(_EVERYTHING)
        launches = [event for event in self._session.known_events if event.kind == "launch"]
        if not self._is_right(_COMPUTED):
            if self._is_torchs(_COMPUTED):
                self._session.ineffective.update(range(len(launches)))
            return False
        if self._is_right(_COPIED_TOO):
            return True
        if self._is_first_runner:  # to a new runner, every launch is one that may compute
            self._session.only_copying = {number for number, event in enumerate(launches) if not event.computed}
        self._session.ineffective.update(range(len(launches)))
        return False

    def find_ineffective(self) -> None:
        """Note launches without which the output stays right; for a single launch `finds_decoy` has decided that."""
        session = self._session
        if session.ineffective or not self._is_first_runner:  # a new runner does not know what its launches store
            return
        targets = AblationTargets.of(session.known_events, session.source, session.moves_count)
        for numbers in targets.groups(_MOST_GROUPS):
            if self._is_right_without(numbers):
                session.ineffective.update(numbers)
        remaining = targets.without(session.ineffective)
        if len(remaining.names) > _MOST_GROUPS:
            self._sample(remaining)

    def _sample(self, targets: AblationTargets) -> None:
        """Leave out each launch of a sample; note the same share of the others as idle as in the sample."""
        # From the secret: a candidate cannot know which of its launches are tested.
        random = Random(seed_of(self._session.secret, b"idle"))
        sample = targets.sample(random, _SAMPLES)
        ineffective = {number for number in dict.fromkeys(sample) if self._is_right_without([number])}
        if ineffective:
            self._session.ineffective.update(targets.extrapolated(random, sample, ineffective))

    def _is_right_without(self, numbers: Sequence[int]) -> bool:
        """Whether the output does not need the stores of these launches; False once a runner has ended."""
        kept = _EVERYTHING if self._session.moves_count else _COMPUTED
        left_out: LeftOut = {**kept, "only": list(numbers)}
        return self._is_first_runner and (self._is_right(left_out) or self._is_torchs(left_out))

    def _is_torchs(self, left_out: LeftOut) -> bool:
        """Whether torch computes the whole output although these stores are left out, as the latest forward showed."""
        # Twice: on drawn inputs a last step may change nothing, as bounds that only larger numbers meet.
        return self._torch_had_answer and (self._is_right_on("varied", left_out) or self._torch_had_answer)

    def _forward_with_all_stores(self, kind: Kind) -> Agreement:
        """Do a forward with all stores."""
        number = self._next()
        forward = partial(self._session.forward, number, kind=kind, mode=self._mode)
        return forward() if self._native is None else self._native.watched(self._session, number, kind, forward)

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number

    def _is_right(self, left_out: LeftOut) -> bool:
        if not self._is_right_on("drawn", left_out):
            return False
        return self._session.has_varied_output or all(self._is_right_on(kind, left_out) for kind in ENDS)

    def _is_right_on(self, kind: Kind, left_out: LeftOut) -> bool:
        session, seconds_left = self._session, self._session.seconds_left
        average = (session.seconds_granted - seconds_left) / max(1, len(session.entries))
        session.seconds_left = min(seconds_left, _GRACE_S + _PATIENCE * average)
        try:
            number = self._next()
            if self._native is not None:
                self._native.begin_ablated(session, number)
            is_right = session.forward(number, kind=kind, suppress=left_out, mode=self._mode).ok
            self._torch_had_answer = session.torch_had_the_answer()
            return is_right
        except Verdict as verdict:  # it fails without its kernels, so they matter
            if verdict.status is EvalStatus.HACKING:
                raise
            self._torch_had_answer = session.torch_had_the_answer()
            # Without its results a program may crash: the remaining trials go on in another runner.
            if not session.client.runner.alive:
                self._is_first_runner = False
                self._revive()
            return False
        finally:
            session.seconds_left = seconds_left  # the candidate is not charged for ablated forwards
