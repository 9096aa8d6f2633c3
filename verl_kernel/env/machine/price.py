# SPDX-License-Identifier: Apache-2.0
"""Computes the time of a step on a machine: the longest of memory, L2 and arithmetic, given its number of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, fsum

from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.trace import Step, TraceEvent

_SCHEDULERS = 4
"""Schedulers of an SM, each with a quarter of its units."""


def event_ms(event: TraceEvent, machine: Machine, blocks_per_sm: int | None = None) -> float:
    """Return the milliseconds for which an event keeps the device busy.

    Args:
        event: the event; without steps it is one kernel that fills the GPU.
        machine: machine that runs it.
        blocks_per_sm: blocks of the kernel that fit into an SM, according to its compilation; None if unknown.
    """
    first, *others = event.steps or (_plain(event),)
    kept = sum(size for size, since in event.recent if size + since <= machine.l2_bytes)
    first = replace(first, bytes=max(0, first.bytes - kept), l2_bytes=max(first.l2_bytes, first.bytes))
    return fsum(step_ms(step, machine, blocks_per_sm) for step in (first, *others))


def _plain(event: TraceEvent) -> Step:
    vector = event.flops - event.half_flops
    return Step(event.bytes, instructions=vector, flops=event.half_flops, unit="half")


def step_ms(step: Step, machine: Machine, blocks_per_sm: int | None = None) -> float:
    """Return the milliseconds of one step; waits of its blocks for memory overlap with the start of its kernels."""
    gpu = machine.gpu
    slots = _slots(step, machine, blocks_per_sm)
    moved = step.bytes + _lost_bytes(step, machine, slots)
    arithmetic = step.flops / machine.flop_rate(step.unit, step.intensity) + step.instructions / gpu.lane_rate
    work = max(
        _memory_s(step.blocks, moved, machine.bandwidth(step.access), slots, gpu.sms),
        step.l2_bytes / machine.l2_rate(step.blocks),
        arithmetic * _waste(step.blocks, gpu.sms) / _busy(step, slots // gpu.sms, gpu.sms),
    )
    starts = step.kernels * constant("launch_us") * 1e-6
    return 1e3 * max(starts + work, ceil(step.blocks / slots) * _block_s(step, moved))


def _slots(step: Step, machine: Machine, blocks_per_sm: int | None) -> int:
    """Return the number of blocks that the GPU holds at once."""
    gpu = machine.gpu
    fitting = min(gpu.blocks_per_sm, gpu.warps_per_sm // step.warps)
    return gpu.sms * max(1, fitting if blocks_per_sm is None else min(fitting, blocks_per_sm))


def _waste(blocks: int, sms: int) -> float:
    """Return the factor by which blocks take longer because the last wave, or the only one, leaves SMs idle."""
    return ceil(blocks / sms) * sms / blocks if blocks else 1.0


def _busy(step: Step, fitting: int, sms: int) -> float:
    """Return the share of an SM's schedulers that have a warp: each warp stays on one scheduler."""
    return min(1.0, min(ceil(step.blocks / sms), fitting) * step.warps / _SCHEDULERS) if step.blocks else 1.0


def _memory_s(blocks: int, moved: int, bandwidth: float, slots: int, sms: int) -> float:
    """Return the seconds of the transfer; a last wave on a part of the SMs has that part of the bandwidth."""
    rest = blocks % slots if blocks else 0
    idle = max(0.0, sms / rest - 1.0) if rest else 0.0
    return moved / bandwidth * (1.0 + idle * rest / blocks if blocks else 1.0)


def _block_s(step: Step, moved: int) -> float:
    """Return the seconds of one block, which waits whenever it has requested as many bytes as it can."""
    if not step.blocks or not step.in_flight:
        return step.block_ns * 1e-9
    rounds, l2_rounds = (size / step.blocks / step.in_flight for size in (moved, step.l2_bytes))
    return max(step.block_ns, rounds * constant("latency_ns"), l2_rounds * constant("l2_latency_ns")) * 1e-9


def _lost_bytes(step: Step, machine: Machine, slots: int) -> int:
    """Return the bytes of repeated reads that L2 cannot serve, because it cannot hold the data of running blocks."""
    kept = min(step.blocks, slots) * step.private_bytes + step.shared_bytes
    far = sum(size for others, size in step.rereads if others > machine.l2_bytes)
    far = far if step.blocks > slots else 0  # blocks that all run at once read the same bytes at the same time
    return far + (step.repeated_bytes if kept > machine.l2_bytes else 0)


# Time of a forward: the host issues one event after the other, and the device runs them in order.


def time_ms(events: Sequence[TraceEvent], machine: Machine, blocks_per_sm: Mapping[str, int] | None = None) -> float:
    """Return the milliseconds from when the device is free until it has run all events; 0 if there are none.

    Args:
        events: events of one forward, in order.
        machine: machine that runs it.
        blocks_per_sm: blocks that fit into an SM, by kernel; unknown for kernels that are missing.
    """
    host, device = -constant("head_start_us") / 1e3, 0.0
    for event in events:
        host += event.host_us / 1e3
        known = (blocks_per_sm or {}).get(event.name) if event.kind == "launch" else None
        device = max(device, host) + event_ms(event, machine, known)
    return device
