# SPDX-License-Identifier: Apache-2.0
"""Prices of convolutions, which cuDNN runs without a search, and of other ops that slide a window."""

from __future__ import annotations

from math import prod

import torch

from verl_kernel.env.machine.constants import constant
from verl_kernel.env.ops.call import Call, bias_step, nbytes, padded, streamed
from verl_kernel.env.trace import Step

_IN, _OUT = 16, 32
"""Multiples to which the channels of a group are padded: input channels (for each tap) and output channels."""
_FEW = 4
"""3-D convolutions with fewer input channels use another algorithm."""
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Layouts with channels last, by the number of axes."""
_SQUARES = ((1, 1), (3, 3), (5, 5))
"""Windows for which cuDNN has kernels for depthwise convolutions with channels last (torch's `Convolution.cpp`)."""
_WIDE = 128
"""Output channels in a tile of a transposed 3-D convolution of stride 1, including unused ones."""


def convolved(call: Call) -> list[Step]:
    """Return the steps of all kernels of a convolution."""
    shape = _Shape(call)
    if shape.is_depthwise:
        return _depthwise(call, shape)
    steps = _transposed(call, shape) if call.arguments["transposed"] else _forward(call, shape)
    return steps if call.arguments["bias"] is None else [*steps, bias_step(call.output)]


class _Shape:
    """The sizes of a convolution that its price depends on."""

    def __init__(self, call: Call) -> None:
        arguments = call.arguments
        weight: torch.Tensor = arguments["weight"]
        self.groups: int = arguments["groups"]
        self.window = tuple(weight.shape[2:])
        self.taps = prod(self.window)
        self.is_3d = weight.dim() == 5
        self.inner = arguments["input"].shape[1] // self.groups
        self.outer = call.output.shape[1] // self.groups
        self.is_depthwise = self.groups > 1 and self.inner == 1 and not arguments["transposed"]
        steps = list(zip(arguments["stride"], arguments["dilation"], strict=True))
        self.strides = prod(stride for stride, _ in steps)
        self.zeros = prod(stride for stride, dilation in steps if dilation > 1)
        """Factor by which zeros increase the products of a data gradient."""

    def flops(self, pixels: int, inner: int, outer: int) -> int:
        """Return the operations at `pixels` places, with `inner` and `outer` channels in a group."""
        return 2 * pixels * self.taps * inner * outer * self.groups

    def padded_flops(self, pixels: int) -> int:
        """Return the operations on padded channels."""
        return self.flops(pixels, padded(self.inner, _IN), padded(self.outer, _OUT))


def _forward(call: Call, shape: _Shape) -> list[Step]:
    pixels = call.output.numel() // call.output.shape[1]
    if shape.groups > 1:
        return [*_before(call), *_product(call, shape.padded_flops(pixels), "direct")]
    if shape.taps == shape.strides == 1:
        return _overlapping(call, shape.flops(pixels, shape.inner, shape.outer))
    if shape.is_3d and shape.inner < _FEW:
        return _product(call, shape.flops(pixels, shape.inner, max(shape.outer, _OUT)), "direct")
    return [*_before(call), *_product(call, shape.padded_flops(pixels), "convolution")]


def _depthwise(call: Call, shape: _Shape) -> list[Step]:
    """Return the step of torch's own kernel or, with channels last, those of cuDNN, which has none for most windows."""
    if not any(map(has_channels_last, (call.data, call.arguments["weight"]))):
        return [window_step(call, shape.taps, "tap_output", "tap_element", call.output.numel())]
    pixels = call.output.numel() // call.output.shape[1]
    own = [Step(call.bytes)] if shape.window in _SQUARES else _product(call, shape.padded_flops(pixels), "direct")
    return [*_before(call), *own]


def _transposed(call: Call, shape: _Shape) -> list[Step]:
    """Return the steps of a convolution's gradient with respect to its data, with a copy before and after."""
    pixels = call.data.numel() // call.data.shape[1]
    unit, flops = "convolution", shape.padded_flops(pixels) * shape.zeros
    if shape.groups > 1:
        unit = "direct"
    elif shape.is_3d and shape.strides == 1:
        unit, flops = "transposed", shape.flops(pixels, shape.inner, max(shape.outer, _WIDE))
    return [*_before(call), *_product(call, flops, unit), *_after(call)]


def _before(call: Call) -> list[Step]:
    """Return the step of a copy of the data to the library's layout, which has channels last."""
    return [] if has_channels_last(call.data) else [_copy(call.data)]


def _after(call: Call) -> list[Step]:
    """Return the step of a copy of the result to the usual layout; it keeps the library's if an operand has that."""
    return [] if any(map(has_channels_last, (call.data, call.arguments["weight"]))) else [_copy(call.output)]


def has_channels_last(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements lie in memory with channels last, and not in the usual order too."""
    layout = _CHANNELS_LAST.get(tensor.dim())
    return layout is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=layout)


def _copy(tensor: torch.Tensor) -> Step:
    return streamed(2 * nbytes(tensor), "mixed", tensor.numel())


def _product(call: Call, flops: int, unit: str) -> list[Step]:
    """Return steps that read operands, compute, and write the result, one after the other."""
    written = nbytes(call.output)
    arithmetic = Step(flops=flops, unit="half" if call.is_half else unit, kernels=0)
    return [Step(call.bytes - written), arithmetic, Step(written, kernels=0)]


def _overlapping(call: Call, flops: int) -> list[Step]:
    """Return the steps of a window of one place, which is a plain product like `products.product`."""
    written = nbytes(call.output)
    unit = "half" if call.is_half else "convolution"
    return [Step(call.bytes - written, flops=flops, unit=unit), Step(written, kernels=0)]


def pooled(call: Call) -> list[Step]:
    """Return the step of a pooling kernel with a thread per output; maxima always write their int64 indices too."""
    size = call.arguments["kernel_size"]
    sizes = [size] if isinstance(size, int) else list(size)
    output = call.output
    dims = 3 if "3d" in call.func._schema.name else 1 if "1d" in call.func._schema.name else 2
    window = prod(sizes) if len(sizes) > 1 else sizes[0] ** dims
    return [window_step(call, window, "window_output", "window_element", output.numel())]


def window_step(call: Call, window: int, output: str, element: str, outputs: int) -> Step:
    """Return the step of a kernel whose threads iterate over a window for each output."""
    instructions = outputs * (constant(output) + constant(element) * window)
    return streamed(call.bytes, "contiguous", outputs, int(instructions))
