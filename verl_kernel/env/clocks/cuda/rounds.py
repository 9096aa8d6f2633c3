# SPDX-License-Identifier: Apache-2.0
"""Runs the rounds of a measurement: both sides alternately by every protocol, until the scored protocol has settled.

The judge compares outputs in every round: all of them where that is cheap, else one at a secret place in a secret tenth
of the requests. A round in which the device was slowed down is repeated.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch

from verl_kernel.env.clocks.base import Session
from verl_kernel.env.clocks.statistics import compared, is_settled, median_interval
from verl_kernel.env.devices.cuda import memory_shares
from verl_kernel.env.devices.cuda.stopwatch import WARM_UPS, Stopwatch, TimedForward, warm
from verl_kernel.env.ipc.messages import CallStep, Claims, NullStep, TimeStep
from verl_kernel.env.ipc.shared_memory import place, unflatten
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import Comparison
from verl_kernel.env.tamper.hack_flags import HackFlag

# Number of forwards in a timed request: enough for the judge's own clock to resolve one, few enough to be quick.
#
# It depends only on what the judge measures itself, not on what the candidate reports. A candidate may be slow on
# purpose while the size is chosen; once it is faster, the size is chosen again and earlier measurements are dropped.


_LEAST_MS, _FASTER, _MOST_MS = 1.0, 4.0, 50.0
"""Milliseconds of a request: at least the first, even if a candidate is `_FASTER` times as fast as the reference, and
at most the last."""
_GROWTH = 1.5


@dataclass(frozen=True)
class RequestSize:
    """Bounds of the number of forwards in a request.

    Args:
        reference_ms: time of one forward of the reference.
        held_bytes: size of the inputs and outputs of a forward, which stay on the device.
        most: upper bound of the number.
    """

    reference_ms: float
    held_bytes: int
    most: int

    def of(self, wall_ms: float) -> int:
        """Return the number of forwards, given the candidate's quickest forward so far by the judge's clock."""
        count = math.ceil(_LEAST_MS * _FASTER / max(self.reference_ms, 1e-6))
        quick = int(_MOST_MS / max(wall_ms, 1e-6))
        return max(1, min(count, quick, self.most, memory_shares.TIMED_BYTES // max(self.held_bytes, 1)))

    def has_grown(self, wall_ms: float, count: int) -> bool:
        """Whether a request of `count` forwards is much smaller than the number for `wall_ms`."""
        return self.of(wall_ms) >= _GROWTH * count


# Checks the runner's times (CUDA events, which it could forge) against the judge's own (wall time).
#
# A timed call is one request for several forwards; its times are per forward. Its wall time contains the forwards and a
# constant overhead (wake-up, flushes, device-wide synchronisation, copies of the outputs). The overhead is measured by
# null calls, which are requests without forwards, in every round because a host's load changes, and by the time that
# the judge's own reference takes beyond events and null calls. The median call's time beyond all that is hidden work,
# and every call is charged with it. A runner that hides work in fewer than half of its calls gains nothing, because
# the median counts; one that hides it in more of them gains at most the uncertainty of the null calls' median,
# divided by the number of forwards.


HONEST_SHARE = 0.5
"""Least share of the wall time beyond a null call that an honest runner's events explain."""
JITTER_MS = 1.0
"""Hidden milliseconds up to which no cheating is assumed, since a busy host causes as much; they are still charged."""


@dataclass(frozen=True)
class TimedCall:
    """Times of one call by both clocks, in milliseconds per forward.

    Raises:
        ValueError: `inner` is not a possible time.
    """

    inner: float
    """Time by events, as the runner reports it."""
    wall: float

    def __post_init__(self) -> None:
        if type(self.inner) not in (int, float) or not isfinite(self.inner) or self.inner < 0:
            raise ValueError("a timed call needs a finite number of milliseconds of at least 0")


@dataclass(frozen=True)
class NullCall:
    """Time of a request without its forwards, in milliseconds per forward."""

    typical: float
    high: float

    @classmethod
    def of(cls, walls: Sequence[float], ceiling: float) -> NullCall:
        """Estimate the time from a sample of wall times.

        Args:
            walls: wall times of null calls, which the runner can slow down on purpose.
            ceiling: upper bound of such a time that the judge can verify.
        """
        return cls(min(statistics.median(walls), ceiling), min(upper(walls), ceiling))

    def and_also(self, milliseconds: float) -> NullCall:
        """Return a null call that takes this much longer."""
        return NullCall(self.typical + milliseconds, self.high + milliseconds)


