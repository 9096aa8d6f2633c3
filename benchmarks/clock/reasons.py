# SPDX-License-Identifier: Apache-2.0
"""Why a prediction is what it is: the op that takes longest, and what the model does not know about such ops."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms, step_ms
from verl_kernel.env.ops.call import plain_name
from verl_kernel.env.trace import Step, TraceEvent

_UNKNOWN = {
    "convolution": "cuDNN chooses among algorithms, and how channels are padded and copied depends on the choice",
    "mm": "cuBLAS chooses tiles and splits of the depth",
    "addmm": "cuBLAS chooses tiles and splits of the depth",
    "bmm": "cuBLAS chooses tiles and splits of the depth",
    "max_pool2d_with_indices": "one number of instructions for all windows",
    "max_pool3d_with_indices": "one number of instructions for all windows",
    "avg_pool2d": "one number of instructions for all windows",
    "avg_pool3d": "one number of instructions for all windows",
    "native_group_norm": "one share of bandwidth for statistics and their application",
    "native_layer_norm": "a block's latency is one number for rows of all lengths",
}
_COUNTED = "counted from its code, in the configuration that the clock prices lowest"
"""What is known of a Triton kernel."""
_FORMS = {"direct": "grouped or with few channels", "transposed": "transposed, 3-D, stride 1", "half": "16-bit"}


def reason(events: Sequence[TraceEvent], machine: MachineModel) -> str:
    """One sentence on the heaviest op of a forward."""
    if not events:
        return "no op was recorded"
    times = [event_ms(event, machine) for event in events]
    most = max(range(len(events)), key=times.__getitem__)
    heaviest = events[most]
    is_op = heaviest.kind == "op"
    name = plain_name(heaviest.name.partition(".")[0]) if is_op else heaviest.name
    share = times[most] / sum(times)
    step = max(heaviest.steps, key=lambda step: step_ms(step, machine), default=Step())
    form = f", {_FORMS[step.unit]}" if step.flops and step.unit in _FORMS else ""
    known = _UNKNOWN.get(name, "one share of bandwidth for all ops of its class") if is_op else _COUNTED
    return f"{share:.0%} in {name} ({_bound(step, machine)}{form}): {known}"


def _bound(step: Step, machine: MachineModel) -> str:
    if not step.flops and not step.instructions:
        return "memory"
    arithmetic = step.flops / machine.flop_rate(step.unit, step.intensity) + step.instructions / machine.gpu.lane_rate
    return "arithmetic" if arithmetic > step.bytes / machine.bandwidth(step.access) else "memory"
