# SPDX-License-Identifier: Apache-2.0
"""How much of a forward is the candidate's own work (Dr. Kernel, section 4: profiling-based rewards).

time_coverage = time in the candidate's kernels / time in all device kernels; number_coverage = the same with
launches counted. A kernel is the candidate's own if its file defines it and its launch did not raise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from verl_kernel.env.result import Launch
from verl_kernel.env.trace import TraceEvent


@dataclass(frozen=True)
class Profile:
    """Summary of one forward, named as in `EvalResult`."""

    time_coverage: float
    number_coverage: float
    num_custom_kernels: int
    num_total_kernels: int
    launches: tuple[Launch, ...]
    fallback_ops: dict[str, int]
    top_kernels: tuple[tuple[str, float], ...]
    """Names with their total milliseconds, longest first."""


def profile_events(
    events: Sequence[TraceEvent], source: str, event_ms: Callable[[TraceEvent], float], top: int = 5
) -> Profile:
    """Summarise the events of one forward.

    Args:
        events: everything that ran.
        source: file of the candidate, as its kernels report it.
        event_ms: the clock.
        top: how many names `top_kernels` holds.

    Returns:
        The profile; both coverages are 0 where nothing ran.
    """
    own = [event for event in events if event.kind == "launch" and event.source == source and not event.failed]
    total_ms = fsum(map(event_ms, events))
    launches = Counter((event.name, event.grid) for event in events if event.kind == "launch")
    return Profile(
        time_coverage=min(1.0, fsum(map(event_ms, own)) / total_ms) if total_ms else 0.0,
        number_coverage=len(own) / len(events) if events else 0.0,
        num_custom_kernels=len(own),
        num_total_kernels=len(events),
        launches=tuple(Launch(name=name, grid=grid, count=count) for (name, grid), count in launches.items()),
        fallback_ops=dict(Counter(event.name for event in events if event.kind == "op")),
        top_kernels=_longest(events, event_ms)[:top],
    )


def _longest(events: Sequence[TraceEvent], event_ms: Callable[[TraceEvent], float]) -> tuple[tuple[str, float], ...]:
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.name].append(event_ms(event))
    totals = {name: fsum(values) for name, values in times.items()}
    return tuple(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
