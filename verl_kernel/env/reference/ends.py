# SPDX-License-Identifier: Apache-2.0
"""Moves tensors to one end of their range: numbers of one sign, far from zero; masks all set or unset; low integers.

A reduction that starts at a wrong value (a maximum at 0) shows only where that value beats every number it meets. So
whole tensors and whole slices are put on one side of zero, as far from it as the reference's outputs stay usable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from verl_kernel.env.reference.roles import Role

SIZES = (2.0**20, 2.0**10, 128.0, 1.0)
"""Distances from zero to try, largest first; 1.0 keeps the magnitudes that were drawn. Beyond 104, exp of a negative
float32 is zero; beyond 89, exp of a positive one is infinite."""
SIZES_OF_SEVERAL = (2.0**10, 64.0, 1.0)
"""Distances for several tensors: products of numbers at 2^20 would pass -1e9, which correct kernels write where a mask
hides a score; the sum of two numbers at 64 is beyond 104."""
_HEADROOM = 64
"""Factor by which a size stays below the largest number of its type, so that sums do not overflow."""
Tensors = list[torch.Tensor]
Signs = tuple[int, ...]
Reach = tuple[float, ...]
"""Distance from zero of each tensor; 0.0 leaves it as drawn. A tensor that is not floating has only 0.0 and 1.0."""


def at_end(tensor: torch.Tensor, role: Role, sign: int, reach: float) -> torch.Tensor:
    """Return a tensor with every element at the low (sign -1) or high (+1) end."""
    if not reach or role.kind == "drawn":
        return tensor
    if role.is_floating:
        return _away(tensor, reach) * sign
    if role.is_odd:
        return torch.full_like(tensor, role.values[sign > 0])
    if role.is_mask:
        return torch.full_like(tensor, sign > 0)
    if role.is_sorted:  # the first and the last delimit what they are offsets into
        return tensor
    return _distinct(tensor, role, sign) if role.kind == "distinct" else _narrowed(tensor, role, sign)


def _away(tensor: torch.Tensor, reach: float) -> torch.Tensor:
    """Return magnitudes of at least `reach` that differ from each other as those of the tensor do."""
    sizes = tensor.abs()
    if reach <= 1:
        return sizes
    sizes = sizes.to(torch.promote_types(tensor.dtype, torch.float32))
    mean = sizes.mean()
    spread = sizes / mean if bool(mean > 0) and bool(mean.isfinite()) else sizes
    reach = min(reach, torch.finfo(tensor.dtype).max / _HEADROOM)
    return (reach * (1 + spread)).to(tensor.dtype)


def _narrowed(tensor: torch.Tensor, role: Role, sign: int) -> torch.Tensor:
    """Move integers into a quarter of their range, or the outer half of one side of zero; their order stays."""
    low, high = role.bounds(tensor)
    first, last = (low, low // 2) if low < 0 else (low, low + (high - low) // 4)
    if sign > 0:
        first, last = (high + 1) // 2 if high > 0 > low else high - (high - low) // 4, high
    share = (tensor.double() - low) / max(1, high - low)
    return (first + (share * (last - first)).round()).clamp(first, last).to(tensor.dtype)


def _distinct(tensor: torch.Tensor, role: Role, sign: int) -> torch.Tensor:
    """Move integers that never repeat in a row to one side of zero, if their range has enough of them there."""
    most = role.high if sign > 0 else -role.low
    if role.low >= 0 or role.high <= 0 or most < tensor.shape[-1]:
        return tensor
    ranks = tensor.argsort(-1).argsort(-1).to(tensor.dtype)
    step = most // tensor.shape[-1]
    return (1 + ranks) * (sign * step) if sign > 0 else (ranks - tensor.shape[-1]) * step


def single(tensor: torch.Tensor, axis: int | None, odd: int, generator: torch.Generator) -> torch.Tensor:
    """Return a mask with one element `odd` in each slice along `axis` (in all of it, if None) and the others not."""
    first = tensor if axis is None else tensor.movedim(axis, 0)
    slices = torch.full_like(first, 1 - odd).reshape(1 if axis is None else first.shape[0], -1)
    places = torch.randint(slices.shape[1], (slices.shape[0], 1), generator=generator).to(tensor.device)
    slices = slices.scatter(1, places, torch.full_like(slices[:, :1], odd)).view(first.shape)
    return torch.empty_like(tensor).copy_(slices if axis is None else slices.movedim(0, axis))


def by_slices(variants: Sequence[torch.Tensor], axis: int | None, generator: torch.Generator) -> torch.Tensor:
    """Take slices along `axis` from the variants cyclically, starting at a random one; without an axis the first."""
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
    """Return the first or the last axis, by chance, of those longer than one; None where fewer than two are."""
    axes = [axis for axis, length in enumerate(tensor.shape) if length > 1]
    if len(axes) < 2:
        return None
    return axes[-int(torch.randint(2, (), generator=generator))]


def learn_reach(
    probe: Tensors, roles: Sequence[Role], signs: Signs, bears: Callable[[Tensors], bool], is_steady: bool
) -> Reach:
    """Find how far from zero the tensors may be moved, each to its side: all together, or else those that can be.

    Args:
        probe: tensors of one draw.
        roles: roles of these tensors.
        signs: the side of each tensor.
        bears: whether the reference accepts inputs.
        is_steady: whether its outputs are well conditioned on drawn inputs; if not, magnitudes stay as drawn.
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
