# SPDX-License-Identifier: Apache-2.0
"""Finds the role of each input tensor of a task (data, mask, index), as far as several draws show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verl_kernel.env.reference.input_structure import structures_of, would_repeat

_FEWEST = 20
"""Fewest elements, in all draws, of two numbers that are no accident."""
_FREQUENT = 2
"""How many times as frequent as other integers -1 must be if it stands for none."""
_NO_CHANCE = 14.0
"""Natural logarithm of how many equally likely orders there must be for the one that is found to be no accident."""
_HIDING = -1e3
"""Numbers from here on hide a score to which they are added."""
_RARE = 1 / 16
"""A value of a mask is rare if at most this part of the elements has it."""


@dataclass(frozen=True)
class Role:
    """Role of one input tensor, as far as several draws show it.

    Kinds: `drawn` (left unchanged), `scaled` (floating), `fixed` (floating, the same in every draw), `flipped` (a mask
    with a rare value), `mask` (any other mask), `index` (integers that repeat), `distinct` (integers that do not, but
    for padding).
    """

    kind: str
    low: int = 0
    high: int = 0
    """Range of integers, from `low` to `high`."""
    is_sorted: bool = False
    """Whether the integers of each row ascend."""
    gaps: tuple[int, int] = (0, 0)
    """Smallest and largest gap between neighbours of sorted integers."""
    is_sized: bool = False
    """Whether sizes of inputs differ between draws: what is in range then depends on the draw."""
    structures: tuple[str, ...] = ()
    """Structures that the tensor has in every draw (`structure`)."""
    values: tuple[float, float] = (0.0, 1.0)
    """The two numbers of a mask, such as 0 and -inf where it is added: that of an element that is not set first."""
    padding: int | None = None
    """Integer that marks places without one, as -1 among slots: such places stay as drawn."""

    def bounds(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Return the lowest and highest integer that this draw's tensor may hold."""
        if not self.is_sized:
            return self.low, self.high
        kept = tensor if self.padding is None else tensor[tensor != self.padding]
        return (int(kept.min()), int(kept.max())) if kept.numel() else (self.low, self.high)

    @property
    def is_floating(self) -> bool:
        """Whether it holds numbers that may be scaled."""
        return self.kind in ("fixed", "scaled")

    @property
    def is_mask(self) -> bool:
        """Whether it holds two numbers only."""
        return self.kind in ("flipped", "mask")

    @property
    def has_other_values(self) -> bool:
        """Whether these numbers are others than 0 and 1."""
        return self.is_mask and self.values != (0.0, 1.0)

    def bits(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return such a mask as booleans."""
        return tensor != self.values[0]

    def with_padding(self, original: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
        """Return the changed integers with padding where it was drawn, and nowhere else."""
        if self.padding is None:
            return changed
        return torch.where((original == self.padding) | (changed == self.padding), original, changed)

    def from_bits(self, bits: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return booleans as such a mask."""
        unset, is_set = (torch.full_like(like, value) for value in self.values)
        return torch.where(bits, is_set, unset)


def find_roles(draws: Sequence[Sequence[torch.Tensor]]) -> list[Role]:
    """Return each input's role; constant floating zeros and ones are a mask if other data changes, else data."""
    groups = list(zip(*draws, strict=True))
    is_sized = any(len({tensor.shape for tensor in tensors}) > 1 for tensors in groups)
    sizes = [{size for tensor in draw for size in tensor.shape} for draw in draws]
    roles = [replace(_role(tensors), structures=structures_of(tensors, sizes), is_sized=is_sized) for tensors in groups]
    if any(role.kind == "scaled" for role in roles):  # beside data that changes, constant zeros and ones are a mask
        return roles
    return [
        replace(role, kind="fixed") if _may_be_data(role, tensors) else role
        for role, tensors in zip(roles, groups, strict=True)
    ]


def _may_be_data(role: Role, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether floating numbers never change and are not one-hot rows, which are moved to other places instead."""
    return tensors[0].is_floating_point() and unchanged(tensors) and "one_hot" not in role.structures


def _role(tensors: Sequence[torch.Tensor]) -> Role:
    first = tensors[0]
    if not all(tensor.numel() for tensor in tensors) or first.is_complex():
        return Role("drawn")
    if all(bool(((tensor == 0) | (tensor == 1)).all()) for tensor in tensors):
        return _binary(tensors)
    if first.is_floating_point():
        values = _two_values(tensors)
        if values is not None:
            bits = _binary([tensor != values[0] for tensor in tensors])
            return replace(bits, values=values)
        return Role("fixed" if unchanged(tensors) else "scaled")
    # Integers that are all equal may be a size or a dimension: any other one could be out of range.
    low, high = _range(tensors)
    if low == high:
        return Role("drawn")
    padding = padding_of(tensors)
    kept = [tensor if padding is None else tensor[tensor != padding] for tensor in tensors]
    span = _range([numbers for numbers in kept if numbers.numel()])
    role = Role("distinct" if _is_distinct(tensors, padding) else "index", *span, padding=padding)
    if padding is not None or not all(map(_is_sorted, tensors)):
        return role
    gaps = [tensor.diff(dim=-1) for tensor in tensors]
    return replace(
        role, is_sorted=True, gaps=(min(int(gap.min()) for gap in gaps), max(int(gap.max()) for gap in gaps))
    )


def _range(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    return min(int(tensor.min()) for tensor in tensors), max(int(tensor.max()) for tensor in tensors)


def padding_of(tensors: Sequence[torch.Tensor]) -> int | None:
    """Return the integer that stands where there is none: the only negative, at one end of rows, or repeated one."""
    low, high = _range(tensors)
    if low < 0 < high and all(bool(((tensor >= 0) | (tensor == low)).all()) for tensor in tensors):
        integers = torch.cat([tensor.reshape(-1) for tensor in tensors])
        others = integers[integers != low]
        # -1 is one of the numbers, as in weights of -1, 0 and 1, unless it is more frequent than they are.
        usual = _FREQUENT * len(others) / len(torch.unique(others))
        if low < -1 or len(integers) - len(others) > usual:
            return low
    if high - low < 2 or _is_distinct(tensors, None):
        return None
    flipped = [tensor.flip(-1) for tensor in tensors if tensor.dim()]
    is_ordered = any(all(map(_is_sorted, each)) for each in (tensors, flipped))
    for end in (low, high) if not is_ordered else ():
        if _ends_rows(end, tensors) or _ends_rows(end, flipped) or _is_distinct(tensors, end):
            return end
    return None


def _ends_rows(padding: int, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an integer stands only where rows end, and not by chance."""
    orders = 0.0
    for cells in (tensor == padding for tensor in tensors):
        if cells.dim() < 2 or bool((cells[..., 1:] < cells[..., :-1]).any()):
            return False
        # Of the orders of k cells of padding among n, each of n! / (k! (n - k)!) is as likely by chance.
        size, counts = torch.tensor(cells.shape[-1] + 1.0).double(), cells.sum(-1).double()
        orders += float((torch.lgamma(size) - torch.lgamma(counts + 1) - torch.lgamma(size - counts)).sum())
    return orders > _NO_CHANCE


def _is_distinct(tensors: Sequence[torch.Tensor], padding: int | None) -> bool:
    """Whether no integer but for padding repeats in a row or, where others would by chance, in all of them.

    Rows with padding need this evidence too: short ones, as of a few dropped entries, hold no repeat by accident.
    """
    if not all(tensor.dim() for tensor in tensors):
        return False
    rows, wholes = _rows(tensors)
    if tensors[0].shape[-1] > 1 and not any(_repeats(tensor, padding) for tensor in rows):
        return padding is None or would_repeat(rows, padding)
    return not any(_repeats(tensor, padding) for tensor in wholes) and would_repeat(wholes, padding)


def _rows(tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return each tensor as rows, and as one row."""
    return [tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors], [tensor.reshape(1, -1) for tensor in tensors]


def _repeats(rows: torch.Tensor, padding: int | None) -> bool:
    """Whether an integer but for padding occurs twice in a row."""
    count = rows.shape[-1] if padding is None else int((rows != padding).sum(-1).max())
    if count > int(rows.max()) - int(rows.min()) + 1:  # more than there are different ones: sorting takes longer
        return True
    ordered = rows.sort(-1).values
    equal = ordered[:, 1:] == ordered[:, :-1]
    return bool((equal if padding is None else equal & (ordered[:, 1:] != padding)).any())


def _two_values(tensors: Sequence[torch.Tensor]) -> tuple[float, float] | None:
    """Return the two numbers of a mask that is not of zeros and ones, the one nearer to zero first.

    One that is the same in every draw may be data; 0 beside a number that hides a score is a mask.
    """
    if sum(tensor.numel() for tensor in tensors) < _FEWEST or any(bool(tensor.isnan().any()) for tensor in tensors):
        return None
    first = tensors[0].reshape(-1)[0]
    parts = [tensor[tensor != first] for tensor in tensors]
    second = next((part[0] for part in parts if part.numel()), None)
    if second is None or not all(bool((part == second).all()) for part in parts):
        return None
    low, high = sorted((float(first), float(second)), key=abs)
    is_hiding = low == 0 and high <= _HIDING
    return (low, high) if is_hiding or not unchanged(tensors) else None


def _binary(tensors: Sequence[torch.Tensor]) -> Role:
    """Return the role of zeros and ones; all zeros are a mask only if boolean: as an integer, 1 may be out of range."""
    ones = sum(int(tensor.sum()) for tensor in tensors) / sum(tensor.numel() for tensor in tensors)
    is_rare, fixed = min(ones, 1 - ones) <= _RARE, unchanged(tensors)
    if ones == 0 and tensors[0].dtype is not torch.bool:
        return Role("fixed" if tensors[0].is_floating_point() else "drawn")
    return Role("flipped" if is_rare or fixed else "mask")


def unchanged(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether one input is the same in every draw."""
    return all(same_bytes(tensors[0], tensor) for tensor in tensors[1:])


def _is_sorted(tensor: torch.Tensor) -> bool:
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return False
    return bool((tensor[..., 1:] >= tensor[..., :-1]).all())


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of any shapes have the same shape, dtype and bytes, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    # Bytes, as NaN differs from itself and -0.0 equals 0.0.
    return torch.equal(first.contiguous().view(-1).view(torch.uint8), second.contiguous().view(-1).view(torch.uint8))
