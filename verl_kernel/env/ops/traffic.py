# SPDX-License-Identifier: Apache-2.0
"""Bytes that an op reads and writes when each element that it needs is touched once."""

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
    """With its namespace, as `aten::add_`."""
    given: Mapping[str, Any]
    """All arguments by name."""
    inputs: Sequence[torch.Tensor]
    """Those that it reads."""
    written: int
    """Bytes of those that it writes."""


Traffic = Callable[[Touched], int]
Named = Callable[[Mapping[str, Any], torch.Tensor], int]
"""How many elements of a tensor the arguments of an op name."""


def touched(op: Touched) -> int:
    """Each tensor read once, each result written once."""
    return sum(map(nbytes, distinct(op.inputs))) + op.written


def diagonal(op: Touched) -> int:
    """Of a matrix its diagonal alone."""
    return nbytes(op.inputs[0].diagonal()) + op.written


def copied_into(op: Touched) -> int:
    """A copy of the first tensor, then the second one over a part of it."""
    return touched(op) + (0 if is_in_place(op.name) else nbytes(op.inputs[1]))


def sampled(op: Touched) -> int:
    """Of the first tensor no more than is returned."""
    source, *indices = op.inputs
    return min(nbytes(source), op.written) + sum(map(nbytes, indices)) + op.written


def gathered(op: Touched) -> int:
    """Of the first tensor as many elements as are returned, wherever they lie."""
    return sampled(op)


def bag_bytes(given: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of rows that sums over bags load: distinct ones at most, and all."""
    weight = given["weight"]
    loaded = given["indices"].numel() * weight.shape[-1] * weight.element_size()
    return min(nbytes(weight), loaded), loaded


def bagged(op: Touched) -> int:
    """The rows that indices name, the indices and the sums."""
    return bag_bytes(op.given)[0] + sum(map(nbytes, op.inputs[1:])) + op.written


def scattered(named: Named, adds: bool = False) -> Traffic:
    """As many elements of the first tensor as the other arguments name; all of it is copied before where not in place.

    Args:
        named: counts them.
        adds: whether the op reads them too; any op does that is told to accumulate or reduce.
    """

    def count(op: Touched) -> int:
        target = op.given["self"]
        written = min(nbytes(target), named(op.given, target) * target.element_size())
        is_read = adds or op.given.get("accumulate") or op.given.get("reduce")
        copied = 0 if is_in_place(op.name) else 2 * op.written
        return sum(map(nbytes, distinct(op.inputs[1:]))) + int(written * (2 if is_read else 1)) + copied

    return count


def elements_of_index(given: Mapping[str, Any], target: torch.Tensor) -> int:
    """An element for each index."""
    return int(given["index"].numel())


def rows_of_index(given: Mapping[str, Any], target: torch.Tensor) -> int:
    """A row for each index."""
    return int(given["index"].numel() * target.numel() // max(1, target.shape[given["dim"]] if target.dim() else 1))


def elements_of_indices(given: Mapping[str, Any], target: torch.Tensor) -> int:
    """Elements of `target[indices]`."""
    shapes, rest, dim = [], 1, 0
    for index in given["indices"]:
        if index is None:
            rest *= target.shape[dim]
        else:
            shapes.append((_true(index),) if index.dtype is torch.bool else tuple(index.shape))
        dim += index.dim() if index is not None and index.dtype is torch.bool else 1
    return prod(torch.broadcast_shapes(*shapes)) * rest * prod(target.shape[dim:])  # type: ignore[no-untyped-call]


def distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors without repeats: `x * x` reads x once."""
    return list({_identity(tensor): tensor for tensor in tensors}.values())


def _true(mask: torch.Tensor) -> int:
    """How many elements of a mask are true; all, where asking would wait for a device."""
    return int(mask.count_nonzero()) if mask.device.type == "cpu" else mask.numel()


def _identity(tensor: torch.Tensor) -> Hashable:
    if tensor.layout is not torch.strided:
        return id(tensor)
    address = tensor.data_ptr() or (tensor.untyped_storage()._cdata, tensor.storage_offset())  # meta has no addresses
    return address, tuple(tensor.shape), tensor.stride(), tensor.dtype
