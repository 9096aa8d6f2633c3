# SPDX-License-Identifier: Apache-2.0
"""Computes the time of a step on a machine: the longest of memory, L2 and arithmetic, given its number of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, exp, fsum

from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.trace import Step, TraceEvent

_SCHEDULERS = 4
"""Schedulers of an SM, each with a quarter of its units."""


def event_ms(event: TraceEvent, machine: MachineModel, blocks_per_sm: int | None = None) -> float:
    """Return the milliseconds for which an event keeps the device busy.

    Args:
        event: the event; without steps it is one kernel that fills the GPU.
        machine: machine that runs it.
        blocks_per_sm: blocks of the kernel that fit into an SM, according to its compilation; None if unknown.
    """
    return fsum(step_ms(step, machine, blocks_per_sm) for step in priced_steps(event, machine))


@lru_cache(maxsize=1024)  # a clock asks for the steps of an event a dozen times
def priced_steps(event: TraceEvent, machine: MachineModel) -> tuple[Step, ...]:
    """Return the steps of an event, without the device-memory traffic of what L2 still holds of earlier events."""
    first, *later = event.steps or (_plain(event),)
    recent_bytes = sum(size for size, since in event.recent if size + since <= machine.l2_bytes)
    return replace(first, bytes=max(0, first.bytes - recent_bytes), l2_bytes=max(first.l2_bytes, first.bytes)), *later


def with_transposing(event: TraceEvent, cycles_per_byte: Mapping[str, float]) -> TraceEvent:
    """Return an event with the time that tiles take which the target's code transposes on their way to its products.

    The code that was counted, of another target, has no such copies. Nothing else waits for shared memory meanwhile, so
    the longer of both counts.

    Args:
        event: the event; only launches of products are changed.
        cycles_per_byte: by kernel, cycles of an SM's shared memory for each byte that products take from there.
    """
    cycles = cycles_per_byte.get(event.name, 0.0) if event.kind == "launch" else 0.0
    main = next((step for step in event.steps if step.unit == "tf32" and step.intensity), None)
    if not cycles or main is None:
        return event
    # `intensity` is products, of two operations each, for each operand of 4 bytes that was staged.
    staged_bytes = 4 * sum(step.flops for step in event.steps) / 2 / main.intensity
    slots = round(cycles * staged_bytes * GPUS["h100"].lanes_per_sm)
    changed = replace(main, instructions=max(main.instructions, slots))
    return replace(event, steps=tuple(changed if step is main else step for step in event.steps))


def _plain(event: TraceEvent) -> Step:
    vector = event.flops - event.half_flops
    return Step(event.bytes, instructions=vector, flops=event.half_flops, unit="half")


@dataclass(frozen=True)
class Parts:
    """What a step spends its time on, in seconds; memory, L2 and arithmetic overlap."""

    memory: float
    l2: float
    arithmetic: float
    """Products and instructions, one after the other."""
    products: float
    """The products' part of it."""
    starts: float
    """Distance between the starts of kernels."""
    blocks: float
    """Least time of the blocks that run one after the other: waits for memory, and chains of dependent results."""

    @property
    def total(self) -> float:
        """Return the seconds of the step; waits of its blocks overlap with the start of its kernels."""
        return max(self.starts + max(self.memory, self.l2, self.arithmetic), self.blocks)


def step_ms(step: Step, machine: MachineModel, blocks_per_sm: int | None = None) -> float:
    """Return the milliseconds of one step."""
    return 1e3 * step_parts(step, machine, blocks_per_sm).total


