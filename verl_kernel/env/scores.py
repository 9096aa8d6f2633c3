# SPDX-License-Identifier: Apache-2.0
"""From the traces of verified forwards to time, coverage and what they prove about a candidate."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.trace import TraceEvent

Trace = Sequence[TraceEvent]
_MOVES = (
    "copy_ clone cat stack fill_ zero_ zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full "
    "_to_copy index index_select gather embedding scatter_ index_put_ index_copy_ arange eye tril triu roll flip "
    "repeat repeat_interleave constant_pad_nd take masked_select where slice_scatter select_scatter scatter"
)
_MOVING_OPS = frozenset(f"aten::{name}" for name in _MOVES.split())


def own_launches(trace: Trace, file: str) -> list[TraceEvent]:
    """Launches of the candidate's own kernels that did not raise."""
    return [event for event in trace if event.kind == "launch" and event.source == file and not event.failed]


def lazy_flags(traces: Sequence[Trace], reference: Trace, file: str) -> tuple[str, ...]:
    """What makes a correct candidate suspect: `launch_raised`, `only_moves` (torch computes, its kernels copy)."""
    raised = any(event.failed for trace in traces for event in trace)
    own = [event for trace in traces for event in own_launches(trace, file)]
    moves = bool(own) and not any(event.flops for event in own)
    moves = moves and _computes(reference) and all(map(_computes, traces))
    return ("launch_raised",) * raised + ("only_moves",) * moves


def moves_too_little(trace: Trace, reference: Trace, output_bytes: int) -> bool:
    """Whether the counted traffic is below what writing the output takes: then something was not counted."""
    return _traffic(trace) < min(output_bytes, _traffic(reference))


def _computes(trace: Trace) -> bool:
    return any(event.kind == "op" and event.name.partition(".")[0] not in _MOVING_OPS for event in trace)


def _traffic(trace: Trace) -> int:
    return sum(event.bytes for event in trace)
