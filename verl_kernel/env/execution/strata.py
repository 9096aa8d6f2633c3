# SPDX-License-Identifier: Apache-2.0
"""Which programs of a grid are run in place of all, and how many each of them stands for.

The first and the last index of each axis are kept apart from those between, since they are where masks cut: a launch
whose grid follows its tensors is then counted exactly. Those between are drawn in equal strata.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

Grid = tuple[int, int, int]
WHOLE = 64
"""Grids up to this many programs are run whole."""


@dataclass(frozen=True)
class Stratum:
    """Programs of which one is run for all."""

    part: tuple[tuple[int, int], ...]
    """First index and length along each axis."""
    first: int
    """Number of its first program within the part."""
    size: int

    def draw(self, random: np.random.Generator, grid: Grid) -> int:
        """The number of one of its programs in the grid, whose first axis is the fastest."""
        number = self.first + int(random.integers(self.size))
        place = []
        for start, length in self.part:
            number, index = divmod(number, length)
            place.append(start + index)
        x, y, z = place
        return x + grid[0] * (y + grid[1] * z)


def strata(grid: Grid, between: int, edges: int = 1) -> list[Stratum]:
    """The strata of a grid.

    Args:
        grid: programs along each axis.
        between: strata of the part where no axis is at an end.
        edges: of each other part.
    """
    found: list[Stratum] = []
    for part in product(*map(_segments, grid)):
        count = prod(length for _, length in part)
        is_between = all(length > 1 or size <= 2 for (_, length), size in zip(part, grid, strict=True))
        drawn = min(count, between if is_between else edges)
        for number in range(drawn):
            start, end = count * number // drawn, count * (number + 1) // drawn
            found.append(Stratum(part, start, end - start))
    return found


def _segments(size: int) -> list[tuple[int, int]]:
    """First indices and lengths of the parts of an axis."""
    return [(index, 1) for index in range(size)] if size <= 2 else [(0, 1), (1, size - 2), (size - 1, 1)]