def upper(values: Sequence[float]) -> float:
    """Return the upper end of the median's 95 % confidence interval; the largest value where there are too few."""
    interval = median_interval(values)
    return max(values) if interval is None else interval[1]


def hidden_ms(calls: Sequence[TimedCall], null: NullCall) -> float:
    """Return the milliseconds of the median call that neither its events nor a null call explain."""
    return max(0.0, statistics.median(call.wall - call.inner for call in calls) - null.high)


def mismatch(calls: Sequence[TimedCall], null: NullCall) -> str | None:
    """Return why the runner's times cannot be true; None if they can."""
    inner = statistics.median(call.inner for call in calls)
    wall = statistics.median(call.wall for call in calls)
    if inner > 1.02 * wall + JITTER_MS:
        # check: events-do-not-exceed-the-wall-clock
        return f"the events claim {inner:.3f} ms of calls that took {wall:.3f} ms in all"
    hidden = hidden_ms(calls, null)
    if hidden > JITTER_MS and inner < HONEST_SHARE * (inner + hidden):
        # check: events-explain-the-wall-clock
        return f"the events explain {inner:.3f} ms and leave {hidden:.3f} ms of a call unexplained"
    return None


_SLACK_MS, _SHARE = 1.0, 1.25
"""An empty request may take `_SLACK_MS` more in the runner than `_SHARE` times its time in the judge."""


@dataclass(frozen=True)
class Round:
    """Times of a request, of the reference on the same inputs, and of an empty request in the runner and the judge."""

    call: TimedCall
    reference: TimedCall
    empty_ms: float
    own_empty_ms: float


@dataclass
class Samples:
    """The rounds of one protocol, with `count` forwards in a request."""

    count: int
    rounds: list[Round] = field(default_factory=list)
    width: float = 0.01
    """Of the intervals of both medians with which they are settled, as a share of them."""

    @property
    def calls(self) -> list[TimedCall]:
        """Times of the candidate's requests."""
        return [timed_round.call for timed_round in self.rounds]

    @property
    def null(self) -> NullCall:
        """Time of a forward beyond its events if nothing is hidden.

        An empty request does not use the processor's caches as a forward does. The judge measures that difference on
        the reference's forwards and its own empty requests, which no candidate can influence.
        """
        own = [timed_round.own_empty_ms for timed_round in self.rounds]
        ceiling = _SLACK_MS / self.count + _SHARE * upper(own)
        beyond = statistics.median(
            timed_round.reference.wall - timed_round.reference.inner for timed_round in self.rounds
        )
        null = NullCall.of([timed_round.empty_ms for timed_round in self.rounds], ceiling)
        return null.and_also(max(0.0, beyond - statistics.median(own)))

    @property
    def kernel(self) -> list[float]:
        """Time per forward that the candidate is charged with, by request."""
        hidden = hidden_ms(self.calls, self.null)
        return [call.inner + hidden for call in self.calls]

    @property
    def reference(self) -> list[float]:
        """The reference's times per forward."""
        return [timed_round.reference.inner for timed_round in self.rounds]

    @property
    def settled(self) -> bool:
        """Whether both medians are known well enough."""
        return bool(self.rounds) and is_settled(self.kernel, self.width) and is_settled(self.reference, self.width)

    @property
    def comparison(self) -> Comparison | None:
        """Times and speedup; None where the candidate's median is 0, so that there is no ratio."""
        return compared(self.kernel, self.reference) if statistics.median(self.kernel) > 0 else None

    def refusal(self, floor_ms: float) -> tuple[HackFlag, str] | None:
        """Return flag and reason if the candidate's times cannot be true.

        Args:
            floor_ms: least time that a forward needs for its memory traffic; 0 where no bound is known.
        """
        median = statistics.median(self.kernel)
        if median <= 0 or median < floor_ms:
            # check: time-exceeds-the-floor
            return HackFlag.IMPOSSIBLE_TIME, f"{median:.4f} ms is less than moving the data takes, {floor_ms:.4f} ms"
        reason = mismatch(self.calls, self.null)
        return None if reason is None else (HackFlag.TIMING_MISMATCH, reason)  # check: clocks-agree


# Both sides of a comparison: the reference in the judge and the candidate in its runner, on the same fresh inputs.
#
# Preparation is part of a call on either side (`Stopwatch.many`), so both begin with device and processor in the same
# state, poison the same memory before a forward and keep the same outputs after it. All times are per forward.


