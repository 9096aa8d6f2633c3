# SPDX-License-Identifier: Apache-2.0
"""What an event of a forward spends its time on, and how it fills a GPU."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, prod

from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import Parts, Turn, moved_bytes, priced_steps, slots, step_parts
from verl_kernel.env.result import Bound
from verl_kernel.env.trace import Step, TraceEvent

_TENSOR_UNITS = ("half", "tf32")


def bound_of(event: TraceEvent, machine: MachineModel, blocks_per_sm: int | None, turn: Turn) -> Bound:
    """Return what takes most of an event's time; `host` if the device waited longer for it than it takes."""
    if turn.idle > turn.ms:
        return "host"
    times: defaultdict[Bound, float] = defaultdict(float)
    for step in priced_steps(event, machine):
        parts = step_parts(step, machine, blocks_per_sm)
        times[_of_step(step, parts)] += parts.total
    return max(times, key=times.__getitem__)


def _of_step(step: Step, parts: Parts) -> Bound:
    work = max(parts.memory, parts.l2, parts.arithmetic)
    if parts.blocks > parts.starts + work:
        return "latency"
    if parts.starts >= work:
        return "launch"
    if work == parts.memory:
        return "device memory"
    if work == parts.l2:
        return "L2"
    is_tensor = step.unit in _TENSOR_UNITS and 2 * parts.products > parts.arithmetic
    return "tensor cores" if is_tensor else "arithmetic"


def traffic(event: TraceEvent, machine: MachineModel, blocks_per_sm: int | None) -> tuple[int, int]:
    """Return an event's bytes from and to device memory, and from and to L2."""
    steps = priced_steps(event, machine)
    moved = sum(moved_bytes(step, machine, slots(step.warps, machine, blocks_per_sm)) for step in steps)
    return moved, sum(step.l2_bytes for step in steps)


@dataclass(frozen=True)
class Filling:
    """How a launch fills the GPU."""

    sms: int
    waves: float
    even_blocks: int
    occupancy: float
    theoretical_occupancy: float

    @classmethod
    def of(cls, event: TraceEvent, machine: MachineModel, blocks_per_sm: int | None) -> Filling:
        """Compute the fields of a `LaunchProfile` with the same names."""
        gpu, step = machine.gpu, event.steps[0]
        resident, blocks = slots(step.warps, machine, blocks_per_sm), prod(event.grid)
        theoretical = resident // gpu.sms * step.warps / gpu.warps_per_sm
        return cls(
            sms=min(gpu.sms, step.blocks),
            waves=blocks / resident,
            even_blocks=step.blocks,
            occupancy=theoretical * blocks / (ceil(blocks / resident) * resident),
            theoretical_occupancy=theoretical,
        )
