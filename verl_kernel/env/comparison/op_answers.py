# SPDX-License-Identifier: Apache-2.0
"""Finds whether results of torch's ops, of which samples are known, already hold an expected output.

A result may hold the output's elements in another order of dimensions. It may hold a part of them, or them among
others, as long as they follow one another in memory: then several results may hold the output together. A result that
agrees only where the output is an input, as a copy does in which kernels change a few elements, holds no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import torch

from verl_kernel.env.eight_bits import EIGHT, widened
from verl_kernel.env.ipc.op_samples import OpSample, places

_CLOSE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""How far elements may differ, relative to them and to a hundredth of the rms of all: a few roundings, and far less
than what a comparison of outputs lets pass, since an answer that still needs a kernel is none."""
_FLOOR = 0.01
_DISTINCT = 8
"""So many of the compared values must differ: a few values may agree by chance."""
_MOST_DIMENSIONS = 4
"""Outputs of more dimensions are compared in the order of their own only."""
_LEAST_PART = 64
"""A result that holds less than one part in this many of an output is not looked at."""
_ENOUGH = 0.9
"""Share of an output from which on results hold it."""
_MOST_SEARCHED = 1 << 26
"""Elements of an output that are looked at for all parts together: a fifth of a second."""
_MOST_SEEDS = 256
"""Seeds that are tried: 64 places of each show nearly every output that differs from an input in one part in 4,000."""
_MOST_SHIFTS = 64
"""Places at which a part may lie by some of its elements; of more, the first are tried."""


def hold(
    samples: Sequence[OpSample], expected: Sequence[torch.Tensor], seed: int, given: Sequence[torch.Tensor] = ()
) -> bool:
    """Tell whether results of ops hold all expected outputs.

    Args:
        samples: of the results.
        expected: the outputs; False where one says too little, as one that holds one number everywhere.
        seed: drew the samples' places.
        given: the inputs.
    """
    return bool(expected) and all(answer.is_held(samples, seed) for answer in _answers(expected, given))


