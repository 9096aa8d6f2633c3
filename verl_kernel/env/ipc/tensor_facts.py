# SPDX-License-Identifier: Apache-2.0
"""The facts of an output besides its values: type, dtype, shape, stride, device, layout, and memory not shared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

Facts = dict[str, Any]
_FACTS = ("type", "dtype", "shape", "device", "layout", "stride", "aliased")


def tensor_facts(tensor: torch.Tensor, inputs: frozenset[int] = frozenset()) -> Facts:
    """Return the facts of one output as JSON values.

    Args:
        tensor: the output.
        inputs: the result of `storages` for the inputs.
    """
    kind = "torch.Tensor" if type(tensor) is torch.Tensor else type(tensor).__qualname__
    dtype, device, layout = str(tensor.dtype).removeprefix("torch."), str(tensor.device), str(tensor.layout)
    strided = tensor.layout is torch.strided
    return {
        "type": kind,
        "dtype": dtype,
        "shape": list(tensor.shape),
        "device": device,
        "layout": layout,
        "stride": _stride(tensor) if strided else [],
        "aliased": strided and bool(inputs & storages([tensor])),
    }


def read_facts(value: object) -> list[Facts]:
    """Check and return a runner's list of `tensor_facts`, without other keys.

    Raises:
        ValueError: the value is not a list of objects.
        KeyError: an object lacks a fact.
    """
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("the facts of outputs must be a list of objects")
    return [{key: item[key] for key in _FACTS} for item in value]


def storages(tensors: Iterable[torch.Tensor]) -> frozenset[int]:
    """Return the addresses of the storages of all non-empty strided tensors."""
    strided = (tensor for tensor in tensors if tensor.layout is torch.strided and tensor.numel())
    return frozenset(tensor.untyped_storage().data_ptr() for tensor in strided)


def same_place(first: Facts, second: Facts) -> bool:
    """Tell whether tensors with these facts can be copied to each other element by element."""
    has_data = first["device"] != "meta"
    return has_data and all(first[key] == second[key] for key in ("type", "dtype", "shape", "layout"))


def disagreement(expected: Sequence[Facts], actual: Sequence[Facts], strides: str) -> tuple[str, str] | None:
    """Return the first difference between two equally long lists of outputs: error type and sentence; None if none.

    Args:
        expected: facts of the reference's outputs.
        actual: facts of the candidate's outputs.
        strides: `equal` accepts the reference's strides and contiguous ones; `any` accepts all strides that neither
            overlap nor leave gaps.
    """
    for number, (want, got) in enumerate(zip(expected, actual, strict=True)):
        for key in ("type", "dtype", "shape", "device", "layout"):
            if got[key] != want[key]:
                text = f"output {number} has {key} {str(got[key])[:100]} where the reference's has {want[key]}"
                return f"Wrong{key.capitalize()}", text  # check: output-facts-agree
        is_known = got["stride"] in (want["stride"], _contiguous(want["shape"]))
        if not is_known and (strides == "equal" or not _is_dense(got["shape"], got["stride"])):
            stride = f"stride {got['stride']} where the reference's has {want['stride']}"
            return "WrongStride", f"output {number} has {stride}: return it contiguous"  # check: output-stride-agrees
        if got["aliased"] and not want["aliased"]:
            # check: output-is-not-an-input
            return "Aliased", f"output {number} shares memory with an input where the reference's does not"
    return None


def _is_dense(shape: Sequence[int], stride: object) -> bool:
    """Tell whether a stride is that of a contiguous tensor with its dimensions in any order.

    `stride` is a runner's claim and may be any JSON value.
    """
    sizes, step = [size for size in shape if size > 1], 1
    if not isinstance(stride, list) or len(stride) != len(sizes) or not all(type(each) is int for each in stride):
        return False
    for each, size in sorted(zip(stride, sizes, strict=True)):
        if each != step:
            return False
        step *= size
    return True


def _stride(tensor: torch.Tensor) -> list[int]:
    """Return the strides of dimensions with more than one element; those of the others are arbitrary."""
    if tensor.numel() == 0:
        return []
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _contiguous(shape: Sequence[int]) -> list[int]:
    return _stride(torch.empty(tuple(shape), device="meta"))
