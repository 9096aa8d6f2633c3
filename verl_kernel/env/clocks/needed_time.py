# SPDX-License-Identifier: Apache-2.0
"""Computes the part of a reference's time that its output needs: a program may leave out the rest and be right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms
from verl_kernel.env.reference.negligible_terms import INSENSITIVE
from verl_kernel.env.trace import TraceEvent


def bounded(measured: Measurement, events: Sequence[TraceEvent], flags: Sequence[str], gpu_profile: str) -> Measurement:
    """Bound the speedup of a measurement by the needed part, which is also reported as `env.reference_needed`.

    Args:
        measured: measurement of a candidate and its reference.
        events: events of the reference, at the measured size.
        flags: flags of the task.
        gpu_profile: profile of the GPU that prices ops.
    """
    needed = needed_share(events, flags, MachineModel.of(gpu_profile))
    if needed == 1.0:
        return measured
    return replace(measured, needed=needed, facts={**measured.facts, "reference_needed": needed})


def at_most_parity(measured: Measurement) -> Measurement:
    """Bound the speedup of a measurement by 1: of a program whose weights could not be tested.

    It keeps the values with which they started, so that a branch whose gate starts at 0 could be missing.
    """
    if measured.speedup is None or measured.speedup <= 1.0:
        return measured
    facts = {**measured.facts, "weights_untested": True}
    return replace(measured, needed=measured.needed / measured.speedup, facts=facts)


def needed_share(events: Sequence[TraceEvent], flags: Sequence[str], machine: MachineModel) -> float:
    """Return the part of a forward's time that is left without the ops named in flags, the longest of each name.

    Args:
        events: events of the reference.
        flags: flags of the task; a name that occurs twice removes two ops.
        machine: machine that prices the events.
    """
    without = Counter(flag.removeprefix(INSENSITIVE) for flag in flags if flag.startswith(INSENSITIVE))
    if not without:
        return 1.0
    times = [(event_ms(event, machine), event.name.partition("::")[2].partition(".")[0]) for event in events]
    whole, needed_ms = sum(ms for ms, _ in times), 0.0
    for ms, name in sorted(times, reverse=True):
        without[name] -= 1
        needed_ms += ms if without[name] < 0 else 0.0
    return needed_ms / whole if whole else 1.0