def telling_seed(seed: int, expected: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> int:
    """Return the first seed from this one on whose places show each output where it is no input, if some soon does."""
    answers = _answers([tensor for tensor in expected if tensor.numel()], given)
    seeds = range(seed, seed + _MOST_SEEDS)
    return next((each for each in seeds if all(answer.is_shown_by(each) for answer in answers)), seed)


def _answers(expected: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[_Answer]:
    """Return the outputs that are made, those that are no input; all of them where none is made."""
    made = [answer for answer in (_Answer(tensor, given) for tensor in expected) if answer.has_made]
    return made or [_Answer(tensor, ()) for tensor in expected]


class _Answer:
    """One expected output, in the order of its indices."""

    def __init__(self, tensor: torch.Tensor, given: Sequence[torch.Tensor]) -> None:
        self._shape = [length for length in tensor.shape if length > 1]
        flat = tensor.detach().reshape(-1) if not tensor.is_complex() else tensor.new_empty(0)
        self._is_float = tensor.is_floating_point()
        close = _CLOSE.get(tensor.dtype, 0.0) if tensor.dtype not in EIGHT else 0.0
        self._flat, self._close = (widened(flat) if self._is_float else flat.double()), close
        finite = torch.nan_to_num(self._flat.double(), 0.0, 0.0, 0.0)
        self._floor = close * _FLOOR * float(finite.norm()) / max(1, len(finite)) ** 0.5
        self._given = [each.reshape(-1) for each in given if each.numel() == len(flat) and not each.is_complex()]

    @property
    def has_made(self) -> bool:
        """Whether the output differs from every input somewhere."""
        # Nearly every output shows it at a few places.
        return self.is_shown_by(0) or self._is_made(torch.arange(len(self._flat)), self._flat.double().cpu())

    def is_shown_by(self, seed: int) -> bool:
        """Whether some places of this seed hold what no input holds there."""
        return self._is_made_at(torch.tensor(places(seed, len(self._flat)), dtype=torch.int64))

    def is_held(self, samples: Sequence[OpSample], seed: int) -> bool:
        size = len(self._flat)
        if not size:
            return False
        if any(sample.size == size and self._is_whole(sample, seed) for sample in samples):
            return True
        return self._held_in_parts(samples, seed) >= _ENOUGH * size

    def _is_whole(self, sample: OpSample, seed: int) -> bool:
        at, values = torch.tensor(places(seed, sample.size)), torch.tensor(sample.values, dtype=torch.float64)
        return any(self._agree(index, values) and self._is_made_at(index) for index in self._orders(at))

    def _orders(self, at: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield where elements of a result lie in the output, for each order of the result's dimensions."""
        count = len(self._shape)
        strides = [1] * count
        for number in range(count - 2, -1, -1):
            strides[number] = strides[number + 1] * self._shape[number + 1]
        for order in permutations(range(count)) if count <= _MOST_DIMENSIONS else [tuple(range(count))]:
            rest, index = at, torch.zeros_like(at)
            for number in reversed(order):
                index, rest = index + rest % self._shape[number] * strides[number], rest // self._shape[number]
            yield index

    def _agree(self, index: torch.Tensor, values: torch.Tensor) -> bool:
        own = self._flat[index.to(self._flat.device)].double().cpu()
        return bool(self._near(own, values).all()) and self._says_enough(own)

    def _is_made_at(self, index: torch.Tensor) -> bool:
        return self._is_made(index, self._flat[index.to(self._flat.device)].double().cpu())

    def _is_made(self, index: torch.Tensor, own: torch.Tensor) -> bool:
        """Whether some of these elements of the output are those of no input at their places."""
        is_made = torch.ones_like(own, dtype=torch.bool)
        for flat in self._given:
            is_made &= ~self._near(own, widened(flat[index.to(flat.device)]).double().cpu())
        return bool(is_made.any())

    def _near(self, own: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.isclose(values, own, rtol=self._close, atol=self._floor, equal_nan=True)

    def _says_enough(self, own: torch.Tensor) -> bool:
        own = own[torch.isfinite(own)]
        # Rounded: values that differ less than results may are one value.
        step = max(self._floor, self._close * float(own.abs().max()) if len(own) else 0.0, 1e-300)
        if len(torch.unique(torch.round(own / step))) < min(_DISTINCT, len(self._flat)):
            return False
        return len(self._flat) >= _DISTINCT or (self._is_float and bool((own != own.round()).any()))

    def _held_in_parts(self, samples: Sequence[OpSample], seed: int) -> int:
        """Return how many elements of the output are held by results of other sizes."""
        size, parts, seen = len(self._flat), list[tuple[int, int]](), list[torch.Tensor]()
        fitting = [each for each in samples if max(size // _LEAST_PART, _DISTINCT) <= each.size <= _LEAST_PART * size]
        for sample in sorted(fitting, key=lambda sample: -sample.size)[: _MOST_SEARCHED // (3 * size)]:
            if (shift := self._shift(sample, seed)) is not None:
                parts.append((max(0, shift), min(size, sample.size + shift)))
                seen.append(torch.tensor(places(seed, sample.size)) + shift)
        # Of all parts together: each of a few may show places only where the output is an input.
        if not seen or not self._is_made_at((index := torch.cat(seen))[(index >= 0) & (index < size)]):
            return 0
        held = reached = 0
        for start, end in sorted(parts):
            held, reached = held + max(0, end - max(start, reached)), max(reached, end)
        return held

    def _shift(self, sample: OpSample, seed: int) -> int | None:
        """Return where a result's first element lies in the output, or None."""
        at, values = torch.tensor(places(seed, sample.size)), torch.tensor(sample.values, dtype=torch.float64)
        flat, count = self._flat.cpu(), len(at)
        # Not at one place only: the output may lie anywhere in a larger result.
        for first in (count // 4, count // 2, 3 * count // 4):
            margin = self._close * abs(float(values[first])) + self._floor
            is_near = (flat >= values[first] - margin) & (flat <= values[first] + margin)
            shifts = torch.nonzero(is_near).reshape(-1) - at[first]
            # The smallest results have no second one after the last place.
            for number in (first - 1, first + 1, first - 2, min(first + 2, count - 1)):
                shifts = shifts[self._fit(at[number], values[number], shifts)]
            for shift in shifts[:_MOST_SHIFTS].tolist():
                inside = (at + shift >= 0) & (at + shift < len(flat))
                if int(inside.sum()) >= _DISTINCT and self._agree(at[inside] + shift, values[inside]):
                    return int(shift)
        return None

    def _fit(self, at: torch.Tensor, value: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
        """Return which shifts bring a result's element to an equal one, or out of the output."""
        index = at + shifts
        is_outside = (index < 0) | (index >= len(self._flat))
        own = self._flat.cpu()[index.clamp(0, len(self._flat) - 1)].double()
        return is_outside | self._near(own, value)
