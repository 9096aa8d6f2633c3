# SPDX-License-Identifier: Apache-2.0
"""The rounds of a measurement: both sides by every protocol, in turns, until the one that counts has settled.

The judge compares outputs in every round: all of them where that is cheap, else one at a secret place in a secret tenth
of the requests. A round in which the device was slowed down is done again.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence

from verl_kernel.env.clocks.cuda.request_size import RequestSize
from verl_kernel.env.clocks.cuda.samples import Round, Samples
from verl_kernel.env.clocks.cuda.sides import Sides
from verl_kernel.env.devices.cuda.stopwatch import WARM_UPS
from verl_kernel.env.ipc.tensors import place
from verl_kernel.env.reference.trial import Trial

_LEAST, _MOST, _PUBLISHED_CALLS = 10, 100, 100
_COMPARED_BYTES, _SAMPLE = 16 << 20, 10
_SPARE_ROUNDS, _COOL_S = 20, 0.05


class Rounds:
    """Measures; used once.

    Args:
        sides: what is timed.
        timing: the protocol that counts.
        secret: of the evaluation.
        budget_s: past it no rounds beyond the tenth begin.
        size: of the requests.
        slowed: names of what slows the device down at the moment, None where that is unknown.
    """

    def __init__(
        self,
        sides: Sides,
        timing: str,
        secret: bytes,
        budget_s: float,
        size: RequestSize,
        slowed: Callable[[], list[str] | None],
    ) -> None:
        self._sides, self._timing, self._secret, self._budget_s = sides, timing, secret, budget_s
        self._size, self._slowed = size, slowed
        self.samples: dict[str, Samples] = {}
        self.throttled: int | None = 0
        """How many rounds were thrown away, None where nobody knows."""

    def run(self, wall_ms: float) -> None:
        """Do them all.

        Args:
            wall_ms: the candidate's quickest forward so far, by the judge's clock.
        """
        self._begin(self._size.of(wall_ms))
        begun, is_over = time.monotonic(), False
        while not is_over:
            late = time.monotonic() - begun > self._budget_s
            is_last = self._ends(len(self.chosen.rounds) + 1, late)
            found = self._round(is_last)
            wall_ms = min(wall_ms, *(one.call.wall for one in found.values()))
            if self._size.has_grown(wall_ms, self.chosen.count):
                self._begin(self._size.of(wall_ms))
            elif not self._is_thrown_away():
                for name, one in found.items():
                    self.samples[name].rounds.append(one)
                is_over = is_last and self._ends(len(self.chosen.rounds), late)

    @property
    def chosen(self) -> Samples:
        """Those of the protocol that counts."""
        return self.samples[self._timing]

    def _begin(self, count: int) -> None:
        """Start anew, by `device` and `latency` always and by `kernelgym` (as published, no flush) where it counts."""
        self.samples = {name: Samples(count) for name in WARM_UPS if name in ("device", "latency", self._timing)}

    def _ends(self, done: int, late: bool) -> bool:
        """Whether so many rounds are enough."""
        least, most = self._bounds()
        return done >= most or (done >= least and (late or self.chosen.settled))

    def _bounds(self) -> tuple[int, int]:
        """Fewest and most rounds."""
        if self._timing != "kernelgym":
            return _LEAST, _MOST
        published = max(_LEAST, math.ceil(_PUBLISHED_CALLS / self.chosen.count))
        return published, published

    def _is_thrown_away(self) -> bool:
        reasons = self._slowed()
        if reasons is None:
            self.throttled = None
        if not reasons or self.throttled is None or self.throttled >= _SPARE_ROUNDS:
            return False
        self.throttled += 1
        time.sleep(_COOL_S)
        return True

    def _round(self, is_last: bool) -> dict[str, Round]:
        number = len(self.chosen.rounds)
        names = [name for name in self.samples if number < _LEAST or name == self._timing]
        return {name: self._one(name, number, is_last) for name in names}

    def _one(self, protocol: str, number: int, is_last: bool) -> Round:
        trials = self._sides.batch(protocol, self.chosen.count)
        timed = trials[WARM_UPS[protocol] :]
        if number % 2:
            reference = self._sides.reference(protocol, trials)
        call = self._sides.candidate(protocol, trials)
        self._sides.compare(timed, self._compared(protocol, number, timed, is_last))
        if not number % 2:
            reference = self._sides.reference(protocol, trials)
        return Round(call, reference, *self._sides.empty(protocol, trials))

    def _compared(self, protocol: str, number: int, trials: Sequence[Trial], is_last: bool) -> Sequence[int]:
        """Places of the outputs to compare."""
        if sum(place(trial.expected.tensors)[1] for trial in trials) <= _COMPARED_BYTES:
            return range(len(trials))
        drawn = hashlib.sha256(self._secret + f"compared {protocol} {number}".encode()).digest()
        return [drawn[1] % len(trials)] if is_last or drawn[0] % _SAMPLE == 0 else []
