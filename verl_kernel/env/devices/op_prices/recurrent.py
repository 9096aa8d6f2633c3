# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and cells: on small batches a chain of launches, one after the other through time."""

from __future__ import annotations

from verl_kernel.env.devices.op_prices.call import Call
from verl_kernel.env.trace import Step

_CHAIN = {"lstm": 2, "gru": 3, "rnn_tanh": 2, "rnn_relu": 2}
"""Kernels of a layer and direction for each time step."""


def layer(call: Call) -> list[Step]:
    """All layers and directions of a sequence."""
    given, name = call.given, call.func._schema.name.partition("::")[2]
    directions = int(given.get("num_layers", 1)) * (1 + bool(given.get("bidirectional")))
    data = call.data
    time = data.shape[1 if given.get("batch_first") and data.dim() == 3 else 0]
    unit = "half" if call.is_half else "convolution"
    moved, flops = call.bytes // directions, call.flops // directions
    return [Step(moved, flops=flops, unit=unit, kernels=_CHAIN[name] * time)] * directions


def cell(call: Call) -> list[Step]:
    """Two products and an elementwise kernel."""
    unit = "half" if call.is_half else "matmul"
    return [Step(call.bytes // 3, flops=call.flops // 3, unit=unit)] * 3
