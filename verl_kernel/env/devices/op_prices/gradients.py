# SPDX-License-Identifier: Apache-2.0
"""Gradients of softmax, norms and embeddings: passes over the gradient and what the forward kept."""

from __future__ import annotations

from dataclasses import replace

from verl_kernel.env.devices.op_prices.call import Call, nbytes, streamed
from verl_kernel.env.devices.op_prices.reductions import softmax
from verl_kernel.env.devices.op_prices.sorts import radix
from verl_kernel.env.trace import Step


def softmax_gradient(call: Call) -> list[Step]:
    """As the forward, with a second tensor of the same shape."""
    (step,) = softmax(call)
    again = 2 * step.repeated_bytes if step.repeated_bytes else 0
    return [replace(step, bytes=call.bytes, repeated_bytes=again)]


def layer_norm_gradient(call: Call) -> list[Step]:
    """A block for a row reads gradient and data twice; another kernel reads both for weight and bias."""
    gradient, data = call.inputs[:2]
    rows = next((tensor.numel() for tensor in call.inputs[2:4]), 1)
    read = nbytes(gradient, data)
    first = Step(
        read + nbytes(call.output), "reduction", call.flops, blocks=max(1, rows), repeated_bytes=read,
        private_bytes=2 * data.numel() // max(1, rows) * data.element_size(),
    )  # fmt: skip
    return [first, streamed(read, "reduction", data.numel())] if len(call.outputs) > 1 else [first]


def norm_gradient(call: Call) -> list[Step]:
    """Batch and group norm: a pass over gradient and data for the sums, another one that applies them."""
    gradient, data = call.inputs[:2]
    read = nbytes(gradient, data)
    return [
        streamed(read, "norm", data.numel(), call.flops),
        streamed(read + nbytes(call.output), "norm", data.numel()),
    ]


def embedding_gradient(call: Call) -> list[Step]:
    """Indices are sorted, the table is filled with zeros, rows of the gradient are added."""
    gradient, indices = call.inputs[:2]
    moved = nbytes(gradient) + gradient.numel() * gradient.element_size()
    return [
        *radix(indices.numel(), indices.element_size()),
        streamed(nbytes(call.output), "contiguous", call.output.numel()),
        streamed(moved, "mixed", gradient.numel(), call.flops),
    ]
