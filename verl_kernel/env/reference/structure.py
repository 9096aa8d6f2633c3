# SPDX-License-Identifier: Apache-2.0
"""Structures that an input has in every draw; a varied input must keep them, as a program may rely on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import normalize

_FEWEST, _IN_ORDER = 3, 6
"""Fewest elements of a row whose sum, and whose order, is no accident: six random numbers are sorted once in 720."""
_SUM_TOLERANCE = 1e-3
"""How far the sum of a row may be from 1 by rounding; half precision needs a few times more."""


def structures_of(tensors: Sequence[torch.Tensor]) -> tuple[str, ...]:
    """Return the structures that one input has in every draw, in the order in which they are restored.

    Args:
        tensors: this input in each draw.
    """
    if not all(tensor.numel() and not tensor.is_complex() for tensor in tensors):
        return ()
    if all(bool((tensor == tensor.reshape(-1)[0]).all()) for tensor in tensors):
        return ()
    found = [name for name, (holds, _) in _STRUCTURES.items() if all(map(holds, tensors)) and _says(name, tensors)]
    return tuple(found[:1] if found[:1] == ["one_hot"] else found)  # it implies the others, or they are accidents


def restored(structures: Sequence[str], drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Give the changed tensor the structures of the drawn one."""
    for name in structures:
        changed = _STRUCTURES[name][1](drawn, changed)
    return changed


def _says(name: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a structure is significant: zeros are one only if they are at the same places in every draw."""
    first = tensors[0] == 0
    return name != "zeros" or all(
        tensor.shape == first.shape and bool(((tensor == 0) == first).all()) for tensor in tensors
    )


def _has_zeros(tensor: torch.Tensor) -> bool:
    """Whether some numbers are zero and others are not; False for zeros and ones only, which may change places."""
    if not tensor.is_floating_point() or bool(((tensor == 0) | (tensor == 1)).all()):
        return False
    return int(tensor.count_nonzero()) < tensor.numel()


def _with_zeros(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return torch.where(drawn == 0, drawn, changed)


def _is_one_hot(tensor: torch.Tensor) -> bool:
    is_binary = bool(((tensor == 0) | (tensor == 1)).all())
    return tensor.dim() > 1 and tensor.shape[-1] >= _FEWEST and is_binary and bool((tensor.sum(-1) == 1).all())


def _one_hot(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Move the 1 of each changed row to another place, which all of its changed elements decide."""
    other, size = drawn != changed, drawn.shape[-1]
    moved = (other * torch.arange(size, device=drawn.device)).sum(-1, keepdim=True) % (size - 1) + 1
    shift = moved * other.any(-1, keepdim=True)
    places = (drawn.byte().argmax(-1, keepdim=True) + shift) % size
    return torch.zeros_like(drawn).scatter(-1, places, 1)


def _is_sorted(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dim() == 0 or tensor.shape[-1] < _IN_ORDER:
        return False
    return bool((tensor[..., 1:] >= tensor[..., :-1]).all()) and bool((tensor[..., -1:] > tensor[..., :1]).any())


def _sorted(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return changed.sort(-1).values


def _is_symmetric(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    return tensor.shape[-1] >= _FEWEST and torch.equal(tensor, tensor.mT)


def _symmetric(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return changed.tril() + changed.tril(-1).mT


def _is_near(sums: torch.Tensor, dtype: torch.dtype) -> bool:
    return bool(((sums - 1).abs() <= max(_SUM_TOLERANCE, 8 * torch.finfo(dtype).eps)).all())


def _has_rows(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 0 and tensor.shape[-1] >= _FEWEST


def _is_distribution(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) and bool((tensor >= 0).all()) and _is_near(tensor.double().sum(-1), tensor.dtype)


def _distribution(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    sizes = changed.double().abs()
    sums = sizes.sum(-1, keepdim=True)
    return torch.where((sums > 0) & sums.isfinite(), sizes / sums, drawn.double()).to(drawn.dtype)


def _is_log_distribution(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) and bool((tensor <= 0).all()) and _is_near(tensor.double().exp().sum(-1), tensor.dtype)


def _log_distribution(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return changed.double().log_softmax(-1).to(drawn.dtype)


def _is_unit(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) and _is_near(tensor.double().square().sum(-1), tensor.dtype)


def _unit(drawn: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    rows = normalize(changed.double(), dim=-1)
    return torch.where(rows.isfinite().all(-1, keepdim=True) & rows.any(-1, keepdim=True), rows, drawn.double()).to(
        drawn.dtype
    )


_STRUCTURES: dict[str, tuple[Callable[[torch.Tensor], bool], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "one_hot": (_is_one_hot, _one_hot),
    "zeros": (_has_zeros, _with_zeros),
    "sorted": (_is_sorted, _sorted),
    "symmetric": (_is_symmetric, _symmetric),
    "distribution": (_is_distribution, _distribution),
    "log_distribution": (_is_log_distribution, _log_distribution),
    "unit": (_is_unit, _unit),
}
"""By name: whether a tensor has it, and a function that restores it; later functions preserve earlier structures."""
