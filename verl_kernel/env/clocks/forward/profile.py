# SPDX-License-Identifier: Apache-2.0
"""Makes the profile of one forward."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import fsum

from verl_kernel.env.clocks.forward.bounds import traffic
from verl_kernel.env.clocks.forward.changes import priced_changes
from verl_kernel.env.clocks.forward.figures import Setting, launch_profile
from verl_kernel.env.clocks.forward.launches import Flow, OwnLaunch
from verl_kernel.env.machine.price import Turn, fitting, timeline
from verl_kernel.env.machine.roofline import roofline_ms
from verl_kernel.env.result import ForwardProfile
from verl_kernel.env.trace import TraceEvent

_MOST = 6
"""Most kinds of launches that are described and changed."""


def forward_profile(
    events: Sequence[TraceEvent], launches: Sequence[OwnLaunch], setting: Setting
) -> ForwardProfile | None:
    """Describe a forward; None if it has no launch of the candidate.

    Args:
        events: the forward's events.
        launches: the candidate's launches among them, with their accounts.
        setting: what else is known.
    """
    if not launches:
        return None
    machine, demand = setting.machine, setting.demand
    turns, flow = timeline(events, machine, setting.blocks_per_sm), Flow.of(events)
    ms, bound_ms = turns[-1].end, None if demand is None else roofline_ms(demand, machine)
    moved = [traffic(event, machine, fitting(event, setting.blocks_per_sm))[0] for event in events]
    kinds = _longest(launches, turns)[:_MOST]
    return ForwardProfile(
        ms=ms,
        gpu=machine.gpu.name,
        host_ms=fsum(turn.idle for turn in turns),
        dram_bytes=sum(moved),
        least_bytes=None if demand is None else demand.read + demand.written,
        roofline=None if bound_ms is None or not ms else bound_ms / ms,
        launches=tuple(launch_profile(launch, count, turns[launch.index], flow, setting) for launch, count in kinds),
        changes=priced_changes(events, launches, [launch for launch, _ in kinds], flow, setting),
    )


def _longest(launches: Sequence[OwnLaunch], turns: Sequence[Turn]) -> list[tuple[OwnLaunch, int]]:
    """Return one launch of each kind with the number of its kind; the kind that takes longest in all comes first."""
    counts, total_ms = Counter(launch.key for launch in launches), defaultdict[object, float](float)
    for launch in launches:
        total_ms[launch.key] += turns[launch.index].ms
    firsts = {launch.key: launch for launch in reversed(launches)}
    ordered = sorted(firsts, key=lambda key: (-total_ms[key], firsts[key].index))
    return [(firsts[key], counts[key]) for key in ordered]
