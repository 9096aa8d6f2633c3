# SPDX-License-Identifier: Apache-2.0
"""The rounds of a measurement: both sides by every protocol, in turns, until the one that counts has settled.

The judge compares outputs in every round: all of them where that is cheap, else one at a secret place in a secret tenth
of the requests. A round in which the device was slowed down is done again.
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
from verl_kernel.env.devices.cuda.stopwatch import WARM_UPS, Forward, Stopwatch, warm
from verl_kernel.env.ipc.messages import CallStep, Claims, NullStep, TimeStep
from verl_kernel.env.ipc.shared_memory import place, unflatten
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import Comparison
from verl_kernel.env.tamper.hack_flags import HackFlag

# How many forwards a timed request holds: enough for the judge's own clock to resolve one, few enough to be quick.
#
# It depends on what the judge measures itself and on nothing that the candidate reports. A candidate may be slow on
# purpose while the size is found; once it is faster, the size is found anew and earlier measurements are dropped.


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


# Checks the runner's times (CUDA events, which it could forge) against the judge's own (wall time).
#
# A timed call is one request for several forwards; its times are per forward. Its wall time contains the forwards and a
# constant overhead (wake-up, flushes, device-wide synchronisation, copies of the outputs). That is measured by null
# calls, the same request without the forwards, in every round because a host's load changes, and by what the judge sees
# its own reference take beyond events and null calls. What the median call takes beyond all that is hidden work, and
# every call is charged with it. A runner that hides work in fewer than half of its calls gains nothing, because the
# median is what counts; one that hides it in more of them gains at most the uncertainty of the null calls' median,
# divided by the number of forwards.


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


# What the rounds of one protocol have shown so far, in milliseconds of a single forward.


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


# Both sides of a comparison: the reference here, the candidate in its runner, on the same fresh inputs.
#
# Preparation is part of a call on either side (`Stopwatch.many`), so both begin with device and processor in the same
# state, poison the same memory before a forward and keep the same outputs after it. All times are those of a single
# forward.


_FIRST_TRIAL = 1 << 16
"""Numbers of timed trials start here, so that they share no inputs with the correctness trials."""


class Sides:
    """Draws inputs and times either side on them.

    Args:
        session: the evaluation.
        model: the reference, as it is timed.
        stopwatch: the judge's.
        timeout_s: of each request.
    """

    def __init__(self, session: Session, model: Any, stopwatch: Stopwatch, timeout_s: float) -> None:
        self._session, self._model, self._stopwatch, self._timeout_s = session, model, stopwatch, timeout_s
        self._drawn = _FIRST_TRIAL
        self._forms: list[Claims] = []

    def draw(self, count: int) -> list[Trial]:
        """Fresh trials, used for nothing else."""
        self._drawn += count
        return [self._session.draw(number) for number in range(self._drawn - count, self._drawn)]

    def batch(self, protocol: str, count: int) -> list[Trial]:
        """Trials for one measurement: those of its warm-up calls first."""
        return self.draw(WARM_UPS[protocol] + count)

    def reference(self, protocol: str, trials: Sequence[Trial]) -> TimedCall:
        """The reference on a batch, by both clocks too, which shows what an honest program takes beyond its events."""
        forwards, first = [self._forward(trial, protocol) for trial in trials], WARM_UPS[protocol]
        if first:
            self._stopwatch.many(protocol, forwards[:first])
        times: list[float] = []
        wall = self._wall(lambda: times.append(self._stopwatch.many(protocol, forwards[first:])[1]))
        return TimedCall(times[0], wall / (len(trials) - first))

    def candidate(self, protocol: str, trials: Sequence[Trial]) -> TimedCall:
        """One request by both clocks; ends the evaluation where an output has not the reference's form."""
        for trial in trials:
            self.offer(trial)
        first = WARM_UPS[protocol]
        if first:
            self._call(protocol, trials[:first])
        return self._call(protocol, trials[first:])

    def compare(self, trials: Sequence[Trial], numbers: Sequence[int]) -> None:
        """Compare outputs of the last request, by their place in it; ends the evaluation where one is wrong."""
        for number in numbers:
            self._ask({"step": "output", "number": number})
            self._session.accept(trials[number], self._forms[number], values=True)

    def empty(self, protocol: str, trials: Sequence[Trial]) -> tuple[float, float]:
        """What a request costs without its forwards, in the runner and here."""
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

    def _forward(self, trial: Trial, protocol: str) -> Forward[Any]:
        inputs = [tensor.clone() for tensor in trial.inputs.tensors]
        args, kwargs = unflatten(trial.inputs.tree, inputs)
        like = _nothing(trial)

        def ready() -> None:
            like.ready()
            if protocol == "kernelgym":
                warm(inputs)

        return Forward(run=lambda: self._model(*args, **kwargs), ready=ready, keep=like.keep)

    def _wall(self, act: Callable[[], object]) -> float:
        self._stopwatch.wait()
        start = time.perf_counter()
        act()
        return (time.perf_counter() - start) * 1e3

    def _ask(self, step: TimeStep) -> Claims:
        return self._session.ask({"time": step}, self._timeout_s)


def _nothing(trial: Trial) -> Forward[Any]:
    """A call that only copies the output, as a runner does: twice to poison memory before it, once to keep it."""

    def copies() -> list[torch.Tensor]:
        return [tensor.clone() for tensor in trial.expected.tensors]

    return Forward(run=lambda: None, ready=lambda: [copies(), copies()], keep=lambda _: copies())


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
