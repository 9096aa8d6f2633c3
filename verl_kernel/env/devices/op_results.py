# SPDX-License-Identifier: Apache-2.0
"""Samples the results of torch's ops in an ablation: they show whether torch computes what kernels are paid for."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.eight_bits import widened
from verl_kernel.env.ipc.op_samples import MOST, OpSample, places
from verl_kernel.env.ops.dispatch_modes import DispatchMode, changed
from verl_kernel.env.ops.table import is_view, op_of


class OpResults(DispatchMode):
    """Samples every tensor that an op returns, views and uninitialised memory left out.

    Args:
        seed: draws the places, which the program must not know.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed, self._random, self._seen = seed, Random(seed), 0
        self._taken: list[tuple[int, torch.Tensor]] = []
        self._places: dict[int, list[int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not (op_of(func).is_free or is_view(func)):
            # Some ops that change tensors in place return nothing.
            leaves = changed(func._schema, args, kwargs or {}) if result is None else pytree.tree_leaves(result)
            for leaf in leaves:
                if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
                    self._take(leaf)
        return result

    def _take(self, tensor: torch.Tensor) -> None:
        if tensor.is_complex() or tensor.device.type == "meta":
            return
        self._seen += 1
        # A random sample of all results: a program cannot hide one behind many others.
        number = len(self._taken) if self._seen <= MOST else self._random.randrange(self._seen)
        if number < MOST:
            self._taken[number : number + 1] = [(tensor.numel(), self._elements(tensor))]

    def _elements(self, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.numel()
        if size not in self._places:
            self._places[size] = places(self._seed, size)
        # By strides, so that no copy is made of a large tensor that is not contiguous.
        rest = torch.tensor(self._places[size], device=tensor.device)
        offset = torch.zeros_like(rest)
        for length, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            offset, rest = offset + rest % length * stride, rest // length
        flat = torch.as_strided(tensor, (_reach(tensor),), (1,), tensor.storage_offset())
        return widened(flat[offset]).double()

    def samples(self) -> list[OpSample]:
        """Return the samples; not within a forward, since that reads tensors on the host."""
        return [OpSample(size, tuple(elements.tolist())) for size, elements in self._taken]


def _reach(tensor: torch.Tensor) -> int:
    """Return how many elements of memory lie between a tensor's first and last one, both included."""
    return 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
