# SPDX-License-Identifier: Apache-2.0
"""Checks the runner's times (CUDA events, which it could forge) against the judge's own (wall time).

A timed call is one request for several forwards; its times are per forward. Its wall time contains the forwards and a
constant overhead (wake-up, flushes, device-wide synchronisation, copies of the outputs). That is measured by null
calls, the same request without the forwards, in every round because a host's load changes, and by what the judge sees
its own reference take beyond events and null calls. What the median call takes beyond all that is hidden work, and
every call is charged with it. A runner that hides work in fewer than half of its calls gains nothing, because the
median is what counts; one that hides it in more of them gains at most the uncertainty of the null calls' median,
divided by the number of forwards.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from verl_kernel.env.clocks.statistics import median_interval

HONEST_SHARE = 0.5
"""Least share of the wall time beyond the null call that an honest runner's events account for."""
JITTER_MS = 1.0
"""Hidden milliseconds that prove no cheating, since a busy host causes as much; they are charged all the same."""


@dataclass(frozen=True)
class TimedCall:
    """One call by both clocks, in milliseconds of a forward.

    Raises:
        ValueError: a time that no call can take.
    """

    inner: float
    """As the runner reports it."""
    wall: float

    def __post_init__(self) -> None:
        if type(self.inner) not in (int, float) or not isfinite(self.inner) or self.inner < 0:
            raise ValueError("a timed call needs a finite number of milliseconds of at least 0")


@dataclass(frozen=True)
class NullCall:
    """What a request costs without its forwards, in milliseconds of a forward."""

    typical: float
    high: float

    @classmethod
    def of(cls, walls: Sequence[float], ceiling: float) -> NullCall:
        """From a sample of wall times.

        Args:
            walls: of null calls, which the runner can slow down as it likes.
            ceiling: the most that such a call can cost, as far as the judge can tell.
        """
        return cls(min(statistics.median(walls), ceiling), min(upper(walls), ceiling))

    def and_also(self, milliseconds: float) -> NullCall:
        """A call that costs so much more."""
        return NullCall(self.typical + milliseconds, self.high + milliseconds)


def upper(values: Sequence[float]) -> float:
    """Upper end of the median's 95 % confidence interval; the largest value where there are too few for one."""
    interval = median_interval(values)
    return max(values) if interval is None else interval[1]


def hidden_ms(calls: Sequence[TimedCall], null: NullCall) -> float:
    """Milliseconds of the median call that neither its events nor a null call explain."""
    return max(0.0, statistics.median(call.wall - call.inner for call in calls) - null.high)


def mismatch(calls: Sequence[TimedCall], null: NullCall) -> str | None:
    """Why the runner's times cannot be true; None if they can."""
    inner = statistics.median(call.inner for call in calls)
    wall = statistics.median(call.wall for call in calls)
    if inner > 1.02 * wall + JITTER_MS:
        return f"the events claim {inner:.3f} ms of calls that took {wall:.3f} ms in all"
    hidden = hidden_ms(calls, null)
    if hidden > JITTER_MS and inner < HONEST_SHARE * (inner + hidden):
        return f"the events explain {inner:.3f} ms and leave {hidden:.3f} ms of a call unexplained"
    return None
