# SPDX-License-Identifier: Apache-2.0
"""Computes, for each element, how far from the expected output a program may be because its products use TF32.

The reference is run again with the factors of its products rounded (`tf32`). Rounding towards zero gives a bias: the
allowance of an element reaches from the expected value to the biased one. Rounding at random gives a spread, at least
that of any rounding of single numbers (twice that of rounding to nearest): the allowance extends beyond both ends by
`_FACTOR` standard deviations, estimated from the element's own changes and those of its neighbours. The total is
bounded by a part of the element and the scale around it, so that noise never excuses a missing term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from verl_kernel.env.comparison.scale import FEWEST, Scale

RUNS = 12
"""Random roundings: with this number, about one in a million normal errors exceeds `_FACTOR` estimated deviations."""
_FACTOR = 8.0
_LARGEST_PART = 0.1
"""Bound of the allowance, as a part of the element and its scale; products of 4096 terms need a fifteenth of it."""
_FEWEST_ROWS = 4
"""With fewer rows the mean of a column is no better estimate than its elements."""
_PIECE = 1 << 20
"""Elements of a tensor held in float64 at a time."""
_FARTHEST = 1e9
"""Largest change in units of an output's rms: its square still fits into float32."""


@dataclass(frozen=True)
class Room:
    """Allowance: how far a correct program may be below and above each expected element (complex: each part of it)."""

    below: torch.Tensor
    above: torch.Tensor

    def on(self, device: torch.device | str) -> Room:
        """Return the same allowance on a device."""
        return Room(self.below.to(device), self.above.to(device))


Run = Callable[[int | None], Sequence[torch.Tensor] | None]


def limits(expected: Sequence[torch.Tensor], smallest_scale: float | None) -> list[Room | None]:
    """Return the upper bound of each output's allowance for TF32; None for an output that is not floating.

    Args:
        expected: the reference's outputs.
        smallest_scale: that of a row or column (`Scale.of`).
    """
    return [None if _is_exact(tensor) else _limit(real(tensor), smallest_scale) for tensor in expected]


def rooms(expected: Sequence[torch.Tensor], run: Run, smallest_scale: float | None) -> list[Room | None] | None:
    """Return the allowance of each output; None if products are not rounded or the program fails on rounded factors.

    Args:
        expected: the reference's outputs.
        run: returns the outputs with rounded factors (argument None: towards zero, else the seed of the directions), or
            None where nothing was rounded or the program fails.
        smallest_scale: that of a row or column (`Scale.of`).
    """
    biased = run(None)
    if biased is None or not _same_shapes(expected, biased):
        return None
    changes_of_outputs = [None if _is_exact(tensor) else _Changes(real(tensor), smallest_scale) for tensor in expected]
    for seed in range(RUNS):
        outputs = run(seed)
        if outputs is None or not _same_shapes(expected, outputs):
            return None
        for changes, tensor in zip(changes_of_outputs, outputs, strict=True):
            if changes is not None:
                changes.add(real(tensor))
    pairs = zip(changes_of_outputs, biased, strict=True)
    return [None if changes is None else changes.room(real(tensor)) for changes, tensor in pairs]


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or the real and imaginary parts of a complex one."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class _Changes:
    """Changes of the elements of one output, in units of its rms."""

    def __init__(self, expected: torch.Tensor, smallest_scale: float | None) -> None:
        self._expected, self._smallest_scale = expected, smallest_scale
        self._unit = Scale.of(expected, _PIECE, False).rms or 1.0
        self._squares = torch.zeros(expected.shape, dtype=torch.float32, device=expected.device)

    def add(self, moved: torch.Tensor) -> None:
        self._squares += self._deviation(moved).square_()

    def room(self, biased: torch.Tensor) -> Room:
        bound, bias = _limit(self._expected, self._smallest_scale).above, self._deviation(biased)
        own = self._squares / RUNS
        # Of twelve runs an element's own variance is a rough estimate: its neighbours' may be larger.
        beyond = torch.maximum(own, smoothed(own)).sqrt_().mul_(_FACTOR)
        below, above = (beyond + (sign * bias).clamp_(min=0.0) for sign in (-1.0, 1.0))
        # bounded, so that noise never excuses a missing term
        return Room(torch.minimum(below * self._unit, bound), torch.minimum(above * self._unit, bound))

    def _deviation(self, moved: torch.Tensor) -> torch.Tensor:
        dtype = torch.promote_types(moved.dtype, torch.float32)
        deviation = (moved.to(dtype) - self._expected.to(dtype)) / self._unit
        return deviation.float().nan_to_num_(0.0, 0.0, 0.0).clamp_(-_FARTHEST, _FARTHEST)


