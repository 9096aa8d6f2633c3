# SPDX-License-Identifier: Apache-2.0
"""Measures how much of a forward is the candidate's own work (Dr. Kernel, section 4: profiling-based rewards).

time_coverage = time in the candidate's kernels / time in all device kernels; number_coverage = the same with
launches counted. A kernel is the candidate's own if its file defines it and its launch did not raise. The part of a
launch that computes values the output depends on counts as covered; its moves count on neither side of the fraction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from verl_kernel.env.result import Launch
from verl_kernel.env.tamper.trace_checks import OwnWork, own_launches
from verl_kernel.env.trace import TraceEvent


@dataclass(frozen=True)
class Profile:
    """Summary of one forward, named as in `EvalResult`."""

    time_coverage: float | None
    """None where an op of the forward has no price."""
    number_coverage: float
    num_custom_kernels: int
    num_total_kernels: int
    launches: tuple[Launch, ...]
    fallback_ops: dict[str, int]
    top_kernels: tuple[tuple[str, float], ...]
    """Names with their total milliseconds, longest first."""


def profile_events(
    events: Sequence[TraceEvent], source: str, event_ms: Callable[[TraceEvent], float], work: OwnWork, top: int = 5
) -> Profile:
    """Summarise the events of one forward.

    Args:
        events: all events of the forward.
        source: file of the candidate, as its kernels report it.
        event_ms: returns the milliseconds of an event.
        work: share of each event that is the candidate's own compute.
        top: number of names in `top_kernels`.

    Returns:
        The profile; both coverages are 0 where nothing ran.
    """
    own = own_launches(events, source)
    times = [event_ms(event) for event in events]
    launches = Counter((event.name, event.grid) for event in events if event.kind == "launch")
    return Profile(
        time_coverage=_share(times, work) if all(event.priced for event in events) else None,
        number_coverage=_share([1.0] * len(events), work),
        num_custom_kernels=len(own),
        num_total_kernels=len(events),
        launches=tuple(Launch(name=name, grid=grid, count=count) for (name, grid), count in launches.items()),
        fallback_ops=dict(Counter(event.name for event in events if event.kind == "op")),
        top_kernels=_longest(events, event_ms)[:top],
    )


def _share(sizes: Sequence[float], work: OwnWork) -> float:
    covered = fsum(size * part for size, part in zip(sizes, work.covered, strict=True))
    total = fsum(size * (1.0 - part) for size, part in zip(sizes, work.neutral, strict=True))
    return min(1.0, covered / total) if total > 0 else 0.0


def _longest(events: Sequence[TraceEvent], event_ms: Callable[[TraceEvent], float]) -> tuple[tuple[str, float], ...]:
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.name].append(event_ms(event))
    totals = {name: fsum(values) for name, values in times.items()}
    return tuple(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
