# SPDX-License-Identifier: Apache-2.0
"""What the rounds of one protocol have shown so far, in milliseconds of a single forward."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from verl_kernel.env.clocks.cuda.crosscheck import NullCall, TimedCall, hidden_ms, mismatch, upper
from verl_kernel.env.clocks.statistics import compared, is_settled
from verl_kernel.env.result import Comparison
from verl_kernel.env.tamper.hack_flags import HackFlag

_SLACK_MS, _SHARE = 1.0, 1.25
"""An empty request may cost this many milliseconds more in the runner than this many times its cost in the judge."""


@dataclass(frozen=True)
class Round:
    """A request, the reference's forwards on the same inputs, and an empty request, in the runner and in the judge."""

    call: TimedCall
    reference: TimedCall
    empty_ms: float
    own_empty_ms: float


@dataclass
class Samples:
    """The rounds of one protocol, with so many forwards in a request."""

    count: int
    rounds: list[Round] = field(default_factory=list)

    @property
    def calls(self) -> list[TimedCall]:
        """The candidate's requests."""
        return [one.call for one in self.rounds]

    @property
    def null(self) -> NullCall:
        """What a forward costs beyond its events where nothing is hidden.

        An empty request does not use the processor's caches as a forward does; what the reference's own forwards
        cost the judge beyond its own empty requests shows how much that is, and no candidate has a say in it.
        """
        own = [one.own_empty_ms for one in self.rounds]
        ceiling = _SLACK_MS / self.count + _SHARE * upper(own)
        beyond = statistics.median(one.reference.wall - one.reference.inner for one in self.rounds)
        null = NullCall.of([one.empty_ms for one in self.rounds], ceiling)
        return null.and_also(max(0.0, beyond - statistics.median(own)))

    @property
    def kernel(self) -> list[float]:
        """What the candidate is charged with for a forward, request by request."""
        hidden = hidden_ms(self.calls, self.null)
        return [call.inner + hidden for call in self.calls]

    @property
    def reference(self) -> list[float]:
        """The reference's times."""
        return [one.reference.inner for one in self.rounds]

    @property
    def settled(self) -> bool:
        """Whether both medians are known to 1 %."""
        return bool(self.rounds) and is_settled(self.kernel) and is_settled(self.reference)

    @property
    def comparison(self) -> Comparison | None:
        """Times and speedup; None where the candidate's median is 0 and there is no ratio."""
        return compared(self.kernel, self.reference) if statistics.median(self.kernel) > 0 else None

    def refusal(self, floor_ms: float) -> tuple[HackFlag, str] | None:
        """Flag and reason if the candidate's times cannot be true.

        Args:
            floor_ms: the least time that a forward needs for its device memory; 0 where no bound is known.
        """
        median = statistics.median(self.kernel)
        if median <= 0 or median < floor_ms:
            return HackFlag.IMPOSSIBLE_TIME, f"{median:.4f} ms is less than moving the data takes, {floor_ms:.4f} ms"
        reason = mismatch(self.calls, self.null)
        return None if reason is None else (HackFlag.TIMING_MISMATCH, reason)
