# SPDX-License-Identifier: Apache-2.0
"""Tensors at one end of what they may hold: numbers of one sign, far from zero; masks all set or unset; low integers.

A reduction that starts at a wrong value (a maximum at 0) shows only where that value beats every number it meets. So
whole tensors and whole slices of them are put on one side of zero, as far from it as the reference bears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from verl_kernel.env.reference.roles import Role

SIZES = (2.0**20, 2.0**10, 128.0, 1.0)
"""Distances from zero, the first that a reference bears; 1.0 keeps the magnitudes that were drawn. Beyond 104, exp of a
negative float32 is zero; beyond 89, that of a positive one is infinite."""
SIZES_OF_SEVERAL = (2.0**10, 64.0, 1.0)
"""The same where several tensors meet: products of 2^20 would pass -1e9, which right kernels write where a mask hides a
score, and the sum of two at 64 is beyond 104."""
_HEADROOM = 64
"""How far below the largest number of its type a size stays, for what is added to it."""
Tensors = list[torch.Tensor]
Signs = tuple[int, ...]
Reach = tuple[float, ...]
"""By tensor: its distance from zero; 0.0 leaves it as drawn, and what is no floating number has only 0.0 and 1.0."""


def at_end(tensor: torch.Tensor, role: Role, sign: int, reach: float) -> torch.Tensor:
    """One tensor with every element at the low (sign -1) or high (+1) end."""
    if not reach or role.kind == "drawn":
        return tensor
    if role.is_floating:
        return _away(tensor, reach) * sign
    if role.is_mask:
        return torch.full_like(tensor, sign > 0)
    return _distinct(tensor, role, sign) if role.kind == "distinct" else _narrowed(tensor, role, sign)


def _away(tensor: torch.Tensor, reach: float) -> torch.Tensor:
    """Magnitudes of at least `reach` that differ from each other as those of the tensor do."""
    sizes = tensor.abs()
    if reach <= 1:
        return sizes
    sizes = sizes.to(torch.promote_types(tensor.dtype, torch.float32))
    mean = sizes.mean()
    spread = sizes / mean if bool(mean > 0) and bool(mean.isfinite()) else sizes
    reach = min(reach, torch.finfo(tensor.dtype).max / _HEADROOM)
    return (reach * (1 + spread)).to(tensor.dtype)


def _narrowed(tensor: torch.Tensor, role: Role, sign: int) -> torch.Tensor:
    """Integers moved into a quarter of their range, or the outer half of one side of zero; their order stays."""
    first, last = (role.low, role.low // 2) if role.low < 0 else (role.low, role.low + (role.high - role.low) // 4)
    if sign > 0:
        first = (role.high + 1) // 2 if role.high > 0 > role.low else role.high - (role.high - role.low) // 4
        last = role.high
    share = (tensor.double() - role.low) / max(1, role.high - role.low)
    return (first + (share * (last - first)).round()).clamp(first, last).to(tensor.dtype)


def _distinct(tensor: torch.Tensor, role: Role, sign: int) -> torch.Tensor:
    """Integers that never repeat are moved only across zero, as far as their range allows."""
    if role.low >= 0 or role.high <= 0 or role.is_sorted:
        return tensor
    return (tensor.abs() * sign).clamp(role.low, role.high)


def single(tensor: torch.Tensor, axis: int | None, odd: int, generator: torch.Generator) -> torch.Tensor:
    """A mask of which one element of each slice along `axis` (of all, if None) is `odd` and the others are not."""
    first = tensor if axis is None else tensor.movedim(axis, 0)
    slices = torch.full_like(first, 1 - odd).reshape(1 if axis is None else first.shape[0], -1)
    places = torch.randint(slices.shape[1], (slices.shape[0], 1), generator=generator).to(tensor.device)
    slices = slices.scatter(1, places, torch.full_like(slices[:, :1], odd)).view(first.shape)
    return torch.empty_like(tensor).copy_(slices if axis is None else slices.movedim(0, axis))


def by_slices(variants: Sequence[torch.Tensor], axis: int | None, generator: torch.Generator) -> torch.Tensor:
    """Slices along `axis` from the variants in turn, from one by chance; without an axis the first variant."""
    if axis is None:
        return variants[0]
    length = variants[0].shape[axis]
    turn = (torch.arange(length) + int(torch.randint(len(variants), (), generator=generator))) % len(variants)
    shape = [length if at == axis else 1 for at in range(variants[0].dim())]
    turn, result = turn.view(shape).to(variants[0].device), variants[0]
    for number, variant in enumerate(variants[1:], 1):
        result = torch.where(turn == number, variant, result)
    return torch.empty_like(variants[0]).copy_(result)


def some_axis(tensor: torch.Tensor, generator: torch.Generator) -> int | None:
    """The first or the last axis, by chance, of those longer than one; None for a vector."""
    axes = [axis for axis, length in enumerate(tensor.shape) if length > 1]
    if len(axes) < 2:
        return None
    return axes[-int(torch.randint(2, (), generator=generator))]


def learn_reach(
    probe: Tensors, roles: Sequence[Role], signs: Signs, bears: Callable[[Tensors], bool], is_steady: bool
) -> Reach:
    """How far from zero the tensors may be taken, each to its side; where not all together, those that can be at all.

    Args:
        probe: one draw.
        roles: of its tensors.
        signs: the side of each.
        bears: whether the reference accepts inputs.
        is_steady: whether its outputs are well conditioned at all; else magnitudes stay as they were drawn.
    """

    def moved(reach: Reach) -> Tensors:
        return [at_end(*each) for each in zip(probe, roles, signs, reach, strict=True)]

    sizes = SIZES_OF_SEVERAL if sum(role.is_floating for role in roles) > 1 else SIZES
    for size in sizes if is_steady else SIZES[-1:]:
        reach = tuple(size if role.is_floating else float(role.kind != "drawn") for role in roles)
        if not any(reach) or bears(moved(reach)):
            return reach
    reach = (0.0,) * len(roles)
    for number, role in enumerate(roles):
        tried = (*reach[:number], 1.0, *reach[number + 1 :])
        reach = tried if role.kind != "drawn" and bears(moved(tried)) else reach
    return reach
