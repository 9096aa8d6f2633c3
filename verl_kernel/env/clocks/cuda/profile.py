# SPDX-License-Identifier: Apache-2.0
"""How much of a forward's device time is the candidate's own, from one profiled forward on a GPU.

Numerator and denominator come from the same list of device kernels. A kernel is the candidate's own if Triton's
launch hook saw its exact name launched by the candidate's file, and the profiler saw that name no more often than
the hook: otherwise some library kernel bears the same name, and neither counts. Copies and fills of memory are
torch's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite

from verl_kernel.env.clocks.profile import Profile
from verl_kernel.env.result import Launch
from verl_kernel.env.trace import TraceEvent

DeviceKernels = Mapping[str, tuple[int, float]]
"""Count and total milliseconds per kernel name."""


def load_kernels(value: object) -> dict[str, tuple[int, float]]:
    """Read a runner's list of device kernels.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(value, dict):
        raise ValueError("device kernels must be an object of names")
    kernels = {}
    for name, item in value.items():
        count, total_ms = item
        if type(count) is not int or count < 1 or type(total_ms) not in (int, float):
            raise ValueError("a device kernel needs a count and milliseconds")
        if not isfinite(total_ms) or total_ms < 0:
            raise ValueError("a device kernel takes a finite time of at least 0")
        kernels[name] = (count, float(total_ms))
    return kernels


def profile_kernels(kernels: DeviceKernels, events: Sequence[TraceEvent], source: str, top: int = 5) -> Profile | None:
    """Summarise one profiled forward.

    Args:
        kernels: what the profiler saw on the device.
        events: launches and torch ops of the same forward.
        source: the candidate's file.
        top: how many names `top_kernels` holds.

    Returns:
        The profile, None where the profiler saw nothing although the forward launched something.
    """
    if not kernels and events:
        return None
    mine = Counter(e.name for e in events if e.kind == "launch" and e.source == source and not e.failed)
    own = {name: seen for name, seen in kernels.items() if seen[0] <= mine[name]}
    total = sum(count for count, _ in kernels.values())
    total_ms = sum(ms for _, ms in kernels.values())
    launches = Counter((event.name, event.grid) for event in events if event.kind == "launch")
    return Profile(
        time_coverage=min(1.0, sum(ms for _, ms in own.values()) / total_ms) if total_ms else 0.0,
        number_coverage=sum(count for count, _ in own.values()) / total if total else 0.0,
        num_custom_kernels=sum(count for count, _ in own.values()),
        num_total_kernels=total,
        launches=tuple(Launch(name=name, grid=grid, count=count) for (name, grid), count in launches.items()),
        fallback_ops=dict(Counter(event.name for event in events if event.kind == "op")),
        top_kernels=tuple(
            (name, ms) for name, (_, ms) in sorted(kernels.items(), key=lambda item: (-item[1][1], item[0]))[:top]
        ),
    )
