# SPDX-License-Identifier: Apache-2.0
"""What a forward takes: the host issues one event after the other, the device works them off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import event_ms
from verl_kernel.env.trace import TraceEvent


def time_ms(events: Sequence[TraceEvent], machine: Machine, blocks_per_sm: Mapping[str, int] | None = None) -> float:
    """Milliseconds from the time when the device is free until it has done everything; 0 if there is nothing to do.

    Args:
        events: of one forward, in order.
        machine: where it runs.
        blocks_per_sm: by kernel, how many of its blocks fit into an SM; kernels that are missing are unknown.
    """
    host, device = -constant("head_start_us") / 1e3, 0.0
    for event in events:
        host += event.host_us / 1e3
        known = (blocks_per_sm or {}).get(event.name) if event.kind == "launch" else None
        device = max(device, host) + event_ms(event, machine, known)
    return device
