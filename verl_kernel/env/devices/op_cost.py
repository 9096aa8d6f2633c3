# SPDX-License-Identifier: Apache-2.0
"""Memory traffic and arithmetic of one torch op, counted from its arguments and results.

An op costs one device kernel that reads each distinct element of its tensor arguments once and writes each
element of its results once. Views, metadata and allocation need no kernel. `op_flops` counts the operations; an op
that it does not know has no price.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from verl_kernel.env.devices.op_flops import flops_of, is_pointwise, plain_name, tensors_in
from verl_kernel.env.devices.op_prices.call import Call, bound, in_order, nbytes
from verl_kernel.env.devices.op_prices.indexed import BAGS, bag_bytes, scattered_bytes
from verl_kernel.env.devices.op_prices.table import Price, price_of
from verl_kernel.env.trace import Step

_ALLOCATIONS = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "resize_")
_SPLITS = ("unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes")
_METADATA = ("_unsafe_view", "_reshape_alias", "set_", "lift", "lift_fresh", "detach", "is_pinned", "is_same_size")
_RESHAPES = ("detach_", "t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_")
_COPIES = ("copy_", "_foreach_copy_", "_foreach_zero_")
_FILLS = ("fill_", "zero_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "log_normal_")
_LIKES = ("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
_NEWS = ("new_zeros", "new_ones", "new_full")
_GATHERS = ("embedding", "index", "index_select", "gather", "take", "_unsafe_index")
_PARTS = ("slice_copy", "select_copy", *(f"upsample_nearest{dims}d" for dims in (1, 2, 3)))
_NEAREST = tuple(f"_upsample_nearest_exact{dims}d" for dims in (1, 2, 3))
_SCATTERS = ("scatter_", "scatter_add_", "scatter_reduce_", "index_put_", "_index_put_impl_", "put_")
_ROW_SCATTERS = ("index_add_", "index_copy_", "index_fill_", "index_reduce_")


def _names(*groups: tuple[str, ...]) -> frozenset[str]:
    return frozenset(f"aten::{name}" for group in groups for name in group)


FREE_OPS = _names(_ALLOCATIONS, _METADATA, _RESHAPES, _SPLITS)
"""Ops that start no device kernel although their schema does not say so."""
OVERWRITING_OPS = _names(_COPIES, _FILLS, _LIKES, _NEWS)
"""Ops that never read their first tensor: it is overwritten, or lends its shape."""
GATHERING_OPS = _names(_GATHERS)
"""Ops that read as many elements of their first tensor as they return."""
SCATTERING_OPS = _names(_SCATTERS, _ROW_SCATTERS)
"""In-place ops that touch as many elements of their first tensor as their other arguments name."""
_SAMPLING_OPS = GATHERING_OPS | _names(_PARTS, _NEAREST)
"""Ops that read no more elements of their first tensor than they return."""
_UNREAD = {"aten::rrelu_with_noise": 1}
"""Places of arguments that are only written, if at all."""
_HOST_BUFFERS = _names(("log_sigmoid_forward",))
"""Ops whose second result is made on a CPU alone."""

_HALF = (torch.float16, torch.bfloat16)


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
    """What a GPU does for it, by device kernels and their phases."""
    host_us: int = 10
    """What the host takes to issue it."""
    reads: tuple[torch.Tensor, ...] = ()
    writes: tuple[torch.Tensor, ...] = ()


def op_cost(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> OpCost | None:
    """Cost of an op that has just run.

    Args:
        func: the `OpOverload` that ran.
        args: its positional arguments.
        kwargs: its keyword arguments.
        result: what it returned.

    Returns:
        The cost, or None where no device kernel runs (views, allocation, no elements at all).
    """
    name = func._schema.name
    if name in FREE_OPS or _is_view(func):
        return None
    args, kwargs = in_order(func, args, kwargs)
    inputs = list(_inputs(func, args, kwargs))
    outputs = tensors_in(result)[: 1 if name in _HOST_BUFFERS else None]
    if not any(tensor.numel() for tensor in (*inputs, *outputs)):
        return None
    traffic = _traffic(name, bound(func, args, kwargs), inputs, outputs or list(_mutated(func, args)))
    known = flops_of(func, args, kwargs, result)
    if known is None:
        return OpCost(traffic, 0, priced=False)
    flops, is_product = known
    written = outputs or list(_mutated(func, args))
    price, host_us = _price(func)
    steps = tuple(price(Call(func, args, kwargs, inputs, written, traffic, flops)))
    half = flops if is_product and outputs[0].dtype in _HALF else 0
    return OpCost(traffic, flops, half, True, steps, host_us, tuple(_distinct(inputs)), tuple(written))


@cache
def _price(func: Any) -> tuple[Price, int]:
    name = plain_name(func._schema.name)
    return price_of(name, is_pointwise(name))


def _traffic(
    name: str, given: Mapping[str, Any], inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> int:  # fmt: skip
    written, plain = sum(map(nbytes, outputs)), name.partition("::")[2]
    if name in SCATTERING_OPS:
        return sum(map(nbytes, _distinct(inputs[1:]))) + scattered_bytes(plain, given)
    if f"{name}_" in SCATTERING_OPS:  # a copy, then the op in place
        return _traffic(f"{name}_", given, inputs, outputs) + 2 * written
    if plain in BAGS:
        return bag_bytes(given)[0] + sum(map(nbytes, inputs[1:])) + written
    if name in _SAMPLING_OPS:
        source, *indices = inputs
        return min(nbytes(source), written) + sum(map(nbytes, indices)) + written
    read = [inputs[0].diagonal()] if plain == "trace" else _distinct(inputs)
    return sum(map(nbytes, read)) + written + (nbytes(inputs[1]) if plain.endswith("_scatter") else 0)


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return any(item.alias_info is not None and not item.alias_info.is_write for item in returns)


def _inputs(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Tensors the op reads: its arguments, less those it only writes."""
    name = func._schema.name
    unread = 0 if name in OVERWRITING_OPS else _UNREAD.get(name)
    positional = [value for place, value in enumerate(args) if place != unread]
    written = {item.name for item in func._schema.arguments if item.is_out}
    yield from tensors_in(positional)
    yield from tensors_in([value for key, value in kwargs.items() if key not in written])


def _mutated(func: Any, args: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Tensors written by an op that returns none (`_foreach_add_`)."""
    for item, value in zip(func._schema.arguments, args, strict=False):
        if item.alias_info is not None and item.alias_info.is_write:
            yield from tensors_in(value)


def _distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors without repeats: `x * x` reads x once."""
    return list({_identity(tensor): tensor for tensor in tensors}.values())


def _identity(tensor: torch.Tensor) -> Hashable:
    if tensor.layout is not torch.strided:
        return id(tensor)
    address = tensor.data_ptr() or (tensor.untyped_storage()._cdata, tensor.storage_offset())  # meta has no addresses
    return address, tuple(tensor.shape), tensor.stride(), tensor.dtype
