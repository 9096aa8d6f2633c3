# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: candidate and reference in turns on the same idle device, until the medians are known to 1 %.

Each round draws fresh inputs and times both sides, first one, then the other: cold L2, no_grad, CUDA events around
the forward, device-wide synchronisation. The candidate's time is what the judge's own clock lets stand of the
runner's claim (`crosscheck`), its outputs are compared as in the correctness trials, and no median may lie under the
roofline. The device is locked from the first warm-up to the last profile.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from verl_kernel.env.arena import place
from verl_kernel.env.channel import Message
from verl_kernel.env.clock.base import Measurement, Session
from verl_kernel.env.clock.crosscheck import NullCall, TimedCall, hidden_ms, mismatch
from verl_kernel.env.clock.cuda_profile import load_kernels, profile_kernels
from verl_kernel.env.clock.roofline import bytes_read, floor_ms
from verl_kernel.env.clock.statistics import is_settled, timing
from verl_kernel.env.clock.stopwatch import Stopwatch
from verl_kernel.env.float32 import precision
from verl_kernel.env.options import GymOptions
from verl_kernel.env.profile import Profile
from verl_kernel.env.reference import Reference, Trial
from verl_kernel.env.trace import load_events

_FIRST_TRIAL = 1 << 16
"""Numbers of timed trials start here, so that they share no inputs with the correctness trials."""
_WARM_UPS, _NULLS, _LEAST, _MOST, _PROFILES = 3, 7, 10, 100, 2
_COMPARED_BYTES, _SAMPLE = 16 << 20, 10
_NULL_SLACK_MS, _NULL_COPIES = 1.0, 1.5


@dataclass
class _Rounds:
    """What the rounds so far have shown, in milliseconds."""

    null: NullCall
    calls: list[TimedCall] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)

    @property
    def kernel(self) -> list[float]:
        """What the candidate is charged with, call by call."""
        hidden = hidden_ms(self.calls, self.null)
        return [call.inner + hidden for call in self.calls]

    @property
    def settled(self) -> bool:
        return is_settled(self.kernel) and is_settled(self.reference)


