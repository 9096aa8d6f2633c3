# SPDX-License-Identifier: Apache-2.0
"""What each input tensor of a task is (data, a mask, an index), as far as several draws of `get_inputs()` show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from verl_kernel.env.reference.structure import structures_of

_RARE = 1 / 16
"""A mask has a rare value where at most this part of its elements has it."""


@dataclass(frozen=True)
class Role:
    """What one input tensor is, as far as several draws show it.

    `drawn` (left alone), `scaled` (floating), `fixed` (floating, the same in every draw), `flipped` (a mask with a
    rare value), `mask` (any other), `index` (integers that repeat), `distinct` (integers that never do).
    """

    kind: str
    low: int = 0
    high: int = 0
    """Range of integers."""
    is_sorted: bool = False
    structures: tuple[str, ...] = ()
    """What holds in every draw besides (`structure`)."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Role:
        """Read what `asdict` wrote."""
        return cls(**{**data, "structures": tuple(data.get("structures", ()))})

    @property
    def is_floating(self) -> bool:
        """Whether it holds numbers that may be scaled."""
        return self.kind in ("fixed", "scaled")

    @property
    def is_mask(self) -> bool:
        """Whether it holds zeros and ones only."""
        return self.kind in ("flipped", "mask")


def find_roles(draws: Sequence[Sequence[torch.Tensor]]) -> list[Role]:
    """Each input's role; floating zeros and ones that never change are a mask beside data that does, else data."""
    groups = list(zip(*draws, strict=True))
    roles = [replace(_role(tensors), structures=structures_of(tensors)) for tensors in groups]
    if any(role.kind == "scaled" for role in roles):
        return roles
    return [
        replace(role, kind="fixed") if _may_be_data(role, tensors) else role
        for role, tensors in zip(roles, groups, strict=True)
    ]


def _may_be_data(role: Role, tensors: Sequence[torch.Tensor]) -> bool:
    """Floating numbers that never change; of one-hot rows other places are drawn, and no other numbers."""
    return tensors[0].is_floating_point() and unchanged(tensors) and "one_hot" not in role.structures


def _role(tensors: Sequence[torch.Tensor]) -> Role:
    first = tensors[0]
    if not all(tensor.numel() for tensor in tensors) or first.is_complex():
        return Role("drawn")
    if all(bool(((tensor == 0) | (tensor == 1)).all()) for tensor in tensors):
        return _binary(tensors)
    if first.is_floating_point():
        return Role("fixed" if unchanged(tensors) else "scaled")
    low, high = min(int(tensor.min()) for tensor in tensors), max(int(tensor.max()) for tensor in tensors)
    if low == high:
        return Role("drawn")
    kind = "index" if any(map(_repeats, tensors)) else "distinct"
    return Role(kind, low, high, all(map(_is_sorted, tensors)))


def _binary(tensors: Sequence[torch.Tensor]) -> Role:
    """A tensor of zeros only is a mask only if it is boolean: of an integer, 1 may be out of range."""
    ones = sum(int(tensor.sum()) for tensor in tensors) / sum(tensor.numel() for tensor in tensors)
    is_rare, fixed = min(ones, 1 - ones) <= _RARE, unchanged(tensors)
    if ones == 0 and tensors[0].dtype is not torch.bool:
        return Role("fixed" if tensors[0].is_floating_point() else "drawn")
    return Role("flipped" if is_rare or fixed else "mask")


def unchanged(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether one input is the same in every draw."""
    return all(same_bytes(tensors[0], tensor) for tensor in tensors[1:])


def _repeats(tensor: torch.Tensor) -> bool:
    flat = tensor.reshape(-1).sort().values
    return bool((flat[1:] == flat[:-1]).any())


def _is_sorted(tensor: torch.Tensor) -> bool:
    flat = tensor.reshape(-1)
    return bool((flat[1:] >= flat[:-1]).all())


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of any shapes hold the same, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))
