# SPDX-License-Identifier: Apache-2.0
"""Finds hidden work: processor time of a forward that its launches and torch ops do not explain.

The simulated clock charges for counted work only, so a forward that computes in Python would be free. The judge reads
the runner's processor time from the kernel, and the runner reports how much of it went into launches, ops and its own
copying. An honest forward needs a few milliseconds beyond that for its launch code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ALLOWED_MS = 10.0
"""Milliseconds of a forward that need no explanation."""
ALLOWED_SHARE = 0.2
"""Unexplained time that is granted on top, as a share of the explained time."""
ALLOWED_MS_PER_EVENT = 0.1
"""Granted for the host's part of each launch or op."""
FIRST_MS = 200.0
"""Granted to a forward that is the evaluation's only one: a first forward imports, parses kernels and autotunes."""


@dataclass(frozen=True)
class CpuTime:
    """One forward.

    Raises:
        ValueError: the runner's numbers are no times.
    """

    total_ms: float
    """Processor time of the runner from the request to the answer, as the judge measured it."""
    explained_ms: float
    """The part of it that the runner puts down to launches, torch ops and its own copying."""
    events: int

    @classmethod
    def read(cls, total_ns: int, spent: Any, events: int) -> CpuTime:
        """Combine the judge's measurement with the runner's claim."""
        if not isinstance(spent, dict) or not all(type(value) is int and value >= 0 for value in spent.values()):
            raise ValueError("the processor times of an answer must be integers of at least 0")
        return cls(total_ns / 1e6, sum(spent.values()) / 1e6, events)

    @property
    def hidden_ms(self) -> float:
        """Unexplained time beyond what is granted; negative where there is none."""
        granted = ALLOWED_MS + ALLOWED_SHARE * self.explained_ms + ALLOWED_MS_PER_EVENT * self.events
        return self.total_ms - self.explained_ms - granted


def hidden_work(entries: list[CpuTime]) -> CpuTime | None:
    """The typical forward of an evaluation if it hides work, else None.

    The lower median: the first forward may import and tune, and the clock takes the median too. Where it is the only
    one, it is granted `FIRST_MS`.
    """
    if not entries:
        return None
    ordered = sorted(entries, key=lambda entry: entry.hidden_ms)
    typical = ordered[(len(ordered) - 1) // 2]
    return typical if typical.hidden_ms > (FIRST_MS if len(entries) == 1 else 0) else None
