# SPDX-License-Identifier: Apache-2.0
"""Structures that an input has in every draw; a varied input must keep them, as a program may rely on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import normalize

_FEWEST = 3
"""Fewest elements of a row whose sum is no accident."""
_IN_ORDER = 6
"""Fewest elements of a row whose order is no accident: six random numbers are sorted once in 720."""
_NO_ACCIDENT = 20
"""Number of chances, each about one in two, after which what never failed is no accident."""
_REPEATS = 10
"""Expected number of repeated integers from which none at all is no accident: its chance is e^-10."""
_SUMS = 12
"""Number of rows, in all draws, whose equal sums are no accident."""
_SUM_TOLERANCE = 1e-3
"""How far the sum of a row may be from 1 by rounding; half precision needs a few times more."""


def structures_of(tensors: Sequence[torch.Tensor], sizes: Sequence[set[int]] = ()) -> tuple[str, ...]:
    """Return the structures that one input has in every draw, in the order in which they are restored.

    Args:
        tensors: this input in each draw.
        sizes: the sizes of all inputs in each draw.
    """
    if not all(tensor.numel() and not tensor.is_complex() for tensor in tensors):
        return ()
    if all(bool((tensor == tensor.reshape(-1)[0]).all()) for tensor in tensors):
        return ()  # one number everywhere has many structures by accident
    names = [
        name
        for name, (holds, _) in _STRUCTURES.items()
        if all(map(holds, tensors))
        and (_is_no_accident(name, tensors) or (name == "equal_sums" and _are_sizes(tensors, sizes)))
    ]
    return tuple(names[:1] if names[:1] == ["one_hot"] else names)  # it implies the others, or they are accidents


def restored(structures: Sequence[str], original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Give the changed tensor the structures of the drawn one."""
    for name in structures:
        changed = _STRUCTURES[name][1](original, changed)
    return changed


def holds(structures: Sequence[str], original: torch.Tensor, changed: torch.Tensor) -> bool:
    """Whether a changed tensor has these structures of the drawn one; a row without numbers counts as drawn."""
    return all(_STRUCTURES[name][0](changed) for name in structures) and (
        "equal_sums" not in structures or bool((changed.sum(-1) == original.sum(-1)).all())
    )