_FIRST_TRIAL = 1 << 16
"""First number of the timed trials, so that they share no inputs with the correctness trials."""


class Sides:
    """Draws inputs and times reference and candidate on them.

    Args:
        session: the evaluation.
        model: the reference in its `reference_mode`.
        stopwatch: the judge's stopwatch.
        timeout_s: timeout of each request.
    """

    def __init__(self, session: Session, model: Any, stopwatch: Stopwatch, timeout_s: float) -> None:
        self._session, self._model, self._stopwatch, self._timeout_s = session, model, stopwatch, timeout_s
        self._next_trial = _FIRST_TRIAL
        self._forms: list[Claims] = []

    def draw(self, count: int) -> list[Trial]:
        """Draw fresh trials, which are used only once."""
        self._next_trial += count
        return [self._session.draw(number) for number in range(self._next_trial - count, self._next_trial)]

    def batch(self, protocol: str, count: int) -> list[Trial]:
        """Draw the trials of one measurement, first those of its warm-up calls."""
        return self.draw(WARM_UPS[protocol] + count)

    def reference(self, protocol: str, trials: Sequence[Trial]) -> TimedCall:
        """Time the reference on a batch by both clocks, which shows how long honest calls take beyond their events."""
        forwards, first = [self._forward(trial, protocol) for trial in trials], WARM_UPS[protocol]
        if first:
            self._stopwatch.many(protocol, forwards[:first])
        times: list[float] = []
        wall = self._wall(lambda: times.append(self._stopwatch.many(protocol, forwards[first:])[1]))
        return TimedCall(times[0], wall / (len(trials) - first))

    def candidate(self, protocol: str, trials: Sequence[Trial]) -> TimedCall:
        """Time one request by both clocks; ends the evaluation if an output does not have the reference's form."""
        for trial in trials:
            self.offer(trial)
        first = WARM_UPS[protocol]
        if first:
            self._call(protocol, trials[:first])
        return self._call(protocol, trials[first:])

    def compare(self, trials: Sequence[Trial], numbers: Sequence[int]) -> None:
        """Compare these outputs of the last request, by their place in it; ends the evaluation if one is wrong."""
        for number in numbers:
            self._ask({"step": "output", "number": number})
            self._session.accept(trials[number], self._forms[number], values=True)

    def empty(self, protocol: str, trials: Sequence[Trial]) -> tuple[float, float]:
        """Time a request without its forwards, in the runner and in the judge."""
        count = len(trials) - WARM_UPS[protocol]
        request: NullStep = {"step": "null", "protocol": protocol, "count": count}
        nothing = [_nothing(trials[0])] * count
        theirs = self._wall(lambda: self._ask(request))
        return theirs / count, self._wall(lambda: self._stopwatch.many(protocol, nothing)) / count

    def offer(self, trial: Trial) -> None:
        """Put a trial's inputs on the runner's device."""
        offered = self._session.offer(trial)
        self._stopwatch.wait()
        self._ask({"step": "offer", **offered})

    def _call(self, protocol: str, trials: Sequence[Trial]) -> TimedCall:
        replies: list[Claims] = []
        count = len(trials)
        request: CallStep = {"step": "call", "protocol": protocol, "count": count}
        wall = self._wall(lambda: replies.append(self._ask(request)))
        reply = replies[0]
        self._forms = self._session.parse(lambda: _read_forms(reply["forms"], count))
        for trial, form in zip(trials, self._forms, strict=True):
            self._session.accept(trial, form, values=False)
        return self._session.parse(lambda: TimedCall(_read_ms(reply["inner_ms"]), wall / count))

    def _forward(self, trial: Trial, protocol: str) -> TimedForward[Any]:
        inputs = [tensor.clone() for tensor in trial.inputs.tensors]
        args, kwargs = unflatten(trial.inputs.tree, inputs)
        like = _nothing(trial)

        def ready() -> None:
            like.ready()
            if protocol == "kernelgym":
                warm(inputs)

        return TimedForward(run=lambda: self._model(*args, **kwargs), ready=ready, keep=like.keep)

    def _wall(self, act: Callable[[], object]) -> float:
        self._stopwatch.wait()
        start = time.perf_counter()
        act()
        return (time.perf_counter() - start) * 1e3

    def _ask(self, step: TimeStep) -> Claims:
        return self._session.ask({"time": step}, self._timeout_s)