def step_parts(step: Step, machine: MachineModel, blocks_per_sm: int | None = None) -> Parts:
    """Return what a step spends its time on (arguments as of `event_ms`)."""
    gpu = machine.gpu
    resident = slots(step.warps, machine, blocks_per_sm)
    moved = moved_bytes(step, machine, resident)
    products = step.flops / machine.flop_rate(step.unit, step.intensity)
    waste, busy = _waste(step.blocks, gpu.sms), _busy(step, resident // gpu.sms, gpu.sms)
    return Parts(
        memory=_memory_s(step.blocks, moved, machine.bandwidth(step.access), resident, gpu.sms),
        l2=step.l2_bytes / machine.l2_rate(step.blocks),
        arithmetic=(products + step.instructions / gpu.lane_rate) * waste / busy,
        products=products * waste / busy,
        starts=step.kernels * constant("launch_us") * 1e-6,
        blocks=ceil(step.blocks / resident) * step.serial * _block_s(step, moved),
    )


def slots(warps: int, machine: MachineModel, blocks_per_sm: int | None = None) -> int:
    """Return the number of blocks, of so many warps each, that the GPU holds at once."""
    gpu = machine.gpu
    fitting = min(gpu.blocks_per_sm, gpu.warps_per_sm // warps)
    return gpu.sms * max(1, fitting if blocks_per_sm is None else min(fitting, blocks_per_sm))


def _waste(blocks: int, sms: int) -> float:
    """Return the factor by which blocks take longer because the last wave, or the only one, leaves SMs idle."""
    return ceil(blocks / sms) * sms / blocks if blocks else 1.0


def _busy(step: Step, fitting: int, sms: int) -> float:
    """Return the share of an SM's schedulers that have a warp: each warp stays on one scheduler."""
    return min(1.0, min(ceil(step.blocks / sms), fitting) * step.warps / _SCHEDULERS) if step.blocks else 1.0


def _memory_s(blocks: int, moved: int, bandwidth: float, resident: int, sms: int) -> float:
    """Return the seconds of the transfer; a last wave on a part of the SMs has that part of the bandwidth."""
    last_wave = blocks % resident if blocks else 0
    idle = max(0.0, sms / last_wave - 1.0) if last_wave else 0.0
    return moved / bandwidth * (1.0 + idle * last_wave / blocks if blocks else 1.0)


def _block_s(step: Step, moved: int) -> float:
    """Return the seconds of one block, which waits whenever it has requested as many bytes as it can."""
    if not step.blocks or not step.in_flight:
        return step.block_ns * 1e-9
    rounds, l2_rounds = (size / step.blocks / step.in_flight for size in (moved, step.l2_bytes))
    return max(step.block_ns, rounds * constant("latency_ns"), l2_rounds * constant("l2_latency_ns")) * 1e-9


def moved_bytes(step: Step, machine: MachineModel, resident: int) -> int:
    """Return the device-memory traffic of a step, with repeated reads that L2 cannot serve.

    Args:
        step: the step.
        machine: machine that runs it; its L2 must hold the data of running blocks.
        resident: blocks that the GPU holds at once (`slots`).
    """
    needed_bytes = min(step.blocks, resident) * step.private_bytes + step.shared_bytes
    # Blocks that all run at once read the same bytes at the same time, unless one comes back to what others have read.
    again = step.rereads if step.blocks > resident else step.returns
    far = sum(size for moved_between, size in again if moved_between > machine.l2_bytes)
    return step.bytes + far + round(lost_share(needed_bytes / machine.l2_bytes) * step.repeated_bytes)


_HALVINGS = 40


def lost_share(needed: float) -> float:
    """Return the share of repeated reads that a cache has lost, which grows from 0 when it is a little too small.

    A cache that evicts lines at random (assumed: NVIDIA does not say which ones L2 evicts) has lost a line after as
    many misses as it has lines with a probability of 1 - 1/e. So the share x that is lost solves
    x = 1 - exp(-x `needed`).

    Args:
        needed: what is read between two reads of the same bytes, over the size of the cache.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS if needed > 1 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 - exp(-middle * needed) > middle else (low, middle)
    return low


# Time of a forward: the host issues one event after the other, and the device runs them in order.


@dataclass(frozen=True)
class Turn:
    """When the device runs an event, in milliseconds from when it is free."""

    idle: float
    """How long the device waits for the host before the event."""
    begin: float
    end: float

    @property
    def ms(self) -> float:
        """Return for how long the device runs the event."""
        return self.end - self.begin


def timeline(
    events: Sequence[TraceEvent], machine: MachineModel, blocks_per_sm: Mapping[str, int] | None = None
) -> list[Turn]:
    """Return when the device runs each event of a forward (arguments as of `time_ms`)."""
    return turns((event, known_ms(event, machine, blocks_per_sm or {})) for event in events)


def known_ms(event: TraceEvent, machine: MachineModel, blocks_per_sm: Mapping[str, int]) -> float:
    """Return an event's milliseconds (`event_ms`), given blocks that fit into an SM by kernel."""
    return event_ms(event, machine, fitting(event, blocks_per_sm))


def fitting(event: TraceEvent, blocks_per_sm: Mapping[str, int]) -> int | None:
    """Return how many blocks of an event's kernel fit into an SM; None if unknown."""
    return blocks_per_sm.get(event.name) if event.kind == "launch" else None


_ASKING = frozenset(
    f"aten::{name}"
    for name in "_local_scalar_dense is_nonzero equal nonzero masked_select _unique _unique2 unique_dim "
    "unique_consecutive unique_dim_consecutive".split()
)
"""Ops whose result, or its size, the host waits for: it issues nothing more before the device has got so far."""


def turns(spans: Iterable[tuple[TraceEvent, float]]) -> list[Turn]:
    """Return when the device runs events, given each one with its device time in milliseconds."""
    host, device, schedule = -constant("head_start_us") / 1e3, 0.0, list[Turn]()
    for event, ms in spans:
        host += event.host_us / 1e3
        begin = max(device, host)
        schedule.append(Turn(begin - device, begin, begin + ms))
        device = schedule[-1].end
        if event.name.partition(".")[0] in _ASKING:
            host = device
    return schedule


def time_ms(
    events: Sequence[TraceEvent], machine: MachineModel, blocks_per_sm: Mapping[str, int] | None = None
) -> float:
    """Return the milliseconds from when the device is free until it has run all events; 0 if there are none.

    Args:
        events: events of one forward, in order.
        machine: machine that runs it.
        blocks_per_sm: blocks that fit into an SM, by kernel; unknown for kernels that are missing.
    """
    schedule = timeline(events, machine, blocks_per_sm)
    return schedule[-1].end if schedule else 0.0
