# SPDX-License-Identifier: Apache-2.0
"""What a launch asks for: the sizes of its grid, and tensors whose memory it may touch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch

Range = tuple[int, int]
"""First byte and the byte behind the last."""


class Granted:
    """Which memory launches may touch: of the judge's, only the tensors that the program was given."""

    def __init__(self) -> None:
        self._shared: Range = (0, 0)
        self._places: list[Range] = []

    def confine(self, shared: torch.Tensor, given: Iterable[torch.Tensor]) -> None:
        """Of the judge's memory, launches may touch these tensors, each where it was handed over."""
        self._shared, self._places = span(shared), sorted(map(span, given))

    def memory(self, tensor: torch.Tensor) -> Range:
        """What a launch may touch that was given a tensor: its storage; of the judge's memory its place alone."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        if start != self._shared[0]:
            return start, start + storage.nbytes()
        address = tensor.data_ptr()
        return next((place for place in self._places if place[0] <= address < place[1]), (0, 0))


def span(tensor: torch.Tensor) -> Range:
    """The memory between a tensor's first and last element."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


def covered(tensors: Iterable[torch.Tensor], ranges: Iterable[Range]) -> dict[Range, Range]:
    """What tensors cover of the memory that a launch may touch: from the first element of any to the last."""
    found: dict[Range, Range] = {}
    for tensor, (low, high) in zip(tensors, ranges, strict=True):
        start, stop = (min(max(end, low), high) for end in span(tensor))
        first, last = found.get((low, high), (start, stop))
        found[low, high] = min(start, first), max(stop, last)
    return found


def tensors_among(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """Tensors among a launch's arguments, those in tuples, wrappers and descriptors too."""
    return [value for value in _leaves(arguments) if isinstance(value, torch.Tensor)]


def grid_sizes(grid: Any) -> tuple[int, ...]:
    """The three sizes of a grid as a program gives it (raises ValueError, TypeError)."""
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid has one to three sizes, not {len(sizes)}")
    if not all(hasattr(size, "__index__") for size in sizes):
        raise TypeError(f"a grid holds integers, not {', '.join(type(size).__name__ for size in sizes)}")
    return (*(max(0, operator.index(size)) for size in sizes), *(1,) * (3 - len(sizes)))


def _leaves(arguments: Iterable[Any]) -> Iterator[Any]:
    for value in arguments:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        else:
            yield value if isinstance(value, torch.Tensor) else getattr(value, "base", value)
