# SPDX-License-Identifier: Apache-2.0
"""Reductions, softmax and losses: what they keep in memory and how often they read it."""

from __future__ import annotations

from dataclasses import replace

from verl_kernel.env.devices.op_prices.call import Call, nbytes, streamed
from verl_kernel.env.trace import Step

_SHARED_BYTES = 48 << 10
"""Longest row that softmax keeps on the chip."""
_REGISTER_BYTES = 4096
"""Longest row that a warp keeps in registers."""
_ROWS = 2
"""Dimensions of data that are rows."""
_NLL_ROW_BYTES = 16
_NLL_ROW_NS = 4
"""Nanoseconds for a row of `nll_loss`, whose kernel is one block; by the published time of one program of level 1."""


def reduced(call: Call) -> list[Step]:
    """One pass over the input."""
    return [streamed(call.bytes, "reduction", call.elements, call.flops)]


def softmax(call: Call) -> list[Step]:
    """One read where a row of the last dimension stays on the chip, else three, the later ones from L2 if it can."""
    data, dim = call.data, int(call.given["dim"])
    is_last = data.dim() == 0 or dim % data.dim() == data.dim() - 1
    row = data.shape[-1] * data.element_size() if data.dim() else data.element_size()
    once, again = nbytes(data, call.output), 2 * nbytes(data)
    if not is_last:
        step = streamed(once, "reduction", data.numel(), call.flops)
        return [replace(step, repeated_bytes=again, shared_bytes=nbytes(data))]
    is_kept = data.is_contiguous() and row <= _SHARED_BYTES and (row % 16 == 0 or row <= _REGISTER_BYTES)
    step = Step(once, "reduction", call.flops, blocks=_rows(call))
    return [step if is_kept else replace(step, repeated_bytes=again, private_bytes=row)]


def logsumexp(call: Call) -> list[Step]:
    """Maximum, difference, exponential, sum: the difference is kept in memory."""
    data, elements = nbytes(call.data), call.data.numel()
    small = streamed(2 * nbytes(call.output), "contiguous", call.output.numel())
    return [
        streamed(data, "reduction", elements), streamed(2 * data, "mixed", elements),
        streamed(2 * data, "contiguous", elements), streamed(data, "reduction", elements), small, small,
    ]  # fmt: skip


def loss(call: Call) -> list[Step]:
    """The elements' losses are written, then reduced, if they are."""
    data, elements = call.data, call.data.numel()
    moved = call.bytes - nbytes(call.output) + nbytes(data)
    return [streamed(moved, "contiguous", elements, call.flops), *_mean(call)]


def loss_of_logits(call: Call) -> list[Step]:
    """A kernel each for the logarithm of the sigmoid, 1 - target, their product and difference, and for each weight."""
    data, elements, given = call.data, call.data.numel(), call.given
    passes = [2, 2, 3, 3]
    passes += [] if given["pos_weight"] is None else [2, 2, 3]
    passes += [] if given["weight"] is None else [3]
    return [*(streamed(tensors * nbytes(data), "contiguous", elements, elements) for tensors in passes), *_mean(call)]


def _mean(call: Call) -> list[Step]:
    """The kernel that reduces the elements' losses, if they are."""
    is_kept = call.given.get("reduction", 1) == 0
    return [] if is_kept else [streamed(nbytes(call.data), "reduction", call.data.numel())]


def nll_loss(call: Call) -> list[Step]:
    """One block reads one element of each row; as many as there are rows where they are not reduced, or are places."""
    rows = max(1, call.inputs[1].numel())
    if call.given["reduction"] == 0 or call.data.dim() > _ROWS:
        return [streamed(rows * _NLL_ROW_BYTES, "mixed", rows, rows)]
    return [Step(rows * _NLL_ROW_BYTES, "mixed", rows, blocks=1, block_ns=rows * _NLL_ROW_NS)]


def _rows(call: Call) -> int:
    data = call.data
    return max(1, data.numel() // max(1, data.shape[-1])) if data.dim() else 1