def _nothing(trial: Trial) -> TimedForward[Any]:
    """Return a call that only copies the output, as a runner does: twice to poison memory, once to keep the output."""

    def copies() -> list[torch.Tensor]:
        return [tensor.clone() for tensor in trial.expected.tensors]

    return TimedForward(run=lambda: None, ready=lambda: [copies(), copies()], keep=lambda _: copies())


def _read_forms(value: object, count: int) -> list[Claims]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value[:count]):
        raise ValueError("the forms of outputs must be a list of objects")
    return [value[number] for number in range(count)]


def _read_ms(value: object) -> float:
    if not isinstance(value, int | float):
        raise ValueError("milliseconds must be a number")
    return value


_LEAST, _MOST, _PUBLISHED_CALLS = 10, 100, 100
_COMPARED_BYTES, _SAMPLE = 16 << 20, 10
_SPARE_ROUNDS, _COOL_S = 20, 0.05


class Rounds:
    """One measurement by rounds; an object is used once.

    Args:
        sides: reference and candidate.
        timing: the protocol that is scored.
        secret: secret of the evaluation.
        budget_s: time after which no round beyond the tenth begins.
        size: bounds of the requests' size.
        width: of the intervals with which medians are settled.
        slowed: returns the names of what slows the device down at the moment, None if unknown.
    """

    def __init__(
        self,
        sides: Sides,
        timing: str,
        secret: bytes,
        *,
        budget_s: float,
        size: RequestSize,
        width: float,
        slowed: Callable[[], list[str] | None],
    ) -> None:
        self._sides, self._timing, self._secret, self._budget_s = sides, timing, secret, budget_s
        self._size, self._width, self._slowed = size, width, slowed
        self.samples: dict[str, Samples] = {}
        self.throttled: int | None = 0
        """Number of rounds discarded because of throttling, None if unknown."""

    def run(self, wall_ms: float) -> None:
        """Run all rounds.

        Args:
            wall_ms: the candidate's quickest forward so far, by the judge's clock.
        """
        self._begin(self._size.of(wall_ms))
        begun, is_over = time.monotonic(), False
        while not is_over:
            late = time.monotonic() - begun > self._budget_s
            is_last = self._ends(len(self.chosen.rounds) + 1, late)
            by_protocol = self._round(is_last)
            wall_ms = min(wall_ms, *(timed_round.call.wall for timed_round in by_protocol.values()))
            if self._size.has_grown(wall_ms, self.chosen.count):  # the candidate may have been slow on purpose
                self._begin(self._size.of(wall_ms))
            elif not self._is_thrown_away():
                for name, timed_round in by_protocol.items():
                    self.samples[name].rounds.append(timed_round)
                is_over = is_last and self._ends(len(self.chosen.rounds), late)

    @property
    def chosen(self) -> Samples:
        """Samples of the scored protocol."""
        return self.samples[self._timing]

    def _begin(self, count: int) -> None:
        """Start again: always by `device` and `latency`, by `kernelgym` (as published, no flush) if it is scored."""
        names = [name for name in WARM_UPS if name in ("device", "latency", self._timing)]
        self.samples = {name: Samples(count, width=self._width) for name in names}

    def _ends(self, rounds: int, late: bool) -> bool:
        """Whether `done` rounds are enough."""
        fewest, limit = self._bounds()
        return rounds >= limit or (rounds >= fewest and (late or self.chosen.settled))

    def _bounds(self) -> tuple[int, int]:
        """Return the fewest and most rounds."""
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
        if number % 2:  # each side goes first in half of the rounds, so that the order favours neither
            reference = self._sides.reference(protocol, trials)
        call = self._sides.candidate(protocol, trials)
        self._sides.compare(timed, self._compared(protocol, number, timed, is_last))
        if not number % 2:
            reference = self._sides.reference(protocol, trials)
        return Round(call, reference, *self._sides.empty(protocol, trials))

    def _compared(self, protocol: str, number: int, trials: Sequence[Trial], is_last: bool) -> Sequence[int]:
        """Return the places of the outputs to compare, which the candidate cannot predict."""
        if sum(place(trial.expected.tensors)[1] for trial in trials) <= _COMPARED_BYTES:
            return range(len(trials))
        digest = hashlib.sha256(self._secret + f"compared {protocol} {number}".encode()).digest()
        return [digest[1] % len(trials)] if is_last or digest[0] % _SAMPLE == 0 else []