def smoothed(squares: torch.Tensor) -> torch.Tensor:
    """Estimate each element's square from its tile: mean of its row times mean of its column over mean of the tile.

    The estimate is exact where each square is a factor of its row times a factor of its column. Tiles have 16 to 31
    rows and columns; rows are those of `scale`.
    """
    width = 1
    for length in reversed(squares.shape):
        width *= length if width < FEWEST else 1
    if not squares.numel():
        return squares
    table = squares.reshape(-1, width)
    step = max(_PIECE // width // FEWEST, 1) * FEWEST
    starts = range(0, max(len(table) - FEWEST, 0) + 1, step)
    pieces = [table[start:end] for start, end in zip(starts, [*starts[1:], len(table)], strict=True)]
    return torch.cat([_smoothed(piece) for piece in pieces]).view(squares.shape)


def _smoothed(table: torch.Tensor) -> torch.Tensor:
    rows, columns = (_tiles(length, table.device) for length in table.shape)
    by_row = _means(table, columns, 1)
    if table.shape[0] < _FEWEST_ROWS:
        return by_row[:, columns]
    by_column, by_both = _means(table, rows, 0), _means(by_row, rows, 0)
    # A row of zeros in all columns: no division by zero.
    shares = by_row / by_both[rows].clamp_(min=torch.finfo(torch.float32).tiny)
    return shares[:, columns] * by_column[rows]


def _tiles(length: int, device: torch.device) -> torch.Tensor:
    """Return the tile number of each of `length` places; the last tile includes the remainder."""
    tiles = torch.arange(length, device=device) // FEWEST
    return tiles.clamp_(max=max(length // FEWEST - 1, 0))


def _means(table: torch.Tensor, tiles: torch.Tensor, dim: int) -> torch.Tensor:
    counts = tiles.bincount()
    shape = list(table.shape)
    shape[dim] = counts.numel()
    sums = torch.zeros(shape, dtype=table.dtype, device=table.device).index_add_(dim, tiles, table)
    return sums / (counts if dim else counts[:, None])


def _limit(expected: torch.Tensor, smallest_scale: float | None) -> Room:
    scale = Scale.of(expected, _PIECE, True, smallest_scale)
    flat = expected.detach().reshape(-1)
    bound = torch.empty(flat.shape, dtype=torch.float32, device=flat.device)
    for start in range(0, flat.numel(), scale.step):
        part = slice(start, start + scale.step)
        bound[part] = _LARGEST_PART * (scale.around(flat[part]) + flat[part].abs())
    bound = bound.view(expected.shape)
    return Room(bound, bound)


def _is_exact(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _same_shapes(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return [tensor.shape for tensor in first] == [tensor.shape for tensor in second]


# Allowance of each element where a last digit decides its value.
#
# Where a reference rounds to few bits, compares or selects, two correct programs differ in the elements that lie next
# to a step. The reference is run again on inputs whose last digits differ: an element may have any value in the range
# that it takes in these runs.


STEP_RUNS = 12
"""Runs: of the elements that fall on either of two sides half of the time, one in 2000 shows one side only."""


def step_rooms(
    expected: Sequence[torch.Tensor], outputs: Iterable[Sequence[torch.Tensor] | None]
) -> list[Room | None] | None:
    """Return the allowance of each output; None where the reference fails on such inputs or its output shapes change.

    Args:
        expected: the reference's outputs.
        outputs: its outputs on inputs with other last digits; None where it fails on them.
    """
    whole = [real(tensor).double() for tensor in expected]
    below, above = ([torch.zeros_like(tensor) for tensor in whole] for _ in range(2))
    for run in outputs:
        if run is None or [tensor.shape for tensor in run] != [tensor.shape for tensor in expected]:
            return None
        for number, tensor in enumerate(run):
            deviation = (real(tensor).double() - whole[number]).nan_to_num_(0.0, 0.0, 0.0)
            torch.maximum(above[number], deviation, out=above[number])
            torch.maximum(below[number], deviation.neg_(), out=below[number])
    return [Room(*pair) for pair in zip(below, above, strict=True)]
