# SPDX-License-Identifier: Apache-2.0
"""Ops that read and write each element once: elementwise, copies, gathers, joins."""

from __future__ import annotations

from verl_kernel.env.devices.op_prices.call import Call, streamed
from verl_kernel.env.trace import Step

_RUN_BYTES = 16


def elementwise(call: Call) -> list[Step]:
    """One pass; slower where operands differ in shape, layout or type."""
    return [_pass(call, "contiguous" if _is_uniform(call) else "mixed")]


def copied(call: Call) -> list[Step]:
    """One pass with index arithmetic: copies, gathers, permutations."""
    return [_pass(call, "mixed")]


def joined(call: Call) -> list[Step]:
    """`cat` and `stack`; vectors are lost where the runs that it copies are no multiple of 16 bytes."""
    dim, data = call.given.get("dim", 0), call.output
    runs = [tensor.stride(dim - 1) if dim % tensor.dim() else 0 for tensor in call.inputs if tensor.dim()]
    is_split = any(run * data.element_size() % _RUN_BYTES for run in runs)
    return [_pass(call, "unaligned" if is_split else "mixed")]


def _pass(call: Call, access: str) -> Step:
    return streamed(call.bytes, access, call.elements, call.flops)


def _is_uniform(call: Call) -> bool:
    output = call.outputs[0] if call.outputs else call.inputs[0]
    form = output.shape, output.stride(), output.dtype
    return all((tensor.shape, tensor.stride(), tensor.dtype) == form for tensor in call.inputs)
