# SPDX-License-Identifier: Apache-2.0
"""The simulated clock computes the time of counted work on a simulated GPU (`machine`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random

from verl_kernel.env.clocks.base import CompiledReference, Intervals, Measurement, Session
from verl_kernel.env.clocks.forward.figures import Setting
from verl_kernel.env.clocks.forward.profile import forward_profile
from verl_kernel.env.clocks.profile import profile_events
from verl_kernel.env.clocks.statistics import compared, timing
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms, time_ms
from verl_kernel.env.machine.roofline import roofline_ms
from verl_kernel.env.machine.uncertainty import COMPILED_HALF_WIDTHS, HALF_WIDTHS, ForwardShares, speedup_interval
from verl_kernel.env.result import EvalResult, ForwardProfile
from verl_kernel.env.trace import TraceEvent

_LOG = logging.getLogger(__name__)
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
        [timing.median * generator.lognormvariate(0.0, size) for _ in range(CALLS)]
        for timing in (result.kernel_ms, result.reference_ms)
    )
    noisy = dict(compared(kernel, reference))
    unknown = dict.fromkeys(("kernel_interval_ms", "reference_interval_ms", "speedup_interval"))
    return result.model_copy(update={**noisy, **unknown, "env": result.env | {"timing_noise": size}})


def unpriced(events: Sequence[TraceEvent]) -> tuple[str, ...]:
    """Return the names of the events that have no price, each once."""
    return tuple(dict.fromkeys(event.name for event in events if not event.priced))


class SimulatedClock:
    """Computes times from the traces of the correctness trials, without requests to the runner.

    Args:
        gpu_profile: name of the simulated GPU.
        float32: `kernelgym.float32`.
        reference_mode: `kernelgym.reference_mode`.
    """

    def __init__(self, gpu_profile: str, float32: str = "ieee", reference_mode: str = "eager") -> None:
        self._machine, self._mode = MachineModel.of(gpu_profile, float32), reference_mode
        self.source = self._machine.gpu.timing_source

    def measure(self, session: Session) -> Measurement:
        """Compute the times of all trials (None if an op has no price) and the profile of a trial of median time."""
        eager, traces = session.comparable
        mode, (reference, fitting) = self._baseline(eager, session.compiled)
        theirs = unpriced(reference)
        ours = tuple(name for trace in traces for name in unpriced(trace))
        blocks_per_sm = session.blocks_per_sm
        times = [time_ms(trace, self._machine, blocks_per_sm) for trace in traces]
        number = sorted(range(len(times)), key=times.__getitem__)[(len(times) - 1) // 2]
        typical = traces[number]
        return Measurement(
            kernel_ms=None if ours else timing(times),
            reference_ms=None if theirs else timing([time_ms(reference, self._machine, fitting)]),
            profile=profile_events(
                typical,
                session.source,
                lambda event: event_ms(event, self._machine, blocks_per_sm.get(event.name)),
                session.work(typical),
            ),
            intervals=None if theirs or ours else self._intervals((reference, fitting), typical, blocks_per_sm, mode),
            forward=self._forward(session, number),
            unpriced=tuple(dict.fromkeys(theirs + ours)),
            roofline_ms=None if session.demand is None else roofline_ms(session.demand, self._machine),
            reference_mode=mode,
            facts=_remarks(session.compiled),
        )

    def _intervals(
        self, reference: _Program, candidate: Sequence[TraceEvent], blocks_per_sm: Mapping[str, int], mode: str
    ) -> Intervals:
        widths = COMPILED_HALF_WIDTHS if mode == "compile" else HALF_WIDTHS
        theirs = ForwardShares.of(reference[0], self._machine, reference[1])
        ours = ForwardShares.of(candidate, self._machine, blocks_per_sm)
        return Intervals(
            ours.interval_ms(HALF_WIDTHS), theirs.interval_ms(widths), speedup_interval(theirs, ours, widths)
        )

    def _forward(self, session: Session, number: int) -> ForwardProfile | None:
        """Describe a forward of the candidate; None if its launches have no account, or an op has no price."""
        events = session.comparable[1][number]
        if unpriced(events):
            return None
        setting = Setting(self._machine, session.demand, session.text, session.blocks_per_sm, session.kernels)
        try:
            return forward_profile(events, session.own_launches(number), setting)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as exc:
            # A process that ran the candidate's kernels wrote the account. No verdict depends on this part of it.
            _LOG.warning("a candidate's launches cannot be described: %s: %s", type(exc).__name__, exc)
            return None

    def _baseline(self, eager: Sequence[TraceEvent], compiled: CompiledReference | None) -> tuple[str, _Program]:
        """Return the mode in which the reference is timed and what it runs then: for `best`, what takes less time."""
        if compiled is None or compiled.refused:
            return "eager", (eager, {})
        sides: dict[str, _Program] = {"eager": (eager, {})} if self._mode == "best" else {}
        sides["compile"] = compiled.events, compiled.blocks_per_sm
        priced_modes = [mode for mode, (events, _) in sides.items() if not unpriced(events)]
        mode = min(
            priced_modes, key=lambda mode: time_ms(sides[mode][0], self._machine, sides[mode][1]), default="compile"
        )
        return mode, sides[mode]


_Program = tuple[Sequence[TraceEvent], Mapping[str, int]]
"""Events, and how many blocks an SM holds of each kernel."""


def _remarks(compiled: CompiledReference | None) -> dict[str, str]:
    """Return what a result says of a reference that has no compiled form."""
    return {"reference_not_compiled": compiled.refused} if compiled is not None and compiled.refused else {}
