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
Distances = tuple[float, ...]
"""Distance from zero of each tensor; 0.0 leaves it as drawn. A tensor that is not floating has only 0.0 and 1.0."""


def at_end(tensor: torch.Tensor, role: Role, sign: int, distance: float) -> torch.Tensor:
    """Return a tensor with every element at the low (sign -1) or high (+1) end."""
    if not distance or role.kind == "drawn":
        return tensor
    if role.is_floating:
        return _away(tensor, distance) * sign
    if role.has_other_values:
        return torch.full_like(tensor, role.values[sign > 0])
    if role.is_mask:
        return torch.full_like(tensor, sign > 0)
    if role.is_sorted:  # the first and the last delimit what they are offsets into
        return tensor
    moved = _distinct if role.kind == "distinct" else _narrowed
    return role.with_padding(tensor, moved(tensor, role, sign))


def _away(tensor: torch.Tensor, distance: float) -> torch.Tensor:
    """Return magnitudes of at least `distance` that differ from each other as those of the tensor do."""
    magnitudes = tensor.abs()
    if distance <= 1:
        return magnitudes
    magnitudes = magnitudes.to(torch.promote_types(tensor.dtype, torch.float32))
    # Beyond `distance` by the drawn magnitudes over their mean: elements still differ, so an order stays an order.
    mean = magnitudes.mean()
    spread = magnitudes / mean if bool(mean > 0) and bool(mean.isfinite()) else magnitudes
    distance = min(distance, torch.finfo(tensor.dtype).max / _HEADROOM)
    return (distance * (1 + spread)).to(tensor.dtype)


def _narrowed(tensor: torch.Tensor, role: Role, sign: int) -> torch.Tensor:
    """Move integers into a quarter of their range, or the outer half of one side of zero; their order stays."""
    low, high = role.bounds(tensor)
    # Integers of both signs get one sign; the outer half keeps them away from zero.
    first, last = (low, low // 2) if low < 0 else (low, low + (high - low) // 4)
    if sign > 0:
        first, last = (high + 1) // 2 if high > 0 > low else high - (high - low) // 4, high
    share = (tensor.double() - low) / max(1, high - low)
    return (first + (share * (last - first)).round()).clamp(first, last).to(tensor.dtype)


def _distinct(tensor: torch.Tensor, role: Role, sign: int) -> torch.Tensor:
    """Move integers that never repeat in a row to one side of zero, if their range has enough of them there."""
    room = role.high if sign > 0 else -role.low
    if role.low >= 0 or role.high <= 0 or room < tensor.shape[-1]:
        return tensor
    # Ranks in place of values, spread evenly over the side: no integer repeats, and the order stays.
    ranks = tensor.argsort(-1).argsort(-1).to(tensor.dtype)
    step = room // tensor.shape[-1]
    return (1 + ranks) * (sign * step) if sign > 0 else (ranks - tensor.shape[-1]) * step


def single(tensor: torch.Tensor, axis: int | None, minority: int, generator: torch.Generator) -> torch.Tensor:
    """Return a mask with one element `minority` in each slice along `axis` (in all of it, if None), the others not."""
    first = tensor if axis is None else tensor.movedim(axis, 0)
    slices = torch.full_like(first, 1 - minority).reshape(1 if axis is None else first.shape[0], -1)
    indices = torch.randint(slices.shape[1], (slices.shape[0], 1), generator=generator).to(tensor.device)
    slices = slices.scatter(1, indices, torch.full_like(slices[:, :1], minority)).view(first.shape)
    return torch.empty_like(tensor).copy_(slices if axis is None else slices.movedim(0, axis))


def by_slices(variants: Sequence[torch.Tensor], axis: int | None, generator: torch.Generator) -> torch.Tensor:
    """Take slices along `axis` from the variants cyclically, starting at a random one; without an axis the first."""
    if axis is None:
        return variants[0]
    length = variants[0].shape[axis]
    choice = (torch.arange(length) + int(torch.randint(len(variants), (), generator=generator))) % len(variants)
    shape = [length if dim == axis else 1 for dim in range(variants[0].dim())]
    choice, result = choice.view(shape).to(variants[0].device), variants[0]
    for number, variant in enumerate(variants[1:], 1):
        result = torch.where(choice == number, variant, result)
    return torch.empty_like(variants[0]).copy_(result)


def some_axis(tensor: torch.Tensor, generator: torch.Generator) -> int | None:
    """Return the first or the last axis, by chance, of those longer than one; None where fewer than two are."""
    axes = [axis for axis, length in enumerate(tensor.shape) if length > 1]
    if len(axes) < 2:
        return None
    return axes[-int(torch.randint(2, (), generator=generator))]


def learn_distances(
    probe: Tensors, roles: Sequence[Role], signs: Signs, accepts: Callable[[Tensors], bool], is_steady: bool
) -> Distances:
    """Find how far from zero the tensors may be moved, each to its side: all together, or else those that can be.

    Args:
        probe: tensors of one draw.
        roles: roles of these tensors.
        signs: the side of each tensor.
        accepts: whether the reference accepts inputs.
        is_steady: whether its outputs are well conditioned on drawn inputs; if not, magnitudes stay as drawn.
    """

    def moved(distances: Distances) -> Tensors:
        return [at_end(*each) for each in zip(probe, roles, signs, distances, strict=True)]

    sizes = SIZES_OF_SEVERAL if sum(role.is_floating for role in roles) > 1 else SIZES
    nearest = tuple(float(role.kind != "drawn") for role in roles)
    for size in sizes if is_steady else SIZES[-1:]:
        distances = tuple(size if role.is_floating else near for role, near in zip(roles, nearest, strict=True))
        if not any(distances) or accepts(moved(distances)):
            break
    else:
        # Together they fail at any distance: at least those that can be are moved, with the magnitudes drawn.
        distances = (0.0,) * len(roles)
        for number, near in enumerate(nearest):
            attempt = (*distances[:number], near, *distances[number + 1 :])
            distances = attempt if near and accepts(moved(attempt)) else distances
    # One tensor may hold all others back, such as one that is exponentiated.
    for number, role in enumerate(roles):
        attempt = (*distances[:number], sizes[0], *distances[number + 1 :])
        if is_steady and role.is_floating and distances[number] <= 1 and accepts(moved(attempt)):
            distances = attempt
    return distances
