# SPDX-License-Identifier: Apache-2.0
"""Prices of ops bound by memory: the steps of each, which are its device kernels with their traffic and work."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from verl_kernel.env.machine.constants import constant
from verl_kernel.env.ops.call import Call, nbytes, streamed
from verl_kernel.env.ops.traffic import bag_bytes
from verl_kernel.env.trace import Step

_RUN_BYTES = 16


def elementwise(call: Call) -> list[Step]:
    """Price one pass, which is slower where operands differ in shape, layout or type."""
    return [_one_pass(call, "contiguous" if _is_uniform(call) else "mixed")]


def copied(call: Call) -> list[Step]:
    """Price one pass with index arithmetic: copies, gathers, permutations."""
    return [_one_pass(call, "mixed")]


def joined(call: Call) -> list[Step]:
    """Price `cat` and `stack`, which cannot use vector accesses if a copied run is not a multiple of 16 bytes."""
    dim, data = call.arguments.get("dim", 0), call.output
    runs = [tensor.stride(dim - 1) if dim % tensor.dim() else 0 for tensor in call.inputs if tensor.dim()]
    is_split = any(run * data.element_size() % _RUN_BYTES for run in runs)
    return [_one_pass(call, "unaligned" if is_split else "mixed")]


def _one_pass(call: Call, access: str) -> Step:
    return streamed(call.bytes, access, call.elements, call.flops)


def _is_uniform(call: Call) -> bool:
    output = call.outputs[0] if call.outputs else call.inputs[0]
    form = output.shape, output.stride(), output.dtype
    return all((tensor.shape, tensor.stride(), tensor.dtype) == form for tensor in call.inputs)


def bagged(call: Call) -> list[Step]:
    """Price sums over bags of rows, weighted or not: each index loads a row, repeated ones from L2."""
    distinct, loaded = bag_bytes(call.arguments)
    return [Step(call.bytes, "mixed", call.flops, l2_bytes=call.bytes - distinct + loaded)]


_SHARED_BYTES = 48 << 10
"""Longest row in bytes that softmax keeps on the chip."""
_REGISTER_BYTES = 4096
"""Longest row in bytes that a warp keeps in registers."""
_MATRIX_DIMS = 2
"""Number of dimensions of data that consists of rows."""
_NLL_ROW_BYTES = 16
_NLL_ROW_NS = 4
"""Nanoseconds per row of `nll_loss`, whose kernel is one block; from the published time of one program of level 1."""


def reduced(call: Call) -> list[Step]:
    """Price one pass over the input."""
    return [streamed(call.bytes, "reduction", call.elements, call.flops)]


def softmax(call: Call) -> list[Step]:
    """Price one read if a row of the last dimension stays on the chip, else three, the later ones from L2 if it can."""
    data, dim = call.data, int(call.arguments["dim"])
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
    """Price maximum, difference, exponential and sum; the difference is stored in memory."""
    data, elements = nbytes(call.data), call.data.numel()
    small = streamed(2 * nbytes(call.output), "contiguous", call.output.numel())
    return [
        streamed(data, "reduction", elements),
        streamed(2 * data, "mixed", elements),
        streamed(2 * data, "contiguous", elements),
        streamed(data, "reduction", elements),
        small,
        small,
    ]


def loss(call: Call) -> list[Step]:
    """Price a kernel that writes each element's loss, and the reduction of the losses, if any."""
    data, elements = call.data, call.data.numel()
    moved = call.bytes - nbytes(call.output) + nbytes(data)
    return [streamed(moved, "contiguous", elements, call.flops), *_mean(call)]


def loss_of_logits(call: Call) -> list[Step]:
    """Price separate kernels for log-sigmoid, 1 - target, their product and difference, each weight, and the mean."""
    data, elements, arguments = call.data, call.data.numel(), call.arguments
    passes = [2, 2, 3, 3]
    passes += [] if arguments["pos_weight"] is None else [2, 2, 3]
    passes += [] if arguments["weight"] is None else [3]
    return [*(streamed(tensors * nbytes(data), "contiguous", elements, elements) for tensors in passes), *_mean(call)]


def _mean(call: Call) -> list[Step]:
    """Return the step that reduces the elements' losses, if they are reduced."""
    is_kept = call.arguments.get("reduction", 1) == 0
    return [] if is_kept else [streamed(nbytes(call.data), "reduction", call.data.numel())]


