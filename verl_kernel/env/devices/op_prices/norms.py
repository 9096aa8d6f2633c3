# SPDX-License-Identifier: Apache-2.0
"""Normalisations: a pass for the statistics, a pass that applies them, and how many blocks share the work."""

from __future__ import annotations

from verl_kernel.env.devices.op_prices.call import Call, nbytes, streamed
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.trace import Step

_LAYER_PASSES = 2
"""A row of layer norm is read twice, with a reduction between."""
_LAYER_BYTES = 128 * 16 * 3
"""Bytes that such a block has under way: its two vectors of weights and one of the row."""
_BATCH_WARPS = 16
"""cuDNN's batch norm has blocks of 512 threads."""


def layer_norm(call: Call) -> list[Step]:
    """One block of 128 threads for a row, which reads it twice, and weight and bias as well."""
    data, affine = call.data, call.inputs[1:]
    row = max(1, affine[0].numel()) if affine else _normalised(call)
    rows = max(1, data.numel() // row)
    second = nbytes(data) + (rows - 1) * nbytes(*affine)
    return [
        Step(
            nbytes(data, call.output, *affine), "contiguous", call.flops, blocks=rows, in_flight=_LAYER_BYTES,
            block_ns=_LAYER_PASSES * int(constant("program_ns")), repeated_bytes=second,
            private_bytes=row * data.element_size(), shared_bytes=nbytes(*affine),
        )
    ]  # fmt: skip


def renormed(call: Call) -> list[Step]:
    """A pass for the rows' norms, one that scales them."""
    elements = call.data.numel()
    return [streamed(nbytes(call.data), "reduction", elements), streamed(call.bytes, "mixed", elements, call.flops)]


def _normalised(call: Call) -> int:
    size = 1
    for length in call.given["normalized_shape"]:
        size *= int(length)
    return max(1, size)


def batch_norm(call: Call) -> list[Step]:
    """In training two reads and a write by one block for a channel; else one pass. Without weights, as group norm."""
    data, given = call.data, call.given
    is_update = "with_update" in call.func._schema.name
    if not given.get("training", is_update):
        return [streamed(2 * nbytes(data), "mixed", data.numel(), call.flops)]
    channels = data.shape[1] if data.dim() > 1 else 1
    if given.get("weight") is None:
        return _statistics_and_apply(call)
    return [Step(3 * nbytes(data), "contiguous", call.flops, blocks=channels, warps=_BATCH_WARPS)]


def group_norm(call: Call) -> list[Step]:
    """A kernel for the statistics of each group, another one that applies them."""
    return _statistics_and_apply(call)


def _statistics_and_apply(call: Call) -> list[Step]:
    data, groups = nbytes(call.data), call.outputs[1].numel() if len(call.outputs) > 1 else 0
    return [
        Step(data, "norm", call.flops, blocks=groups, warps=_BATCH_WARPS),
        streamed(data + nbytes(call.output), "norm", call.data.numel()),
    ]
