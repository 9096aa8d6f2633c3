# SPDX-License-Identifier: Apache-2.0
"""Conversions of 8-bit floats, which are compared and varied in float32: torch can only store and convert them.

Complex numbers are varied as pairs of real ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

EIGHT = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
_FEW = 12
"""At most one number in `_FEW` may be rounded the other way; if it was rounded to bfloat16 before, one in 30 is."""


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Convert a tensor of 8-bit floats to float32; return any other tensor itself."""
    return tensor.float() if tensor.dtype in EIGHT else tensor


def narrowed(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Convert a widened tensor back to the 8-bit dtype of `like`, to the nearest value and within its finite range.

    If `like` is not of 8-bit floats, return `tensor` itself.
    """
    if like.dtype not in EIGHT:
        return tensor
    largest = torch.finfo(like.dtype).max
    return tensor.clamp(-largest, largest).to(like.dtype)


def differ_by_rounding(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Tell whether 8-bit floats differ only by rounding: at most one in `_FEW`, each by one step.

    A number that was rounded before may then be rounded to either neighbour.
    """
    wide_expected, wide_actual = expected.float(), actual.float()
    steps = (_rank(expected) - _rank(actual)).abs_().masked_fill_(wide_expected.isnan() & wide_actual.isnan(), 0)
    is_near = (steps == 0) | ((steps == 1) & wide_expected.isfinite() & wide_actual.isfinite())
    return bool(is_near.all()) and int(steps.count_nonzero()) * _FEW <= steps.numel()


def _rank(tensor: torch.Tensor) -> torch.Tensor:
    """Return each number's rank in the order of all values of its dtype; both zeros have rank 0."""
    bits = tensor.view(torch.uint8).to(torch.int16)
    return torch.where(bits < 0x80, bits, 0x80 - bits)


def widened_all(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return each tensor widened; of a complex one, the real and imaginary parts as a last dimension."""
    return [widened(torch.view_as_real(tensor) if tensor.is_complex() else tensor) for tensor in tensors]


def narrowed_all(
    changed: Sequence[torch.Tensor], wide: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Narrow the changed tensors.

    Args:
        changed: the tensors after a change.
        wide: the widened tensors before it.
        tensors: the original tensors; one that was not changed is returned as it is.
    """
    each = zip(changed, wide, tensors, strict=True)
    return [like if one is other else _back(one, like) for one, other, like in each]


def _back(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(tensor.contiguous()) if like.is_complex() else narrowed(tensor, like)
