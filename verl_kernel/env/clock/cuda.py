# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: candidate and reference in turns on the same device, until the medians are known to 1 %.

Each round draws fresh inputs and times both sides on them, first one, then the other, by every protocol asked for
(`stopwatch`). A request holds several forwards where they are short, so that the judge's own clock, which the
candidate's times have to agree with (`crosscheck`), resolves them. Outputs are compared as in the correctness trials,
and no median may lie under the roofline. The device is locked from the first warm-up to the last profile.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch

from verl_kernel.env.arena import place
from verl_kernel.env.clock.base import Measurement, Session
from verl_kernel.env.clock.cuda_profile import load_kernels, profile_kernels
from verl_kernel.env.clock.roofline import bytes_read, floor_ms
from verl_kernel.env.clock.samples import Round, Samples
from verl_kernel.env.clock.sides import Sides
from verl_kernel.env.clock.statistics import timing
from verl_kernel.env.clock.stopwatch import WARM_UPS, Stopwatch
from verl_kernel.env.options import GymOptions
from verl_kernel.env.profile import Profile
from verl_kernel.env.reference import Reference, Trial
from verl_kernel.env.trace import load_events

_COMPILED_TRIAL = (1 << 16) - 1
_WARM_UPS, _LEAST, _MOST, _PROFILES = 3, 10, 100, 2
_REQUEST_MS, _FASTER, _HELD_BYTES = 1.0, 4.0, 64 << 20
"""A request lasts so long even where the candidate is so much faster than the reference, within these bounds."""
_PUBLISHED_CALLS = 100
_COMPARED_BYTES, _SAMPLE = 16 << 20, 10
_SPARE_ROUNDS, _COOL_S = 20, 0.05


