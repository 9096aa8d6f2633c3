# SPDX-License-Identifier: Apache-2.0
"""Bytes that stand for those of tensors without data: plausible values, the same again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

BYTES = 4 << 20
"""Of a template, which is mapped as often as a tensor is long."""
_SMALL = 8
"""Whole numbers lie below."""
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_WHOLE = {
    "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": np.int32,
    "uint32": np.uint32, "int64": np.int64, "uint64": np.uint64,
}  # fmt: skip


def is_whole(dtype: str) -> bool:
    """Whether elements are whole numbers, which may be places in other tensors."""
    return dtype in _WHOLE


def template(dtype: str, random: np.random.Generator) -> np.ndarray:
    """The bytes.

    Args:
        dtype: name of torch's type of the elements.
        random: draws values.
    """
    return np.ascontiguousarray(_values(dtype, random)).view(np.uint8)[:BYTES]


def _values(dtype: str, random: np.random.Generator) -> np.ndarray:
    """Of about a standard normal distribution; whole numbers from 0 on; as many conditions true as not."""
    if dtype == "bool":
        return random.integers(0, 2, BYTES, np.uint8)
    if (whole := _WHOLE.get(dtype)) is not None:
        return random.integers(0, _SMALL, BYTES // np.dtype(whole).itemsize).astype(whole)
    if dtype.startswith("float8"):  # exponents near that of 1
        middle, width = (15 << 2, 2) if "e5m2" in dtype else (7 << 3, 3)
        low = random.integers(middle - (1 << width), middle + (1 << width), BYTES, np.int16)
        narrow: np.ndarray = (low | random.integers(0, 2, BYTES, np.int16) << 7).astype(np.uint8)
        return narrow
    drawn = random.standard_normal(BYTES // 4).astype(np.float32)
    if dtype == "bfloat16":
        return np.tile((drawn.view(np.uint32) >> 16).astype(np.uint16), 2)
    kind: Any = _FLOATS.get(dtype, np.float32)
    return np.tile(drawn, 2).astype(kind)
