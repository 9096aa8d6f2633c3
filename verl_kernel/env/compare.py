# SPDX-License-Identifier: Apache-2.0
"""Whether a candidate's output is the reference's.

Both are compared in float64, element by element: |actual - expected| <= rtol * |expected| + floor. The profile
`scaled` sets floor = atol * rms(expected), so zeros do not pass where the reference is small; `parity` is
`torch.allclose` with rtol = atol = 1e-2, as published. Integers and booleans must be equal. Infinities and NaNs
must be where the reference has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, sqrt

import torch

CHUNK = 1 << 20
"""Elements compared at a time; bounds the memory taken in float64."""

_SCALED = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_PARITY = 1e-2


@dataclass(frozen=True)
class Agreement:
    """Result of a comparison."""

    ok: bool
    max_abs: float | None = None
    """Largest |actual - expected| over the elements finite on both sides; None if it exceeds float64."""
    max_rel: float | None = None
    """Largest |actual - expected| / max(|expected|, rms(expected)), None where that is infinite."""
    first_bad_index: tuple[int, ...] | None = None


def compare(expected: torch.Tensor, actual: torch.Tensor, profile: str = "scaled") -> Agreement:
    """Compare two tensors of any equal shape.

    Args:
        expected: the reference's output.
        actual: the candidate's.
        profile: `scaled` or `parity`.

    Raises:
        ValueError: an unknown profile.
    """
    if profile not in ("scaled", "parity"):
        raise ValueError(f"tolerance profile {profile!r} is unknown: use scaled or parity")
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return Agreement(ok=False)
    if expected.is_complex():
        return compare(torch.view_as_real(expected), torch.view_as_real(actual), profile)
    rms = _rms(expected)
    rtol, floor = _tolerance(expected.dtype, rms, profile)
    max_abs, max_rel, first_bad = 0.0, 0.0, None
    for start, wanted, given in _chunks(expected, actual):
        good, error = _judge(wanted, given, rtol, floor)
        scale = wanted.double().abs().clamp(min=rms)
        max_abs = max(max_abs, error.max().item())
        max_rel = max(max_rel, torch.where(error > 0, error / scale, error).max().item())
        if first_bad is None and not good.all():
            first_bad = start + int(good.to(torch.uint8).argmin())
    return Agreement(first_bad is None, _known(max_abs), _known(max_rel), _index(first_bad, expected.shape))


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def _tolerance(dtype: torch.dtype, rms: float, profile: str) -> tuple[float, float]:
    if not dtype.is_floating_point:
        return 0.0, 0.0
    if profile == "parity":
        return _PARITY, _PARITY
    tolerance = _SCALED.get(dtype, 1e-2)
    return tolerance, tolerance * rms


def _judge(wanted: torch.Tensor, given: torch.Tensor, rtol: float, floor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Which elements agree, and the error of those finite on both sides (0 elsewhere)."""
    same = (wanted == given) | (wanted.isnan() & given.isnan())  # in their own dtype: int64 does not fit a float64
    finite = wanted.isfinite() & given.isfinite()
    wanted, given = wanted.double(), given.double()
    error = torch.where(finite, given - wanted, 0.0).abs()
    if rtol == 0:
        return same, error
    return same | (finite & (error <= rtol * wanted.abs() + floor)), error


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    first, second = (tensor.detach().reshape(-1) for tensor in tensors)
    for start in range(0, first.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        yield start, first[part], second[part]


def _rms(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements, 0 where there are none; scaled so that squares cannot overflow."""
    largest = max((part.max().item() for part in _magnitudes(tensor)), default=0.0)
    if largest == 0:
        return 0.0
    total, count = 0.0, 0
    for part in _magnitudes(tensor):
        total, count = total + (part / largest).square().sum().item(), count + part.numel()
    return largest * sqrt(total / count)


def _magnitudes(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    parts = (chunk[chunk.isfinite()].double().abs() for _, chunk, _ in _chunks(tensor, tensor))
    return (part for part in parts if part.numel())


def _index(flat: int | None, shape: torch.Size) -> tuple[int, ...] | None:
    if flat is None:
        return None
    index = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))
