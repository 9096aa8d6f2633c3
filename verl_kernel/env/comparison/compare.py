# SPDX-License-Identifier: Apache-2.0
"""Compares a candidate's output with the reference's.

Both are compared in float64, element by element: |actual - expected| <= rtol * |expected| + floor. The profile
`scaled` sets floor = atol * scale, so zeros do not pass where the reference is small; the scale is that of an
element's row and column (`scale`). `parity` is `torch.allclose` with rtol = atol = 1e-2, as published. Integers and
booleans must be equal. Infinities and NaNs must be where the reference has them. Where an element has an allowance
(`Room`), only the part of a difference that exceeds it counts as error.

Rounding alone puts a bfloat16 number off by 0.4 %, and the errors of a product of such numbers have tails. So in
`scaled` single elements of bfloat16 may be off by `_TAIL` times the tolerance if the error of all together is small.
8-bit floats must be equal, except the few that an earlier rounding decides (`eight_bits.differ_by_rounding`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch

from verl_kernel.env.comparison.scale import Scale
from verl_kernel.env.comparison.tf32_tolerance import Room
from verl_kernel.env.eight_bits import EIGHT, differ_by_rounding, widened

CHUNK = 1 << 20
"""Number of elements compared at a time; it bounds the memory taken in float64."""

_SCALED = {
    torch.float64: 1e-7,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-2,
    **dict.fromkeys(EIGHT, 0.0),
}
_PARITY = 1e-2
_FEW = 128
"""Elements that disagree count as few if they are at most one in this number."""
_TAIL = 2.0
"""Largest error of an element that is noise of bfloat16, in tolerances."""
_NOISE = 0.5
"""Largest root mean square of all errors that are noise of bfloat16, in tolerances."""


@dataclass(frozen=True)
class Agreement:
    """Result of a comparison."""

    ok: bool
    max_abs: float | None = None
    """Largest |actual - expected| over the elements finite on both sides; None if it exceeds float64."""
    max_rel: float | None = None
    """Largest |actual - expected| / max(|expected|, rms(expected)); None if it is infinite."""
    first_bad_index: tuple[int, ...] | None = None
    first_bad: tuple[float, float] | None = None
    """The expected and the actual value at `first_bad_index`."""
    is_tf32: bool = False
    """Whether the comparison would succeed if float32 products were allowed to use TF32."""
    has_few: bool = False
    """Whether so few elements disagree that last digits of the inputs may explain them."""


def compare(
    expected: torch.Tensor,
    actual: torch.Tensor,
    profile: str = "scaled",
    smallest_scale: float | None = None,
    room: Room | None = None,
) -> Agreement:
    """Compare two tensors of any equal shape.

    Args:
        expected: the reference's output.
        actual: the candidate's output.
        profile: `scaled` or `parity`.
        smallest_scale: that of a row or column as a part of the rms of all; None takes `scale.NOISE` of the dtype.
        room: additional allowance of each element.

    Raises:
        ValueError: an unknown profile.
    """
    if profile not in ("scaled", "parity"):
        raise ValueError(f"tolerance profile {profile!r} is unknown: use scaled or parity")
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return Agreement(ok=False)
    if expected.is_complex():
        return compare(torch.view_as_real(expected), torch.view_as_real(actual), profile, smallest_scale, room)
    rtol, atol = _tolerance(expected.dtype, profile)
    # 8-bit floats are widened for the arithmetic; whether they differ by rounding is decided on the originals.
    pair, expected, actual = (expected, actual), widened(expected), widened(actual)
    scale = Scale.of(expected, CHUNK, profile == "scaled", smallest_scale)
    max_abs, max_rel, first_bad, values, disagreeing = 0.0, 0.0, None, None, 0
    rooms = () if room is None else (room.below, room.above)
    for start, expected_part, actual_part, *allowance in _chunks(scale.step, expected, actual, *rooms):
        floor = atol * scale.around(expected_part) if profile == "scaled" else atol
        good, error = _judge(expected_part, actual_part, rtol, floor, allowance)
        if (largest := error.max().item()) > 0:
            max_abs, max_rel = max(max_abs, largest), max(max_rel, _relative(error, expected_part, scale.rms))
        disagreeing += 0 if good.all() else int((~good).sum())
        if first_bad is None and disagreeing:
            position = int(good.to(torch.uint8).argmin())
            first_bad, values = start + position, (expected_part[position].item(), actual_part[position].item())
    if first_bad is not None and profile == "scaled" and room is None:
        first_bad = None if _is_rounding(scale, *pair, rtol, atol) else first_bad
    is_ok, index = first_bad is None, _index(first_bad, expected.shape)
    has_few, values = not is_ok and disagreeing * _FEW <= expected.numel(), None if is_ok else values
    return Agreement(is_ok, _finite_or_none(max_abs), _finite_or_none(max_rel), index, values, has_few=has_few)


def _is_rounding(scale: Scale, expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float) -> bool:
    if expected.dtype in EIGHT:
        return differ_by_rounding(expected, actual)
    return expected.dtype is torch.bfloat16 and _is_noise(scale, expected, actual, rtol, atol)


def _is_noise(scale: Scale, expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float) -> bool:
    """Whether no element is off by more than `_TAIL` tolerances, and the root mean square is at most `_NOISE`."""
    total = 0.0
    for _, expected_part, actual_part in _chunks(scale.step, expected, actual):
        floor = atol * scale.around(expected_part)
        good, error = _judge(expected_part, actual_part, _TAIL * rtol, _TAIL * floor, [])
        if not good.all():
            return False
        allowed = torch.where(error > 0, expected_part.double().abs().mul_(rtol).add_(floor), 1.0)
        total += (error / allowed).square_().sum().item()
    return total <= _NOISE**2 * expected.numel()


def _relative(error: torch.Tensor, expected: torch.Tensor, rms: float) -> float:
    scale = expected.double().abs().clamp_(min=rms)
    return (error / scale if rms else torch.where(error > 0, error / scale, error)).max().item()


def _finite_or_none(value: float) -> float | None:
    return value if isfinite(value) else None


def _tolerance(dtype: torch.dtype, profile: str) -> tuple[float, float]:
    if not dtype.is_floating_point:
        return 0.0, 0.0
    tolerance = _PARITY if profile == "parity" else _SCALED.get(dtype, 1e-2)
    return tolerance, tolerance


def _judge(
    expected: torch.Tensor, actual: torch.Tensor, rtol: float, floor: torch.Tensor | float, room: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which elements agree, and the errors of those finite on both sides (0 elsewhere)."""
    expected_wide, actual_wide = expected.double(), actual.double()
    # Float64 on either side: the difference of two float32 numbers must not be rounded itself.
    beyond = _beyond(actual_wide - expected_wide, *room) if room else None
    error = (actual_wide - expected_wide).abs_()
    if rtol and error.isfinite().all():  # the usual case, in fewer passes over memory
        return (error if beyond is None else beyond) <= expected_wide.abs().mul_(rtol).add_(floor), error
    is_same = (expected == actual) | (
        expected.isnan() & actual.isnan()
    )  # in their own dtype: int64 does not fit into float64
    is_finite = expected.isfinite() & actual.isfinite()
    error = torch.where(is_finite, error, 0.0)
    beyond = error if beyond is None else beyond
    return (is_same | (is_finite & (beyond <= rtol * expected_wide.abs() + floor)) if rtol or room else is_same), error


def _beyond(deviation: torch.Tensor, below: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
    return (deviation - deviation.clamp(-below, above)).abs_()


def _chunks(step: int, *tensors: torch.Tensor) -> Iterator[Any]:
    """Yield the start of each chunk and that chunk of each tensor, flattened."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), step):
        yield start, *(tensor[start : start + step] for tensor in flat)


def _index(flat: int | None, shape: torch.Size) -> tuple[int, ...] | None:
    if flat is None:
        return None
    index = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))
