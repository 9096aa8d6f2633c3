# SPDX-License-Identifier: Apache-2.0
"""Counts the bytes that an op reads and writes if each element that it needs is touched once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from verl_kernel.env.ops.call import is_in_place, nbytes


@dataclass(frozen=True)
class Touched:
    """The tensors of an op that has run."""

    name: str
    """Name of the op with its namespace, such as `aten::add_`."""
    arguments: Mapping[str, Any]
    """All arguments by name."""
    inputs: Sequence[torch.Tensor]
    """Tensors that it reads."""
    written: int
    """Bytes of the tensors that it writes."""


Traffic = Callable[[Touched], int]
Named = Callable[[Mapping[str, Any], torch.Tensor], int]
"""Counts the elements of a tensor that the arguments of an op select."""


def touched(op: Touched) -> int:
    """Count each tensor read once and each result written once."""
    return sum(map(nbytes, distinct(op.inputs))) + op.written


def diagonal(op: Touched) -> int:
    """Count only the diagonal of a matrix, and the results."""
    return nbytes(op.inputs[0].diagonal()) + op.written


def copied_into(op: Touched) -> int:
    """Count a copy of the first tensor, and a write of the second one over a part of the copy."""
    return touched(op) + (0 if is_in_place(op.name) else nbytes(op.inputs[1]))


def sampled(op: Touched) -> int:
    """Count no more of the first tensor than is returned, the other tensors, and the results."""
    source, *indices = op.inputs
    return min(nbytes(source), op.written) + sum(map(nbytes, indices)) + op.written


def gathered(op: Touched) -> int:
    """Count like `sampled`; it is a separate function so that `Reads` can leave gathered tensors out."""
    return sampled(op)


def bag_bytes(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the bytes of rows that sums over bags load: an upper bound of distinct rows, and all rows."""
    weight = arguments["weight"]
    loaded = arguments["indices"].numel() * weight.shape[-1] * weight.element_size()
    return min(nbytes(weight), loaded), loaded


def bagged(op: Touched) -> int:
    """Count the rows that indices select, the indices and the sums."""
    return bag_bytes(op.arguments)[0] + sum(map(nbytes, op.inputs[1:])) + op.written


def scattered(named: Named, adds: bool = False) -> Traffic:
    """Return a count of the first tensor's elements that the arguments select, plus a full copy if not in place.

    Args:
        named: counts the selected elements.
        adds: whether the op also reads them, as it does if told to accumulate or reduce.
    """

    def count(op: Touched) -> int:
        target = op.arguments["self"]
        written = min(nbytes(target), named(op.arguments, target) * target.element_size())
        is_read = adds or op.arguments.get("accumulate") or op.arguments.get("reduce")
        copied = 0 if is_in_place(op.name) else 2 * op.written
        return sum(map(nbytes, distinct(op.inputs[1:]))) + int(written * (2 if is_read else 1)) + copied

    return count


def elements_of_index(arguments: Mapping[str, Any], target: torch.Tensor) -> int:
    """Count one element for each index."""
    return int(arguments["index"].numel())


def rows_of_index(arguments: Mapping[str, Any], target: torch.Tensor) -> int:
    """Count one row for each index."""
    return int(
        arguments["index"].numel() * target.numel() // max(1, target.shape[arguments["dim"]] if target.dim() else 1)
    )


def elements_of_indices(arguments: Mapping[str, Any], target: torch.Tensor) -> int:
    """Count the elements of `target[indices]`."""
    shapes, unindexed, dim = [], 1, 0
    for index in arguments["indices"]:
        if index is None:
            unindexed *= target.shape[dim]
        else:
            shapes.append((_true(index),) if index.dtype is torch.bool else tuple(index.shape))
        dim += index.dim() if index is not None and index.dtype is torch.bool else 1
    return prod(torch.broadcast_shapes(*shapes)) * unindexed * prod(target.shape[dim:])  # type: ignore[no-untyped-call]


def distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors without repeats: `x * x` reads x once."""
    return list({_identity(tensor): tensor for tensor in tensors}.values())


def _true(mask: torch.Tensor) -> int:
    """Count the true elements of a mask; all elements if the mask is not on a CPU, where counting would wait."""
    return int(mask.count_nonzero()) if mask.device.type == "cpu" else mask.numel()


def _identity(tensor: torch.Tensor) -> Hashable:
    if tensor.layout is not torch.strided:
        return id(tensor)
    address = tensor.data_ptr() or (tensor.untyped_storage()._cdata, tensor.storage_offset())  # `meta` has no addresses
    return address, tuple(tensor.shape), tensor.stride(), tensor.dtype
