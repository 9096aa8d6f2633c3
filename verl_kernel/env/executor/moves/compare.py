# SPDX-License-Identifier: Apache-2.0
"""Whether stored values are loaded ones, within what a comparison of outputs lets pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_kernel.env.executor.moves.log import Array

_MANY = 16
"""Elements from which on an agreement in another order is no coincidence."""
_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
_CLOSE = {"fp16": 2.0**-7, "bf16": 2.0**-7, "fp32": 2.0**-12, "fp64": 2.0**-16}
"""How far apart values may be, relative to them and to the mean size of what is stored: a comparison of float32 lets
pass up to 2e-4, and as much of the others' size on small numbers."""
WIDTHS = {
    "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4,
    "i64": 8, "u64": 8,
}  # fmt: skip
"""Bytes of elements by type, as Triton names it; types that are not named are compared as bytes."""


def numbers(raw: Array, kind: str) -> Array:
    """Values of elements that are given as bytes."""
    flat = np.ascontiguousarray(raw)
    if kind == "bf16" and flat.shape[1] == 2:
        return np.asarray((flat.view(np.uint16).reshape(-1).astype(np.uint32) << 16).view(np.float32))
    if kind in _FLOATS and flat.shape[1] == WIDTHS[kind]:
        return np.asarray(flat.view(_FLOATS[kind]).reshape(-1))
    signed = "i" if kind[:1] == "i" and flat.shape[1] in (1, 2, 4, 8) else "u"
    return np.asarray(flat.view(f"{signed}{flat.shape[1]}").reshape(-1))


def moved_from(stored: Array, kind: str, loaded: Sequence[Array]) -> int | None:
    """Which of several loads the stored values are, in any order that is not theirs by size.

    Args:
        stored: values in the order of their addresses.
        kind: their type.
        loaded: values of each load, likewise.

    Returns:
        Its number, `len(loaded)` for all of them together, None for none.
    """
    is_float = stored.dtype.kind == "f"
    alike = [number for number, values in enumerate(loaded) if (values.dtype.kind == "f") == is_float]
    close = _CLOSE.get(kind, 0.0) if is_float else 0.0
    for number in reversed(alike):
        if _is_same(stored, loaded[number], close):
            return number
    together = [loaded[number] for number in alike]
    if len(together) > 1 and sum(map(len, together)) == len(stored) >= _MANY:
        return len(loaded) if _is_reordered(stored, np.concatenate(together), close) else None
    return None


def _is_same(stored: Array, loaded: Array, close: float) -> bool:
    if len(stored) == len(loaded):
        return _agree(stored, loaded, close) or (len(stored) >= _MANY and _is_reordered(stored, loaded, close))
    if len(stored) > len(loaded):
        return _is_repeated(stored, loaded, close)
    return len(stored) >= _MANY and not len(loaded) % len(stored) and _is_part(stored, loaded, close)


def _agree(left: Array, right: Array, close: float) -> bool:
    if close == 0.0:
        return bool(np.array_equal(left, right))
    with np.errstate(all="ignore"):
        left, right = left.astype(np.float64), right.astype(np.float64)
        floor = max(close * _size(left), 1e-30)
        return bool(np.allclose(left, right, rtol=close, atol=floor, equal_nan=True))


def _size(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).mean()) if len(finite) else 0.0


def _is_reordered(stored: Array, loaded: Array, close: float) -> bool:
    if not _may_agree(stored, loaded) or not _agree(np.sort(stored), np.sort(loaded), close):
        return False
    return not _is_sorted(stored) or _is_sorted(loaded)


def _may_agree(left: Array, right: Array) -> bool:
    """Whether sums, which cost less than an order, are alike."""
    with np.errstate(all="ignore"):
        one, other = (float(np.abs(values.astype(np.float64)).sum()) for values in (left, right))
    return not abs(one - other) > 0.02 * max(one, other)


def _is_sorted(values: Array) -> bool:
    return bool(np.all(values[1:] >= values[:-1]) or np.all(values[1:] <= values[:-1]))


def _is_repeated(stored: Array, loaded: Array, close: float) -> bool:
    if len(loaded) == 0 or len(stored) % len(loaded):
        return False
    return _agree(np.sort(stored), np.sort(np.repeat(loaded, len(stored) // len(loaded))), close)


def _is_part(stored: Array, loaded: Array, close: float) -> bool:
    """Whether they are a run of the loaded ones, or every n-th of them."""
    runs, columns = loaded.reshape(-1, len(stored)), loaded.reshape(len(stored), -1).T
    return any(_agree(stored, piece, close) for piece in (*runs, *columns))
