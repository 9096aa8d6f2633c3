# SPDX-License-Identifier: Apache-2.0
"""Formulas for the number of operations of an op, from its arguments and results.

Pointwise ops, reductions, norms and ops that only move data count one operation per element of their largest tensor:
memory determines their time. A formula may use shapes and arguments, but no values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from verl_kernel.env.ops.call import tensors_in

Formula = Callable[[tuple[Any, ...], dict[str, Any], Any], int]
"""Maps arguments, named arguments and result to a number of operations."""


def each(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count one operation for each element of the largest tensor."""
    return max((tensor.numel() for tensor in tensors_in((args, kwargs, result))), default=1)


def sorted_rows(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count the comparisons of a merge sort along the longest dimension: size times the length's base-2 logarithm."""
    return int(args[0].numel() * max(1, (max(args[0].shape, default=1) - 1).bit_length()))


def pooled(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count one operation for each element of each window."""
    window = kwargs.get("kernel_size", args[1] if len(args) > 1 else 1)
    window = [window] if isinstance(window, int) else list(window)
    output = tensors_in(result)[0]
    return int(output.numel() * (window[0] ** 2 if len(window) == 1 and output.dim() > 2 else prod(window)))


def interpolated(operations: int) -> Formula:
    """Return a formula that counts `operations` for each element of the result."""
    return lambda args, kwargs, result: operations * tensors_in(result)[0].numel()


def each_of_result(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count one operation for each element of the result."""
    return int(result.numel())


def twice_result(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count a product and a sum for each element of the result."""
    return 2 * int(result.numel())


def twice(index: int) -> Formula:
    """Return a formula that counts a product and a sum for each element of the argument at this place."""
    return lambda args, kwargs, result: 2 * args[index].numel()


def bagged(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count a weight and a sum for each element of each row that is loaded."""
    return int(2 * args[1].numel() * args[0].shape[-1])


def plain_product(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count the operations of a product of two matrices."""
    return int(2 * args[0].numel() * args[1].shape[-1])


def added_product(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count the operations of a product of the second and the third argument, which is added to the first."""
    return int(2 * args[1].numel() * args[2].shape[-1])


def linear(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count the product with a row of weights for each element of the result."""
    return int(2 * result.numel() * args[0].shape[-1])


def recurrent(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count the products of every matrix of a layer with every step of every sequence."""
    data, weights = args[0], args[2] if isinstance(args[2], list | tuple) else args[3]
    steps = data.numel() // data.shape[-1]
    return sum(2 * steps * weight.numel() for weight in tensors_in(weights) if weight.dim() == 2)


def recurrent_layer(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count like `recurrent`, for a layer whose weights are separate arguments."""
    return recurrent((args[0], None, args[1:3]), kwargs, result)


def cell(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count the products of every matrix of a cell with every row."""
    data, _hidden, *weights = args
    rows = data.numel() // data.shape[-1]
    return sum(2 * rows * weight.numel() for weight in tensors_in(weights) if weight.dim() == 2)


def distances(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count a difference, a power and a sum for each element of each pair."""
    return int(3 * result.numel() * args[0].shape[-1])


def trilinear(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count two products and a sum for each element of the product of three expanded tensors."""
    shapes = []
    for tensor, expand in zip(args[:3], args[3:6], strict=True):
        shape = list(tensor.shape)
        for dim in sorted(expand):
            shape.insert(dim, 1)
        shapes.append(shape)
    return 3 * prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
