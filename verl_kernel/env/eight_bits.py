# SPDX-License-Identifier: Apache-2.0
"""8-bit floats, which are compared and varied in float32: torch can store and convert them, and little else."""

from __future__ import annotations

from collections.abc import Sequence

import torch

EIGHT = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
_FEW = 12
"""One number in so many may be rounded to the other side: where bfloat16 has rounded before, it is one in 30."""


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in float32 where they are 8-bit floats; else the tensor itself."""
    return tensor.float() if tensor.dtype in EIGHT else tensor


def narrowed(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The nearest numbers in the dtype of an 8-bit tensor that was widened, the largest for what is beyond them."""
    if like.dtype not in EIGHT:
        return tensor
    most = torch.finfo(like.dtype).max
    return tensor.clamp(-most, most).to(like.dtype)


def differ_by_rounding(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether few numbers differ, each by one step: a number that was rounded before may be rounded to either side."""
    one, other = expected.float(), actual.float()
    steps = (_rank(expected) - _rank(actual)).abs_().masked_fill_(one.isnan() & other.isnan(), 0)
    is_near = (steps == 0) | ((steps == 1) & one.isfinite() & other.isfinite())
    return bool(is_near.all()) and int(steps.count_nonzero()) * _FEW <= steps.numel()


def _rank(tensor: torch.Tensor) -> torch.Tensor:
    """Places of numbers in their order; both zeros have place 0."""
    bits = tensor.view(torch.uint8).to(torch.int16)
    return torch.where(bits < 0x80, bits, 0x80 - bits)


def widened_all(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each of them widened."""
    return [widened(tensor) for tensor in tensors]


def narrowed_all(
    changed: Sequence[torch.Tensor], wide: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Each of the changed ones narrowed; what was left alone since it was widened is the tensor that it was."""
    each = zip(changed, wide, tensors, strict=True)
    return [like if one is other else narrowed(one, like) for one, other, like in each]