class CudaClock:
    """Measures on the current device.

    Args:
        options: of the gym; `run_timeout_s` bounds each request, and past it in all no rounds beyond the tenth begin.
        stopwatch: the judge's.
        alone: locks the device.
        state: clocks and throttling at the moment.
        peak: device-memory bandwidth in GB/s, None where it is not known.
    """

    source = "cuda_event"

    def __init__(
        self,
        options: GymOptions,
        stopwatch: Stopwatch,
        alone: Callable[[], AbstractContextManager[Any]],
        state: Callable[[], dict[str, Any]],
        peak: float | None,
    ) -> None:
        self._options, self._stopwatch, self._alone, self._state, self._peak = options, stopwatch, alone, state, peak
        self._compiled: WeakKeyDictionary[Reference, Any] = WeakKeyDictionary()

    def measure(self, session: Session) -> Measurement:
        """Times of both sides, the candidate's cross-checked, and its profile."""
        reference = self._timed_model(session.reference)
        with self._alone(), precision(self._options.float32), torch.no_grad():
            before = self._state()
            first = session.trial(_FIRST_TRIAL)
            floor = self._floor(session, first)
            self._warm_up(session, reference)
            null = self._calibrate(session, reference, first)
            rounds = self._run(session, reference, null)
            profile = self._profile(session)
            facts = {"clocks": {"before": before, "after": self._state()}, "null_ms": null.typical, "floor_ms": floor}
        return self._verdict(rounds, floor, profile, facts)

    def _timed_model(self, reference: Reference) -> Any:
        """The reference as `reference_mode` wants it, compiled once."""
        if self._options.reference_mode == "eager":
            return reference.model
        if reference not in self._compiled:
            self._compiled[reference] = torch.compile(reference.model)
        return self._compiled[reference]

    def _verdict(self, rounds: _Rounds, floor: float, profile: Profile | None, facts: dict[str, Any]) -> Measurement:
        kernel_ms = timing(rounds.kernel)
        refusal = None
        if (reason := mismatch(rounds.calls, rounds.null)) is not None:
            refusal = ("timing_mismatch", reason)
        if kernel_ms.median < floor:
            reason = f"{kernel_ms.median:.4f} ms is less than moving the data takes, {floor:.4f} ms"
            refusal = ("impossible_time", reason)
        facts = {**facts, "settled": rounds.settled}
        return Measurement(kernel_ms, timing(rounds.reference), profile, refusal, facts=facts)

    def _floor(self, session: Session, trial: Trial) -> float:
        args, kwargs = trial.inputs.build()
        used = _tensors((args, kwargs)) + _parameters(session.reference.model)
        read = bytes_read(lambda: session.reference.model(*args, **kwargs), used)
        written = sum(tensor.numel() * tensor.element_size() for tensor in trial.expected.tensors)
        return floor_ms(read, written, self._peak, self._stopwatch.l2_bytes)

    def _warm_up(self, session: Session, reference: Any) -> None:
        for number in range(_WARM_UPS):
            trial = session.trial(_FIRST_TRIAL + 1 + number)
            self._time_reference(reference, trial)
            self._time_candidate(session, trial)

    def _calibrate(self, session: Session, reference: Any, trial: Trial) -> NullCall:
        """What a request costs without a forward, in the rhythm of the rounds; capped, for a runner may dawdle."""
        walls = []
        for _ in range(_NULLS):
            self._time_reference(reference, trial)
            self._offer(session, trial)
            start = time.perf_counter()
            self._ask(session, {"step": "null"})
            walls.append((time.perf_counter() - start) * 1e3)
        return NullCall.of(walls, _NULL_SLACK_MS + _NULL_COPIES * self._stopwatch.copy_ms(trial.expected.tensors))

    def _run(self, session: Session, reference: Any, null: NullCall) -> _Rounds:
        rounds, start = _Rounds(null), time.monotonic()
        first = _FIRST_TRIAL + 1 + _WARM_UPS
        for number in range(_MOST):
            trial = session.trial(first + number)
            if number % 2:
                rounds.reference.append(self._time_reference(reference, trial))
            reply, wall = self._time_candidate(session, trial)
            call = session.parse(lambda reply=reply, wall=wall: TimedCall(reply["inner_ms"], wall))  # type: ignore[misc]
            rounds.calls.append(call)
            late = time.monotonic() - start > self._options.run_timeout_s
            is_last = number + 1 >= _LEAST and (late or rounds.settled or number + 1 == _MOST)
            session.accept(trial, reply, values=is_last or self._is_compared(session, trial, number))
            if not number % 2:
                rounds.reference.append(self._time_reference(reference, trial))
            if is_last:
                break
        return rounds

    def _is_compared(self, session: Session, trial: Trial, number: int) -> bool:
        """Whether this output's values are compared: all where that is cheap, else a secret tenth (and the last)."""
        if place(trial.expected.tensors)[1] <= _COMPARED_BYTES:
            return True
        return hashlib.sha256(session.secret + b"compared%d" % number).digest()[0] % _SAMPLE == 0

    def _profile(self, session: Session) -> Profile | None:
        """The second of two: the first also starts the profiler, which may miss what runs meanwhile."""
        profile = None
        for number in range(_PROFILES):
            self._offer(session, session.trial(_FIRST_TRIAL + 1 + _WARM_UPS + _MOST + number))
            reply = self._ask(session, {"step": "profile"})
            kernels = session.parse(lambda reply=reply: load_kernels(reply["kernels"]))  # type: ignore[misc]
            events = session.parse(lambda reply=reply: load_events(reply["events"]))  # type: ignore[misc]
            profile = profile_kernels(kernels, events, session.source)
        return profile

    def _time_reference(self, reference: Any, trial: Trial) -> float:
        args, kwargs = trial.inputs.build()
        self._stopwatch.chill()
        return self._stopwatch.time(lambda: reference(*args, **kwargs))[1]

    def _time_candidate(self, session: Session, trial: Trial) -> tuple[Message, float]:
        """The runner's reply to one timed call and the wall milliseconds it took."""
        self._offer(session, trial)
        start = time.perf_counter()
        reply = self._ask(session, {"step": "call"})
        return reply, (time.perf_counter() - start) * 1e3

    def _offer(self, session: Session, trial: Trial) -> None:
        request = session.offer(trial)
        self._stopwatch.wait()
        self._ask(session, {"step": "offer", **request})

    def _ask(self, session: Session, step: Message) -> Message:
        return session.ask({"time": step}, self._options.run_timeout_s)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _parameters(model: Any) -> list[torch.Tensor]:
    return list(model.state_dict().values()) if isinstance(model, torch.nn.Module) else []
