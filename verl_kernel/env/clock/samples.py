# SPDX-License-Identifier: Apache-2.0
"""What the rounds of one protocol have shown so far, in milliseconds of a single forward."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from verl_kernel.env.clock.crosscheck import NullCall, TimedCall, hidden_ms, mismatch
from verl_kernel.env.clock.statistics import compared, is_settled
from verl_kernel.env.result import Comparison


@dataclass
class Samples:
    """Requests of `count` forwards each, and the reference's means over as many."""

    count: int
    null: NullCall
    calls: list[TimedCall] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)

    def add(self, call: TimedCall, reference_ms: float) -> None:
        """One more round."""
        self.calls.append(call)
        self.reference.append(reference_ms)

    @property
    def kernel(self) -> list[float]:
        """What the candidate is charged with for a forward, request by request."""
        hidden = hidden_ms(self.calls, self.null)
        return [(call.inner + hidden) / self.count for call in self.calls]

    @property
    def settled(self) -> bool:
        """Whether both medians are known to 1 %."""
        return bool(self.calls) and is_settled(self.kernel) and is_settled(self.reference)

    @property
    def comparison(self) -> Comparison | None:
        """Times and speedup; None where the candidate's median is 0, which no interval can mend."""
        return compared(self.kernel, self.reference) if statistics.median(self.kernel) > 0 else None

    def refusal(self, floor_ms: float) -> tuple[str, str] | None:
        """Flag and reason if the candidate's times cannot be true.

        Args:
            floor_ms: what no forward from device memory can be below; 0 where there is no such bound.
        """
        median = statistics.median(self.kernel)
        if median <= 0 or median < floor_ms:
            return "impossible_time", f"{median:.4f} ms is less than moving the data takes, {floor_ms:.4f} ms"
        reason = mismatch(self.calls, self.null)
        return None if reason is None else ("timing_mismatch", reason)
