# SPDX-License-Identifier: Apache-2.0
"""Ops that slide a window: they are bound by instructions, for outputs and for elements of windows, or by memory."""

from __future__ import annotations

from math import prod

from verl_kernel.env.devices.op_prices.call import Call, streamed
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.trace import Step


def pooled(call: Call) -> list[Step]:
    """A thread for an output; maxima write their int64 indices too, whether asked for or not."""
    size = call.given["kernel_size"]
    sizes = [size] if isinstance(size, int) else list(size)
    output = call.output
    dims = 3 if "3d" in call.func._schema.name else 1 if "1d" in call.func._schema.name else 2
    window = prod(sizes) if len(sizes) > 1 else sizes[0] ** dims
    return [window_step(call, window, "window_output", "window_element", output.numel())]


def window_step(call: Call, window: int, output: str, element: str, outputs: int) -> Step:
    """One kernel whose threads walk over a window for each output."""
    instructions = outputs * (constant(output) + constant(element) * window)
    return streamed(call.bytes, "contiguous", outputs, int(instructions))
