# SPDX-License-Identifier: Apache-2.0
"""From the traces of verified forwards to time, coverage and what they prove about a candidate."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from verl_kernel.env.clock.simulated import GpuProfile, event_ms, time_ms
from verl_kernel.env.profile import profile_events
from verl_kernel.env.result import Timing
from verl_kernel.env.trace import TraceEvent

Trace = Sequence[TraceEvent]
_MOVES = (
    "copy_ clone cat stack fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full "
    "_to_copy index index_select gather embedding scatter_ index_put_ index_copy_ arange eye tril triu roll flip "
    "repeat repeat_interleave constant_pad_nd take masked_select where slice_scatter select_scatter scatter"
)
_MOVING_OPS = frozenset(f"aten::{name}" for name in _MOVES.split())


def simulated_scores(traces: Sequence[Trace], reference: Trace, gpu: GpuProfile, file: str) -> dict[str, Any]:
    """Fields of an EvalResult by the simulated clock.

    Args:
        traces: the candidate's forwards, one trace each.
        reference: the reference's.
        gpu: the nominal GPU.
        file: the candidate's file; kernels of other files are not its own.
    """
    times = [time_ms(trace, gpu) for trace in traces]
    kernel, expected = timing(times), timing([time_ms(reference, gpu)])
    typical = traces[sorted(range(len(times)), key=times.__getitem__)[(len(times) - 1) // 2]]
    seen = profile_events(typical, file, lambda event: event_ms(event, gpu))
    return {
        "kernel_ms": kernel,
        "reference_ms": expected,
        "speedup": expected.median / kernel.median if kernel.median > 0 else None,
        **vars(seen),
    }


def own_launches(trace: Trace, file: str) -> list[TraceEvent]:
    """Launches of the candidate's own kernels that did not raise."""
    return [event for event in trace if event.kind == "launch" and event.source == file and not event.failed]


def only_moves(trace: Trace, reference: Trace, file: str) -> bool:
    """Whether torch computes and the candidate's kernels merely move data, though the task is to compute."""
    idle = not any(event.flops for event in own_launches(trace, file))
    return idle and _computes(trace) and _computes(reference)


def moves_too_little(trace: Trace, reference: Trace, output_bytes: int) -> bool:
    """Whether the counted traffic is below what writing the output takes: then something was not counted."""
    return _traffic(trace) < min(output_bytes, _traffic(reference))


def timing(times: Sequence[float]) -> Timing:
    """Distribution of times in milliseconds."""
    ordered = sorted(times)
    last = len(ordered) - 1
    return Timing(
        median=statistics.median(ordered), mean=statistics.fmean(ordered), n=len(ordered),
        p20=ordered[round(0.2 * last)], p80=ordered[round(0.8 * last)],
    )  # fmt: skip


def _computes(trace: Trace) -> bool:
    return any(event.kind == "op" and event.name.partition(".")[0] not in _MOVING_OPS for event in trace)


def _traffic(trace: Trace) -> int:
    return sum(event.bytes for event in trace)
