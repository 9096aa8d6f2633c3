# SPDX-License-Identifier: Apache-2.0
"""The simulated clock computes the time of counted work on a simulated GPU (`machine`)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from verl_kernel.env.clocks.base import Measurement, Session
from verl_kernel.env.clocks.profile import profile_events
from verl_kernel.env.clocks.statistics import compared, timing
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import event_ms, time_ms
from verl_kernel.env.machine.roofline import roofline_ms
from verl_kernel.env.result import EvalResult
from verl_kernel.env.trace import TraceEvent

# Artificial timing noise for studies: simulated times as they might have been measured on a busy GPU.


CALLS = 9
"""Timed calls of each program: enough for a confidence interval of the median, few enough to leave it wide."""


def with_noise(result: EvalResult, size: float, generator: Random) -> EvalResult:
    """Return the result with times of `CALLS` noisy calls of each program, and speedups from them as on a GPU.

    Each call takes the simulated time multiplied by a log-normal factor of median 1: noise has no sign. A result
    without a speedup is returned as it is.

    Args:
        result: result of a simulated clock.
        size: standard deviation of the factor's logarithm.
        generator: random generator of the factors.
    """
    if result.speedup is None or result.kernel_ms is None or result.reference_ms is None:
        return result
    kernel, reference = (
        [known.median * generator.lognormvariate(0.0, size) for _ in range(CALLS)]
        for known in (result.kernel_ms, result.reference_ms)
    )
    return result.model_copy(update={**dict(compared(kernel, reference)), "env": result.env | {"timing_noise": size}})


def unpriced(events: Sequence[TraceEvent]) -> tuple[str, ...]:
    """Return the names of the events that have no price, each once."""
    return tuple(dict.fromkeys(event.name for event in events if not event.priced))


class SimulatedClock:
    """Computes times from the traces of the correctness trials, without requests to the runner."""

    source = "simulated"

    def __init__(self, gpu_profile: str, float32: str = "ieee") -> None:
        self._machine = Machine.of(gpu_profile, float32)

    def measure(self, session: Session) -> Measurement:
        """Compute the times of all trials (None if an op has no price) and the profile of a trial of median time."""
        reference, traces = session.comparable
        theirs = unpriced(reference)
        ours = tuple(name for trace in traces for name in unpriced(trace))
        known = session.blocks_per_sm
        times = [time_ms(trace, self._machine, known) for trace in traces]
        typical = traces[sorted(range(len(times)), key=times.__getitem__)[(len(times) - 1) // 2]]
        return Measurement(
            kernel_ms=None if ours else timing(times),
            reference_ms=None if theirs else timing([time_ms(reference, self._machine)]),
            profile=profile_events(
                typical,
                session.source,
                lambda event: event_ms(event, self._machine, known.get(event.name)),
                session.work(typical),
            ),
            unpriced=tuple(dict.fromkeys(theirs + ours)),
            roofline_ms=None if session.demand is None else roofline_ms(session.demand, self._machine),
        )
