# SPDX-License-Identifier: Apache-2.0
"""Matrix products: the result is written after the arithmetic, not during it."""

from __future__ import annotations

from verl_kernel.env.devices.op_prices.call import Call, nbytes
from verl_kernel.env.trace import Step

_TILE = 32
"""Rows and columns of the smallest tile of a product."""
_SPLIT = 256
"""Depth from which products are split between blocks."""


def product(call: Call) -> list[Step]:
    """Operands and arithmetic overlap; then the result is written."""
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
    """One kernel that keeps the scores on the chip; a causal one does half of the products half as fast."""
    flops = call.flops * (2 if call.given.get("is_causal") else 1)
    return [Step(call.bytes, flops=flops, unit="half" if call.is_half else "matmul")]
