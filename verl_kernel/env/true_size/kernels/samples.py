# SPDX-License-Identifier: Apache-2.0
"""Which programs of a grid are run in place of all, and how many each of them stands for.

The first and the last index of each axis are kept apart from those between, since they are where masks cut: a launch
whose grid follows its tensors is then counted exactly. Those between are drawn in equal strata.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from random import Random

Index = tuple[int, ...]
WHOLE = 48
"""Grids up to this many programs are run whole."""
FEW, FEWEST, MOST = 4, 14, 128
"""Programs that are drawn from between the edges: while configurations are compared, and in a launch that counts."""


def programs(grid: Index, random: Random, between: int) -> Iterator[tuple[Index, float]]:
    """Programs and their weights, the first program first.

    Args:
        grid: programs along each axis.
        random: draws the places.
        between: how many are drawn where no axis is at an end.
    """
    if prod(grid) <= WHOLE:
        for index in product(*map(range, grid)):
            yield index, 1.0
        return
    for part in product(*map(_segments, grid)):
        count = prod(length for _, length in part)
        is_between = all(length > 1 or size <= 2 for (_, length), size in zip(part, grid, strict=True))
        drawn = min(count, between if is_between else 1 + (between > FEW))
        for number in range(drawn):
            start, end = count * number // drawn, count * (number + 1) // drawn
            yield _index(part, random.randrange(start, end)), float(end - start)


def _segments(size: int) -> list[tuple[int, int]]:
    """First indices and lengths of the parts of an axis."""
    return [(index, 1) for index in range(size)] if size <= 2 else [(0, 1), (1, size - 2), (size - 1, 1)]


def _index(part: tuple[tuple[int, int], ...], number: int) -> Index:
    """The program of this number within a part of the grid, the last axis being the fastest."""
    index = []
    for start, length in reversed(part):
        number, place = divmod(number, length)
        index.append(start + place)
    return tuple(reversed(index))
