# SPDX-License-Identifier: Apache-2.0
"""A call of a torch op, from which its price is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.trace import Step

_THREADS, _VECTOR_BYTES = 128, 16
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Call:
    """An op with its arguments, results and counted cost."""

    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    inputs: Sequence[torch.Tensor]
    """Tensors that it reads."""
    outputs: Sequence[torch.Tensor]
    """Tensors that it writes."""
    bytes: int
    """Bytes moved if each input element is read once and each output element is written once."""
    flops: int

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name, defaults included."""
        return bound(self.func, self.args, self.kwargs)

    @property
    def data(self) -> torch.Tensor:
        """The first tensor among the arguments."""
        return self.inputs[0]

    @property
    def output(self) -> torch.Tensor:
        """The first result."""
        return self.outputs[0]

    @property
    def elements(self) -> int:
        """Number of elements of the largest tensor; of a list, all its tensors together."""
        tensors = (*self.inputs, *self.outputs)
        if self.args and isinstance(self.args[0], list | tuple) and "_foreach_" in self.func._schema.name:
            return sum(tensor.numel() for tensor in self.args[0])
        return max((tensor.numel() for tensor in tensors), default=1)

    @property
    def is_half(self) -> bool:
        """Whether its products use 16-bit operands."""
        return self.data.dtype in HALF


Price = Callable[[Call], list[Step]]


def plain_name(name: str) -> str:
    """Return an op's name without namespace and without the marks of in-place and list variants."""
    plain = name.partition("::")[2].removeprefix("_foreach_")
    if plain.startswith("__") and plain.endswith("__"):  # an operator: `__rshift__`, in place `__irshift__`
        return f"__{plain[3:]}" if plain.startswith("__i") else plain
    return plain.rstrip("_") or plain


def is_in_place(name: str) -> bool:
    """Whether an op of this name (`aten::add_`) writes to its first tensor."""
    return name.endswith("_") and (not name.endswith("__") or "::__i" in name)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested data, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names in the op's schema, defaults included."""
    schema = func._schema.arguments
    named = {item.name: item.default_value for item in schema if item.has_default_value()}
    return {**named, **{item.name: value for item, value in zip(schema, args, strict=False)}, **kwargs}


def in_order(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments in the dispatcher's form: positional ones by place, even if given as keywords."""
    names = [item.name for item in func._schema.arguments if not item.kwarg_only]
    if not any(name in kwargs for name in names):
        return tuple(args), dict(kwargs)
    named = bound(func, args, kwargs)
    return tuple(named[name] for name in names), {name: kwargs[name] for name in kwargs if name not in names}


def nbytes(*tensors: torch.Tensor | None) -> int:
    """Return the bytes of the elements of tensors; a broadcast dimension (stride 0) counts once."""
    return sum(_extent(tensor) for tensor in tensors if tensor is not None)


def _extent(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0 or tensor.layout is not torch.strided:
        return tensor.numel() * tensor.element_size()
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * prod(size for size, stride in sizes if stride != 0)


def padded(count: int, multiple: int) -> int:
    """Round `count` up to a multiple."""
    return -(-count // multiple) * multiple


def streamed(moved: int, access: str, elements: int, instructions: int = 0) -> Step:
    """Return the step of a kernel like torch's elementwise ones: blocks of 128 threads with four elements each."""
    return Step(moved, access, instructions, blocks=max(1, -(-elements // 512)), in_flight=_THREADS * _VECTOR_BYTES)


def bias_step(output: torch.Tensor) -> Step:
    """Return the step of a kernel that adds a vector to an output in memory."""
    return streamed(2 * nbytes(output), "mixed", output.numel(), output.numel())
