# SPDX-License-Identifier: Apache-2.0
"""Counts memory traffic and arithmetic of one torch op from its arguments and results.

An op costs one device kernel that reads each distinct element of its tensor arguments once and writes each
element of its results once, unless its row in `table.py` says otherwise. Views, metadata and allocation need no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from verl_kernel.env.machine.constants import constant
from verl_kernel.env.ops.call import HALF, Call, bound, in_order, nbytes, tensors_in
from verl_kernel.env.ops.flops import Formula
from verl_kernel.env.ops.table import Trait, is_view, op_of
from verl_kernel.env.ops.traffic import Touched, distinct
from verl_kernel.env.trace import Step

_aten = torch.ops.aten
_COUNTED: dict[Any, Any] = {
    **flop_registry,
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[_aten._scaled_dot_product_flash_attention],
}
"""Formulas of products from torch's own counter."""
_COMPLEX = 4
"""Number of real products in a complex one."""


@dataclass(frozen=True)
class OpCost:
    """Bytes moved and operations done by one op."""

    bytes: int
    flops: int
    half_flops: int = 0
    """Part of `flops` done by matrix products on 16-bit operands."""
    priced: bool = True
    """Whether the operations are known."""
    steps: tuple[Step, ...] = ()
    """Device kernels of the op and their phases."""
    host_us: int = 10
    """Microseconds that the host takes to issue the op."""
    reads: tuple[torch.Tensor, ...] = ()
    writes: tuple[torch.Tensor, ...] = ()


def op_cost(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> OpCost | None:
    """Compute the cost of an op that has just run.

    Args:
        func: the `OpOverload` that ran.
        args: its positional arguments.
        kwargs: its keyword arguments.
        result: its result.

    Returns:
        The cost, or None where no device kernel runs (views, allocation, no elements at all).
    """
    op, name = op_of(func), func._schema.name
    if op.is_free or is_view(func):
        return None
    args, kwargs = in_order(func, args, kwargs)
    inputs = list(_inputs(func, args, kwargs))
    outputs = tensors_in(result)[: 1 if Trait.HOST_BUFFER in op.traits else None]
    if not any(tensor.numel() for tensor in (*inputs, *outputs)):
        return None
    written = outputs or list(_mutated(func, args))
    moved = op.bytes(Touched(name, bound(func, args, kwargs), inputs, sum(map(nbytes, written))))
    counted = _flops(func, args, kwargs, result)
    if counted is None:
        return OpCost(moved, 0, priced=False)
    flops, is_product = counted
    steps = tuple(op.price(Call(func, args, kwargs, inputs, written, moved, flops)))
    half = flops if is_product and outputs[0].dtype in HALF else 0
    host_us = int(constant(op.host))
    return OpCost(moved, flops, half, True, steps, host_us, tuple(distinct(inputs)), tuple(written))


def _flops(func: Any, args: Sequence[Any], kwargs: Any, result: Any) -> tuple[int, bool] | None:
    """Return the operations of an op and whether they are products for tensor cores; None where it has no price."""
    formula, is_product = _formula(func)
    if formula is None:
        return None
    flops = formula(tuple(args), dict(kwargs), result)
    is_complex = any(tensor.is_complex() for tensor in tensors_in(result))
    return flops * _COMPLEX if is_product and is_complex else flops, is_product


@cache
def _formula(func: Any) -> tuple[Formula | None, bool]:
    counted = _COUNTED.get(func._overloadpacket)
    if counted is None:
        return op_of(func).flops, op_of(func).is_product
    return (
        lambda args, kwargs, result: int(counted(*args, **kwargs, out_val=result)) // _parts(func, args, kwargs),
        True,
    )


def _parts(func: Any, args: Sequence[Any], kwargs: Any) -> int:
    """Return the divisor of the product count: 2 for causal attention, which does half of the products, else 1."""
    return 2 if bound(func, args, kwargs).get("is_causal") else 1


def _inputs(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that the op reads: its arguments without those that it only writes."""
    unread = op_of(func).unread_place(func._schema.name)
    positional = [value for index, value in enumerate(args) if index != unread]
    written = {item.name for item in func._schema.arguments if item.is_out}
    yield from tensors_in(positional)
    yield from tensors_in([value for key, value in kwargs.items() if key not in written])


def _mutated(func: Any, args: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors written by an op that returns none (`_foreach_add_`)."""
    for item, value in zip(func._schema.arguments, args, strict=False):
        if item.alias_info is not None and item.alias_info.is_write:
            yield from tensors_in(value)