class CudaClock:
    """Measures on the current device.

    Args:
        options: of the gym; `run_timeout_s` bounds each request, and past it in all no rounds beyond the tenth begin.
        stopwatch: the judge's.
        alone: locks the device.
        state: clocks and throttling at the moment.
        peak: device-memory bandwidth in GB/s, None where it is not known.
        slowed: names of what slows the device down at the moment, None where that is unknown.
        shared: for using the device beside others.
    """

    source = "cuda_event"
    most_forwards = 16
    """In a request."""

    def __init__(
        self,
        options: GymOptions,
        stopwatch: Stopwatch,
        alone: Callable[[], AbstractContextManager[Any]],
        state: Callable[[], dict[str, Any]],
        peak: float | None,
        slowed: Callable[[], list[str] | None] = lambda: None,
        shared: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._options, self._stopwatch, self._alone, self._state, self._peak = options, stopwatch, alone, state, peak
        self._slowed, self._shared = slowed, shared
        self._compiled: WeakKeyDictionary[Reference, Any] = WeakKeyDictionary()

    def measure(self, session: Session) -> Measurement:
        """Times of both sides, the candidate's cross-checked, and its profile."""
        model = self._timed_model(session)
        with self._alone(), torch.no_grad():
            sides = Sides(session, model, self._stopwatch, self._options.run_timeout_s)
            (first,) = sides.draw(1)
            floor = self._floor(session, first)
            count = self._forwards(self._warm_up(sides), first)
            before = self._stopwatch.under_load(self._state)
            samples = {name: Samples(count) for name in self._protocols}
            throttled = self._run(session, sides, samples)
            profile = self._profile(session, sides)
            clocks = {"before": before, "after": self._state()}
        chosen = samples[self._options.timing]
        facts = {
            "clocks": clocks, "throttled": throttled, "null_ms": chosen.null.typical, "floor_ms": floor,
            "timing": self._options.timing, "forwards": count, "settled": chosen.settled,
        }  # fmt: skip
        return self._verdict(samples, floor, profile, facts)

    @property
    def _protocols(self) -> tuple[str, ...]:
        """Both times always; the published one, whose calls flush nothing, where it is asked for."""
        return tuple(name for name in WARM_UPS if name in ("device", "latency", self._options.timing))

    def _timed_model(self, session: Session) -> Any:
        """The reference as `reference_mode` wants it, compiled once, while others may use the device."""
        reference = session.reference
        if self._options.reference_mode == "eager":
            return reference.model
        if reference not in self._compiled:
            model: Any = torch.compile(reference.model)
            with self._shared(), torch.no_grad():
                args, kwargs = session.trial(_COMPILED_TRIAL).inputs.build()
                model(*args, **kwargs)
                self._stopwatch.wait()
            self._compiled[reference] = model
        return self._compiled[reference]

    def _verdict(
        self, samples: dict[str, Samples], floor: float, profile: Profile | None, facts: dict[str, Any]
    ) -> Measurement:
        chosen = samples[self._options.timing]
        refusals = [one.refusal(0.0 if name == "kernelgym" else floor) for name, one in samples.items()]
        found = {name: one.comparison for name, one in samples.items()}
        times = {name: comparison for name, comparison in found.items() if comparison is not None}
        sure = times[self._options.timing].speedup_low if self._options.timing in times else None
        blind = {"profiler_saw_nothing": True} if profile is None else {}
        return Measurement(
            timing(chosen.kernel), timing(chosen.reference), profile, next(filter(None, refusals), None),
            facts={**facts, **blind}, times=times, sure=sure,
        )  # fmt: skip

    def _floor(self, session: Session, trial: Trial) -> float:
        args, kwargs = trial.inputs.build()
        used = _tensors((args, kwargs)) + _parameters(session.reference.model)
        read = bytes_read(lambda: session.reference.model(*args, **kwargs), used)
        written = sum(tensor.numel() * tensor.element_size() for tensor in trial.expected.tensors)
        return floor_ms(read, written, self._peak, self._stopwatch.l2_bytes)

    def _warm_up(self, sides: Sides) -> float:
        """Milliseconds of the reference, which is quickest when everything has been loaded."""
        times = []
        for _ in range(_WARM_UPS):
            trials = sides.draw(1)
            times.append(sides.reference("device", trials).inner)
            sides.candidate("device", trials)
        return min(times)

    def _forwards(self, reference_ms: float, trial: Trial) -> int:
        """Forwards in a request, by what the judge knows alone: a candidate's word could make the check coarse."""
        held = place(trial.inputs.tensors)[1] + place(trial.expected.tensors)[1]
        wanted = math.ceil(_REQUEST_MS * _FASTER / max(reference_ms, 1e-6))
        return max(1, min(wanted, self.most_forwards, _HELD_BYTES // max(held, 1)))

    def _run(self, session: Session, sides: Sides, samples: dict[str, Samples]) -> int | None:
        """Rounds until the chosen protocol has settled; those in which the device was slowed down are done again.

        Returns:
            How many those were, None where nobody knows.
        """
        chosen, begun = samples[self._options.timing], time.monotonic()
        least, most = self._rounds(chosen.count)
        number, thrown_away = 0, 0
        while number < most:
            late = time.monotonic() - begun > self._options.run_timeout_s
            is_last = number + 1 >= least and (number + 1 == most or late or chosen.settled)
            names = [name for name in samples if number < _LEAST or samples[name] is chosen]
            found = {name: self._round(session, sides, name, chosen.count, number, is_last) for name in names}
            reasons = self._slowed()
            if reasons and thrown_away < _SPARE_ROUNDS:
                thrown_away += 1
                time.sleep(_COOL_S)
                continue
            for name, one in found.items():
                samples[name].rounds.append(one)
            number += 1
            if is_last and (late or chosen.settled):
                break
        return None if reasons is None else thrown_away

    def _rounds(self, count: int) -> tuple[int, int]:
        """Fewest and most rounds."""
        if self._options.timing != "kernelgym":
            return _LEAST, _MOST
        published = max(_LEAST, math.ceil(_PUBLISHED_CALLS / count))
        return published, published

    def _round(self, session: Session, sides: Sides, protocol: str, count: int, number: int, is_last: bool) -> Round:
        trials = sides.batch(protocol, count)
        if number % 2:
            reference = sides.reference(protocol, trials)
        call = sides.candidate(protocol, trials)
        timed = trials[WARM_UPS[protocol] :]
        sides.compare(timed, _compared(session.secret, protocol, number, timed, is_last))
        if not number % 2:
            reference = sides.reference(protocol, trials)
        return Round(call, reference, *sides.empty(protocol, trials))

    def _profile(self, session: Session, sides: Sides) -> Profile | None:
        """The second of two: the first also starts the profiler, which may miss what runs meanwhile."""
        profile = None
        for trial in sides.draw(_PROFILES):
            sides.offer(trial)
            reply = session.ask({"time": {"step": "profile"}}, self._options.run_timeout_s)
            kernels = session.parse(lambda reply=reply: load_kernels(reply["kernels"]))  # type: ignore[misc]
            events = session.parse(lambda reply=reply: load_events(reply["events"]))  # type: ignore[misc]
            profile = profile_kernels(kernels, events, session.source)
        return profile


def _compared(secret: bytes, protocol: str, number: int, trials: list[Trial], is_last: bool) -> list[int]:
    """Places of the outputs to compare: all where that is cheap, else one of a secret tenth of the requests."""
    if sum(place(trial.expected.tensors)[1] for trial in trials) <= _COMPARED_BYTES:
        return list(range(len(trials)))
    drawn = hashlib.sha256(secret + f"compared {protocol} {number}".encode()).digest()
    return [drawn[1] % len(trials)] if is_last or drawn[0] % _SAMPLE == 0 else []


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _parameters(model: Any) -> list[torch.Tensor]:
    return list(model.state_dict().values()) if isinstance(model, torch.nn.Module) else []
