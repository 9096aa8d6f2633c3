# SPDX-License-Identifier: Apache-2.0
"""Ops that read or write rows and elements by their indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch

from verl_kernel.env.devices.op_prices.call import Call, nbytes
from verl_kernel.env.trace import Step

BAGS = frozenset(("_embedding_bag", "_embedding_bag_forward_only"))
_ROWS = frozenset("index_fill_ index_add_ index_copy_ index_reduce_".split())
_PUTS = frozenset("index_put_ _index_put_impl_".split())
_OVERWRITES = _PUTS | frozenset("index_fill_ index_copy_ put_ scatter_".split())


def bag_bytes(given: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of rows that sums over bags load: distinct ones at most, and all."""
    weight = given["weight"]
    loaded = given["indices"].numel() * weight.shape[-1] * weight.element_size()
    return min(nbytes(weight), loaded), loaded


def bagged(call: Call) -> list[Step]:
    """Sums over bags of rows, weighted or not: each index loads a row, again and again from L2."""
    distinct, loaded = bag_bytes(call.given)
    return [Step(call.bytes, "mixed", call.flops, l2_bytes=call.bytes - distinct + loaded)]


def scattered_bytes(name: str, given: Mapping[str, Any]) -> int:
    """Bytes of its first tensor that an op in place reads and writes.

    Args:
        name: of the op, without namespace.
        given: its arguments by name.
    """
    target = given["self"]
    touched = min(nbytes(target), _named(name, given, target) * target.element_size())
    is_read = name not in _OVERWRITES or given.get("accumulate") or given.get("reduce")
    return int(touched * (2 if is_read else 1))


def _named(name: str, given: Mapping[str, Any], target: torch.Tensor) -> int:
    """Elements that indices name."""
    if name in _PUTS:
        return _put(target, given["indices"])
    if name in _ROWS:
        return int(given["index"].numel() * target.numel() // max(1, target.shape[given["dim"]] if target.dim() else 1))
    return int(given["index"].numel())


def _put(target: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> int:
    """Elements of `target[indices]`."""
    shapes, rest, dim = [], 1, 0
    for index in indices:
        if index is None:
            rest *= target.shape[dim]
        else:
            shapes.append((_true(index),) if index.dtype is torch.bool else tuple(index.shape))
        dim += index.dim() if index is not None and index.dtype is torch.bool else 1
    return prod(torch.broadcast_shapes(*shapes)) * rest * prod(target.shape[dim:])  # type: ignore[no-untyped-call]


def _true(mask: torch.Tensor) -> int:
    """How many elements of a mask are true; all, where asking would wait for a device."""
    return int(mask.count_nonzero()) if mask.device.type == "cpu" else mask.numel()
