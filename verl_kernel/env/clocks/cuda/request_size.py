# SPDX-License-Identifier: Apache-2.0
"""How many forwards a timed request holds: enough for the judge's own clock to resolve one, few enough to be quick.

It depends on what the judge measures itself and on nothing that the candidate reports. A candidate may be slow on
purpose while the size is found; once it is faster, the size is found anew and earlier measurements are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_kernel.env.devices.cuda import memory_shares

_LEAST_MS, _FASTER, _MOST_MS = 1.0, 4.0, 50.0
"""Milliseconds of a request: at least the first, even for a candidate this many times faster than the reference, and
at most the last."""
_GROWTH = 1.5


@dataclass(frozen=True)
class RequestSize:
    """What bounds the size.

    Args:
        reference_ms: one forward of the reference.
        held_bytes: inputs and outputs of a forward, which stay on the device.
        most: upper bound.
    """

    reference_ms: float
    held_bytes: int
    most: int

    def of(self, wall_ms: float) -> int:
        """Forwards in a request, if the candidate's quickest forward so far took so long by the judge's clock."""
        wanted = math.ceil(_LEAST_MS * _FASTER / max(self.reference_ms, 1e-6))
        quick = int(_MOST_MS / max(wall_ms, 1e-6))
        return max(1, min(wanted, quick, self.most, memory_shares.TIMED_BYTES // max(self.held_bytes, 1)))

    def has_grown(self, wall_ms: float, count: int) -> bool:
        """Whether a request of `count` forwards is much smaller than it would be now."""
        return self.of(wall_ms) >= _GROWTH * count