def _is_no_accident(name: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a structure that all draws have is no accident."""
    return name not in _EVIDENCE or (_changes(tensors) and _EVIDENCE[name](tensors))


def _changes(tensors: Sequence[torch.Tensor]) -> bool:
    return any(tensor.shape != tensors[0].shape or not torch.equal(tensor, tensors[0]) for tensor in tensors[1:])


def _is_one_hot(tensor: torch.Tensor) -> bool:
    is_binary = bool(((tensor == 0) | (tensor == 1)).all())
    return tensor.dim() > 1 and tensor.shape[-1] >= _FEWEST and is_binary and bool((tensor.sum(-1) == 1).all())


def _one_hot(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Move the 1 of each changed row to another place, which all of its changed elements decide."""
    is_changed, size = original != changed, original.shape[-1]
    # A sum over the changed places, so that rows that changed differently get their 1 at different places.
    moved = (is_changed * torch.arange(size, device=original.device)).sum(-1, keepdim=True) % (size - 1) + 1
    shift = moved * is_changed.any(-1, keepdim=True)
    positions = (original.byte().argmax(-1, keepdim=True) + shift) % size
    return torch.zeros_like(original).scatter(-1, positions, 1)


def _is_sorted(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dim() == 0 or tensor.shape[-1] < _IN_ORDER:
        return False
    return bool((tensor[..., 1:] >= tensor[..., :-1]).all()) and bool((tensor[..., -1:] > tensor[..., :1]).any())


def _sorted(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return changed.sort(-1).values


def _is_near(sums: torch.Tensor, dtype: torch.dtype) -> bool:
    return bool(((sums - 1).abs() <= max(_SUM_TOLERANCE, 8 * torch.finfo(dtype).eps)).all())


def _has_rows(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 0 and tensor.shape[-1] >= _FEWEST


def _is_distribution(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) and bool((tensor >= 0).all()) and _is_near(tensor.double().sum(-1), tensor.dtype)


def _distribution(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    # A row of zeros, or one that overflows, cannot be normalised: it stays as drawn.
    sizes = changed.abs().to(torch.promote_types(changed.dtype, torch.float32))
    sums = sizes.sum(-1, keepdim=True, dtype=torch.float64).to(sizes.dtype)
    return torch.where((sums > 0) & sums.isfinite(), (sizes / sums).to(original.dtype), original)


def _is_log_distribution(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) and bool((tensor <= 0).all()) and _is_near(tensor.double().exp().sum(-1), tensor.dtype)


def _log_distribution(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return changed.double().log_softmax(-1).to(original.dtype)


def _is_unit(tensor: torch.Tensor) -> bool:
    return _has_rows(tensor) and _is_near(tensor.double().square().sum(-1), tensor.dtype)


def _unit(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    rows = normalize(changed.double(), dim=-1)
    return torch.where(rows.isfinite().all(-1, keepdim=True) & rows.any(-1, keepdim=True), rows, original.double()).to(
        original.dtype
    )


# Integers and masks.


def _has_integers(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.dim() > 0 and tensor.shape[-1] > 1


def _is_binary(tensor: torch.Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == 1)).all())


def _is_mask(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 0 and tensor.shape[-1] > 1 and _is_binary(tensor)


def _is_any_mask(tensor: torch.Tensor) -> bool:
    """Whether rows hold zeros and one other number, as the masks that are added to scores do."""
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return False
    nonzero = tensor[tensor != 0]
    return bool((nonzero == nonzero[:1]).all())


def _ascends(tensor: torch.Tensor) -> bool:
    return _has_integers(tensor) and bool((tensor[..., 1:] >= tensor[..., :-1]).all())


def _descends(tensor: torch.Tensor) -> bool:
    return _has_integers(tensor) and bool((tensor[..., 1:] <= tensor[..., :-1]).all())


def _steps(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether so many neighbours differ that their order is no accident: each has one chance in two."""
    return sum(int((tensor[..., 1:] != tensor[..., :-1]).sum()) for tensor in tensors) >= _NO_ACCIDENT


def _ascending(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Sort integers between the first and the last one, which delimit what they are offsets into."""
    ordered = changed.sort(-1).values
    if _is_binary(original):
        return ordered
    ordered = ordered.maximum(original[..., :1]).minimum(original[..., -1:])
    return torch.cat([original[..., :1], ordered[..., 1:-1], original[..., -1:]], -1)


def _descending(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return _ascending(original.flip(-1), changed.flip(-1)).flip(-1)


def _never_repeats(tensor: torch.Tensor) -> bool:
    if not _has_integers(tensor) or tensor.dtype == torch.bool:
        return False
    ordered = tensor.sort(-1).values
    return bool((ordered[..., 1:] != ordered[..., :-1]).all())


def would_repeat(tensors: Sequence[torch.Tensor], padding: int | None = None) -> bool:
    """Whether numbers drawn from their range would repeat somewhere in a row, padding aside."""
    is_number = [
        torch.ones_like(tensor, dtype=torch.bool) if padding is None else tensor != padding for tensor in tensors
    ]
    numbers = torch.cat([tensor[kept] for tensor, kept in zip(tensors, is_number, strict=True)])
    if not numbers.numel():
        return False
    # The birthday problem: expected pairs of equal numbers are n(n-1)/2 over the size of the range.
    span = int(numbers.max()) - int(numbers.min()) + 1
    counts = torch.cat([kept.sum(-1).reshape(-1) for kept in is_number]).double()
    return float((counts * (counts - 1)).sum()) / 2 / span >= _REPEATS


def _without_repeats(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    ordered = changed.sort(-1).values
    repeats = (ordered[..., 1:] == ordered[..., :-1]).any(-1, keepdim=True)
    return torch.where(repeats, original, changed)


def _has_equal_sums(tensor: torch.Tensor) -> bool:
    sums = tensor.sum(-1) if _has_integers(tensor) or _is_mask(tensor) else torch.arange(2)
    return bool((sums == sums.reshape(-1)[0]).all())


def _are_equal_sums(tensors: Sequence[torch.Tensor]) -> bool:
    sums = torch.cat([tensor.sum(-1).reshape(-1) for tensor in tensors])
    return len(sums) >= _SUMS and bool((sums == sums[0]).all())


def _are_sizes(tensors: Sequence[torch.Tensor], sizes: Sequence[set[int]]) -> bool:
    """Whether each sum is a size, as lengths of sequences add up to the number of tokens; also where none changes."""
    sums = [int(tensor.sum(-1).reshape(-1)[0]) for tensor in tensors]
    return bool(sizes) and all(total >= _SUMS and total in own for total, own in zip(sums, sizes, strict=True))


def _equal_sums(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """Add to the first elements, or take from them, what the sum of a row lacks, within the range of the row."""
    is_mask = original.dtype == torch.bool
    wide = changed.long() if is_mask else changed
    low, high = original.amin(-1, keepdim=True).to(wide.dtype), original.amax(-1, keepdim=True).to(wide.dtype)
    missing = original.sum(-1, keepdim=True) - wide.sum(-1, keepdim=True)
    room = torch.where(missing > 0, high - wide, wide - low).clamp(min=0)
    # Each element takes what those before it had no room for.
    room_before = room.cumsum(-1) - room
    moved = (missing.abs() - room_before).clamp(min=0).minimum(room) * missing.sign()
    return (wide + moved).to(original.dtype)


def _has_some(tensor: torch.Tensor) -> bool:
    return _is_any_mask(tensor) and bool(tensor.any(-1).all())


def _lacks_some(tensor: torch.Tensor) -> bool:
    return _is_any_mask(tensor) and bool((tensor == 0).any(-1).all())


def _would_be_empty(tensors: Sequence[torch.Tensor]) -> bool:
    return _rows_of([tensor == 0 for tensor in tensors]) >= _NO_ACCIDENT


def _would_be_full(tensors: Sequence[torch.Tensor]) -> bool:
    return _rows_of([tensor != 0 for tensor in tensors]) >= _NO_ACCIDENT


def _rows_of(tensors: Sequence[torch.Tensor]) -> float:
    """Return how many rows of nothing but set bits chance would make, of bits that are drawn one by one."""
    share = sum(int(tensor.sum()) for tensor in tensors) / sum(tensor.numel() for tensor in tensors)
    return sum(tensor.numel() / tensor.shape[-1] * share ** tensor.shape[-1] for tensor in tensors)


def _with_some(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return torch.where(changed.any(-1, keepdim=True), changed, original)


def _with_gaps(original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    return torch.where((changed == 0).any(-1, keepdim=True), changed, original)


_STRUCTURES: dict[str, tuple[Callable[[torch.Tensor], bool], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "one_hot": (_is_one_hot, _one_hot),
    "sorted": (_is_sorted, _sorted),
    "distribution": (_is_distribution, _distribution),
    "log_distribution": (_is_log_distribution, _log_distribution),
    "unit": (_is_unit, _unit),
    "ascending": (_ascends, _ascending),
    "descending": (_descends, _descending),
    "distinct": (_never_repeats, _without_repeats),
    "equal_sums": (_has_equal_sums, _equal_sums),
    "some": (_has_some, _with_some),
    "not_all": (_lacks_some, _with_gaps),
}
"""By name: whether a tensor has it, and a function that restores it; later functions preserve earlier structures."""

_EVIDENCE: dict[str, Callable[[Sequence[torch.Tensor]], bool]] = {
    "ascending": _steps,
    "descending": _steps,
    "distinct": would_repeat,
    "equal_sums": _are_equal_sums,
    "some": _would_be_empty,
    "not_all": _would_be_full,
}
"""Structures of integers and masks that are the same in every draw say nothing; others need this besides."""
