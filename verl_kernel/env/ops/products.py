# SPDX-License-Identifier: Apache-2.0
"""Prices of matrix products, attention, distances and recurrent layers: the result is written after the arithmetic."""

from __future__ import annotations

from dataclasses import replace

from verl_kernel.env.ops.call import Call, nbytes, streamed
from verl_kernel.env.trace import Step

_TILE = 32
"""Number of rows and of columns in the smallest tile of a product."""
_SPLIT = 256
"""Depth of a product that one block handles; deeper products are split between blocks."""
_FEW = 25
"""Largest number of rows for which torch computes distances pair by pair."""


def product(call: Call) -> list[Step]:
    """Price a product whose reads overlap with arithmetic, and the write of the result after it."""
    output = call.output
    unit = "half" if call.is_half else "matmul"
    read = call.bytes - nbytes(output)
    columns = output.shape[-1] if output.dim() else 1
    rows = max(1, output.numel() // max(1, columns))
    depth = max(1, call.flops // (2 * max(1, output.numel())))
    blocks = -(-rows // _TILE) * -(-columns // _TILE) * -(-depth // _SPLIT)
    main = Step(read, flops=call.flops, unit=unit, blocks=blocks)
    return [main, Step(nbytes(output), blocks=blocks, kernels=0)]


def attention(call: Call) -> list[Step]:
    """Price one kernel that keeps the scores on the chip; causal attention does half of the products half as fast."""
    flops = call.flops * (2 if call.arguments.get("is_causal") else 1)
    return [Step(call.bytes, flops=flops, unit="half" if call.is_half else "matmul")]


def distances(call: Call) -> list[Step]:
    """Price distances: Euclidean ones of many rows as a product of rows and norms, others by a block per pair."""
    rows, columns, output = call.inputs[0], call.inputs[-1], call.output
    if not _is_product(call):
        return [Step(call.bytes, "mixed", call.flops, blocks=output.numel(), warps=8)]
    passes = [*(rows,) * 4, *(columns,) * 3]  # squares, sums, concatenation; the first also times -2
    before = [streamed(2 * nbytes(item), "contiguous", item.numel(), item.numel()) for item in passes]
    after = streamed(2 * nbytes(output), "contiguous", output.numel(), output.numel())  # clamp at 0, then square root
    flops = 2 * output.numel() * (rows.shape[-1] + 2)
    return [*before, *product(replace(call, flops=flops)), after, after]


def _is_product(call: Call) -> bool:
    mode, rows = call.arguments.get("compute_mode"), max(item.shape[-2] for item in call.inputs)
    return call.arguments.get("p", 2.0) == 2.0 and (mode == 1 or (not mode and rows > _FEW)) and len(call.inputs) > 1


_CHAIN = {"lstm": 2, "gru": 3, "rnn_tanh": 2, "rnn_relu": 2}
"""Number of kernels per time step in one layer and direction."""


def layer(call: Call) -> list[Step]:
    """Price all layers and directions of a recurrent network on a sequence."""
    arguments, name = call.arguments, call.func._schema.name.partition("::")[2]
    directions = int(arguments.get("num_layers", 1)) * (1 + bool(arguments.get("bidirectional")))
    data = call.data
    time = data.shape[1 if arguments.get("batch_first") and data.dim() == 3 else 0]
    unit = "half" if call.is_half else "convolution"
    moved, flops = call.bytes // directions, call.flops // directions
    return [Step(moved, flops=flops, unit=unit, kernels=_CHAIN[name] * time)] * directions


def cell(call: Call) -> list[Step]:
    """Price a recurrent cell as two products and an elementwise kernel."""
    unit = "half" if call.is_half else "matmul"
    return [Step(call.bytes // 3, flops=call.flops // 3, unit=unit)] * 3
