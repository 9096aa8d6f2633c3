# SPDX-License-Identifier: Apache-2.0
"""Both sides of a comparison: the reference here, the candidate in its runner, on the same fresh inputs.

Preparation is part of a call on either side (`Stopwatch.many`), so both begin with device and processor in the same
state, poison the same memory before a forward and keep the same outputs after it. All times are those of a single
forward.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from verl_kernel.env.clocks.base import Session
from verl_kernel.env.clocks.cuda.crosscheck import TimedCall
from verl_kernel.env.devices.cuda.stopwatch import WARM_UPS, Forward, Stopwatch, warm
from verl_kernel.env.ipc.messages import CallStep, Claims, NullStep, TimeStep
from verl_kernel.env.ipc.tensors import unflatten
from verl_kernel.env.reference.trial import Trial

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