def nll_loss(call: Call) -> list[Step]:
    """Price one block that reads one element per row; many blocks if the result is not reduced or data are images."""
    rows = max(1, call.inputs[1].numel())
    if call.arguments["reduction"] == 0 or call.data.dim() > _MATRIX_DIMS:
        return [streamed(rows * _NLL_ROW_BYTES, "mixed", rows, rows)]
    return [Step(rows * _NLL_ROW_BYTES, "mixed", rows, blocks=1, block_ns=rows * _NLL_ROW_NS)]


def _rows(call: Call) -> int:
    data = call.data
    return max(1, data.numel() // max(1, data.shape[-1])) if data.dim() else 1


_LAYER_PASSES = 2
"""Number of times that layer norm reads a row, with a reduction in between."""
_LAYER_BYTES = 128 * 16 * 3
"""Bytes in flight of a block of layer norm: its two vectors of weights and one of the row."""
_BATCH_WARPS = 16
"""Warps in a block of cuDNN's batch norm, which has 512 threads."""


def layer_norm(call: Call) -> list[Step]:
    """Price one block of 128 threads per row, which reads the row twice, and weight and bias.

    All blocks read weight and bias again and again, so L2 keeps them, whatever else it loses.
    """
    data, affine = call.data, call.inputs[1:]
    row = max(1, affine[0].numel()) if affine else _normalised(call)
    rows = max(1, data.numel() // row)
    once, from_cache = nbytes(data, call.output, *affine), (rows - 1) * nbytes(*affine)
    missed = once + nbytes(data)
    return [
        Step(
            once,
            "contiguous",
            call.flops,
            blocks=rows,
            l2_bytes=missed + from_cache,
            # A block waits for what the cache delivers too: as often as for all of it.
            in_flight=max(1, round(_LAYER_BYTES * missed / (missed + from_cache))),
            block_ns=_LAYER_PASSES * int(constant("program_ns")),
            repeated_bytes=nbytes(data),
            private_bytes=row * data.element_size(),
            shared_bytes=nbytes(*affine),
        )
    ]


def renormed(call: Call) -> list[Step]:
    """Price a pass that computes the rows' norms, and one that scales the rows."""
    elements = call.data.numel()
    return [streamed(nbytes(call.data), "reduction", elements), streamed(call.bytes, "mixed", elements, call.flops)]


def _normalised(call: Call) -> int:
    size = 1
    for length in call.arguments["normalized_shape"]:
        size *= int(length)
    return max(1, size)


def batch_norm(call: Call) -> list[Step]:
    """Price two reads and a write by a block per channel in training (as group norm if unweighted), else one pass."""
    data, arguments = call.data, call.arguments
    is_update = "with_update" in call.func._schema.name
    if not arguments.get("training", is_update):
        return [streamed(2 * nbytes(data), "mixed", data.numel(), call.flops)]
    channels = data.shape[1] if data.dim() > 1 else 1
    if arguments.get("weight") is None:
        return _statistics_and_apply(call)
    return [Step(3 * nbytes(data), "contiguous", call.flops, blocks=channels, warps=_BATCH_WARPS)]


def group_norm(call: Call) -> list[Step]:
    """Price a kernel that computes the statistics of each group, and one that applies them."""
    return _statistics_and_apply(call)


def _statistics_and_apply(call: Call) -> list[Step]:
    data, groups = nbytes(call.data), call.outputs[1].numel() if len(call.outputs) > 1 else 0
    return [
        Step(data, "norm", call.flops, blocks=groups, warps=_BATCH_WARPS),
        streamed(data + nbytes(call.output), "norm", call.data.numel()),
    ]


_PLACE_BYTES = 8
"""Bytes of the index that is sorted with a key."""
_SORTED_ON_CHIP = 4096
"""Elements of the longest row that one block sorts on the chip (torch's source)."""


def radix(count: int, key_bytes: int) -> list[Step]:
    """Return the steps of a radix sort by digits of 8 bits: each pass reads and writes keys and indices."""
    moved = 2 * (key_bytes + _PLACE_BYTES) * count
    return [streamed(moved, "mixed", count) for _ in range(key_bytes)]


def sorted_rows(call: Call) -> list[Step]:
    """Price a sort: short rows in one pass; long ones, or all elements if no dimension is given, digit by digit."""
    data = call.data
    length = data.shape[call.arguments["dim"]] if data.dim() and "dim" in call.arguments else data.numel()
    if length <= _SORTED_ON_CHIP:
        return copied(call)
    return [*radix(data.numel(), data.element_size()), streamed(nbytes(call.output), "mixed", call.output.numel())]


def selected(call: Call) -> list[Step]:
    """Price a selection by one block per row, which reads the row once for each digit and once to select."""
    data = call.data
    if "dim" not in call.arguments:
        return sorted_rows(call)
    again = data.element_size() * nbytes(data)
    length = data.shape[call.arguments["dim"]] if data.dim() else 1
    return [
        Step(
            call.bytes,
            "mixed",
            call.flops,
            blocks=max(1, data.numel() // max(1, length)),
            warps=8,
            l2_bytes=call.bytes + again,
            repeated_bytes=again,
            private_bytes=length * data.element_size(),
        )
    ]


def softmax_gradient(call: Call) -> list[Step]:
    """Price the gradient like the forward, with a second tensor of the same shape."""
    (step,) = softmax(call)
    again = 2 * step.repeated_bytes if step.repeated_bytes else 0
    return [replace(step, bytes=call.bytes, repeated_bytes=again)]


def layer_norm_gradient(call: Call) -> list[Step]:
    """Price a block per row that reads gradient and data twice, and another kernel for weight and bias."""
    gradient, data = call.inputs[:2]
    rows = next((tensor.numel() for tensor in call.inputs[2:4]), 1)
    read = nbytes(gradient, data)
    first = Step(
        read + nbytes(call.output),
        "reduction",
        call.flops,
        blocks=max(1, rows),
        repeated_bytes=read,
        private_bytes=2 * data.numel() // max(1, rows) * data.element_size(),
    )
    return [first, streamed(read, "reduction", data.numel())] if len(call.outputs) > 1 else [first]


def norm_gradient(call: Call) -> list[Step]:
    """Price the gradient of batch and group norm: a pass over gradient and data for sums, one that applies them."""
    gradient, data = call.inputs[:2]
    read = nbytes(gradient, data)
    return [
        streamed(read, "norm", data.numel(), call.flops),
        streamed(read + nbytes(call.output), "norm", data.numel()),
    ]


def embedding_gradient(call: Call) -> list[Step]:
    """Price a sort of the indices, a fill of the table with zeros, and the addition of the gradient's rows."""
    gradient, indices = call.inputs[:2]
    moved = nbytes(gradient) + gradient.numel() * gradient.element_size()
    return [
        *radix(indices.numel(), indices.element_size()),
        streamed(nbytes(call.output), "contiguous", call.output.numel()),
        streamed(moved, "mixed", gradient.numel(), call.flops),
    ]


_SCAN_THREADS = 512
"""Largest number of threads in a block that scans rows."""
_ROW_THREADS = (16, 512)
"""Fewest and most threads that share a row of the last dimension."""


def scanned(call: Call) -> list[Step]:
    """Price a scan; a single row takes one pass of all blocks, after a kernel that clears their shared state."""
    if call.data.numel() != _scanned_length(call):
        return scanned_rows(call)
    return [replace(streamed(call.bytes, "contiguous", call.data.numel(), call.flops), kernels=2)]


def scanned_rows(call: Call) -> list[Step]:
    """Price one pass with each row in one block; torch scans even a single row like this if it keeps indices."""
    data, length = call.data, _scanned_length(call)
    dim = int(call.arguments["dim"]) % max(1, data.dim())
    is_last = dim + 1 >= data.dim()
    outer, inner = prod(data.shape[:dim]), prod(data.shape[dim + 1 :])
    blocks, threads, at_once = _scanned_last(outer, length) if is_last else _scanned_other(outer, inner)
    moved = call.bytes // data.numel()
    return [Step(call.bytes, "scan", call.flops, blocks=blocks, warps=-(-threads // 32), in_flight=at_once * moved)]


def _scanned_length(call: Call) -> int:
    return call.data.shape[int(call.arguments["dim"])] if call.data.dim() else 1


def _scanned_last(rows: int, length: int) -> tuple[int, int, int]:
    """Return blocks, threads of one, and elements that a block scans at a time: two a thread in the last dimension."""
    spare = 9 + (length - 1).bit_length() - (rows - 1).bit_length()
    fewest, most = _ROW_THREADS
    across = min(max(fewest, 1 << max(0, spare) // 2), most)
    down = _SCAN_THREADS // across
    return -(-rows // down), _SCAN_THREADS, min(rows, down) * min(length, 2 * across)


def _scanned_other(outer: int, inner: int) -> tuple[int, int, int]:
    """Return the same along another dimension, where one thread scans a whole row."""
    threads = min(_SCAN_THREADS, inner)
    return outer * -(-inner // threads), threads, threads
