# SPDX-License-Identifier: Apache-2.0
"""Measures how large the numbers around an element of a tensor are.

An element's scale is the smaller of two root mean squares: that of its row, or of its block of 64 where rows divide
into such blocks, and that of its column. Rows run along the last dimension, or along as many of the last dimensions as
it takes to have 16 elements; a tensor with fewer has one scale. No scale exceeds the rms of the whole tensor or falls
below a part of it: a sum that cancels to almost nothing keeps the noise of its terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, sqrt

import torch

BLOCK = 64
"""Elements of a block of a row."""
FEWEST = 16
"""Fewest elements of a row: of fewer the root mean square says little about each."""
WIDEST = 4096
"""Widest row that need not divide into blocks, and widest one whose columns have scales."""
NOISE = {torch.float64: 1e-2, torch.float32: 0.5, torch.float16: 0.25, torch.bfloat16: 1.0}
"""Smallest scale as a part of the tensor's rms, by dtype, where the noise of the tensor is unknown."""
SHARP = {torch.float64: (1e-6, 1e-4), torch.float32: (1e-3, 1e-2, 0.1), torch.float16: (0.1,)}
"""Smaller values to use where the noise is low enough; the first is a few units in the last place of the rms."""


@dataclass(frozen=True)
class Scale:
    """Scales of one tensor, computed in pieces of `step` elements in the order of `reshape(-1)`."""

    rms: float
    """Root mean square of all finite elements, 0 where there are none."""
    step: int
    smallest: float
    unit: float
    """Unit in which numbers are measured, so that squares cannot overflow."""
    block: int
    """Number of elements that share a scale; 0 if all elements of the tensor do."""
    columns: torch.Tensor | None
    """Root mean squares of columns, None where columns have no scale."""

    @classmethod
    def of(cls, tensor: torch.Tensor, largest_piece: int, is_local: bool, smallest_scale: float | None = None) -> Scale:
        """Measure a tensor.

        Args:
            tensor: of any shape and type.
            largest_piece: elements held in float64 at a time, or one row.
            is_local: whether `around` will be called.
            smallest_scale: that of a row or column, as a part of the tensor's rms; None takes `NOISE` of the dtype.
        """
        block, width = _layout(tensor.shape) if is_local and tensor.is_floating_point() else (0, 0)
        unit = _largest(tensor, largest_piece) if tensor.dtype is torch.float64 else 1.0
        # Pieces of whole rows, or blocks, so that no scale is measured in two parts.
        grain = width or block or 1
        step = max(largest_piece // grain, 1) * grain
        total, count, sums, counts = 0.0, 0, torch.zeros(()), torch.zeros(())
        for part in _pieces(tensor, step):
            squares, finite, part_total = _squares(part, unit)
            total, count = total + part_total, count + (part.numel() if finite is None else int(finite.sum()))
            if width:
                sums, counts = sums + squares.view(-1, width).sum(0), counts + _numbers(finite, part, width, 0)
        rms = unit * sqrt(total / count) if count else 0.0
        columns = _root(sums, counts, unit) if width else None
        smallest_scale = NOISE.get(tensor.dtype, 1.0) if smallest_scale is None else smallest_scale
        return cls(rms, step, smallest_scale * rms, unit, block, columns)

    def around(self, piece: torch.Tensor) -> torch.Tensor | float:
        """Return the scale of each element of a piece, or one number for all of them."""
        if not self.block:
            return self.rms
        squares, finite, _ = _squares(piece, self.unit)
        sums, counts = squares.view(-1, self.block).sum(1), _numbers(finite, piece, self.block, 1)
        # Never above the rms of all: a huge element would excuse errors of its neighbours.
        blocks = _root(sums, counts, self.unit).clamp_(self.smallest, self.rms).unsqueeze_(1)
        if self.columns is None:
            return blocks.expand(-1, self.block).reshape(-1)
        columns = self.columns.clamp(min=self.smallest).view(-1, self.block)
        return torch.minimum(blocks.view(-1, columns.shape[0], 1), columns).view(-1)


def _layout(shape: torch.Size) -> tuple[int, int]:
    """Return the sizes of a block, and of a row if columns have scales; 0 where there is no such scale."""
    size, width = shape.numel(), 1
    for length in reversed(shape):
        if width < FEWEST:
            width *= length
    if size == 0 or width < FEWEST or not (width <= WIDEST or width % BLOCK == 0):
        return 0, 0
    block = BLOCK if width > BLOCK and width % BLOCK == 0 else width
    has_columns = width <= WIDEST and size // width >= FEWEST
    return (0 if block == size else block), (width if has_columns else 0)


def _squares(part: torch.Tensor, unit: float) -> tuple[torch.Tensor, torch.Tensor | None, float]:
    """Return squares of the finite elements (0 elsewhere), a mask of these elements (None: all), and the sum."""
    values = part.double()
    squares = values.square() if unit == 1.0 else (values / unit).square_()
    total = squares.sum().item()
    if isfinite(total):  # no mask to make and to sum, which most tensors do not need
        return squares, None, total
    finite = part.isfinite()
    squares = torch.where(finite, squares, 0.0)
    return squares, finite, squares.sum().item()


def _numbers(finite: torch.Tensor | None, part: torch.Tensor, width: int, dim: int) -> torch.Tensor | int:
    """Count the elements that went into each sum over rows (dim 1) or columns (dim 0) of `width`."""
    if finite is None:
        return width if dim else part.numel() // width
    return finite.view(-1, width).sum(dim)


def _root(sums: torch.Tensor, counts: torch.Tensor | int, unit: float) -> torch.Tensor:
    counts = counts.clamp(min=1) if isinstance(counts, torch.Tensor) else counts
    return (sums / counts).sqrt_().mul_(unit)


def _largest(tensor: torch.Tensor, step: int) -> float:
    """Return the largest finite magnitude, 1 where there is none."""
    magnitudes = (torch.where(part.isfinite(), part, 0.0).abs().max().item() for part in _pieces(tensor, step))
    return max(magnitudes, default=0.0) or 1.0


def _pieces(tensor: torch.Tensor, step: int) -> Iterator[torch.Tensor]:
    flat = tensor.detach().reshape(-1)
    return (flat[start : start + step] for start in range(0, flat.numel(), step))
