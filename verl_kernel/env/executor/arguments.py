# SPDX-License-Identifier: Apache-2.0
"""A launch's arguments as values of the PTX's parameters."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any


def flattened(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """The parameters that an argument becomes, with their types: none of a constant, several of a tuple."""
    if isinstance(kind, tuple):
        for one, item in zip(kind, value, strict=True):
            yield from flattened(one, item)
    elif isinstance(kind, str) and kind.startswith("tensordesc"):
        shape, strides = list(value.shape), list(value.strides)
        flags = (value.padding == "nan", value.round_f32_to_tf32)
        yield from (("", item) for item in (value.base, *shape, *strides, *flags, *shape, *strides))
    elif kind != "constexpr":
        yield str(kind), value


_FLOATS = {"fp16": "e", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}


def encoded(kind: str, value: Any) -> Any:
    """A float as the bits of its type, as Triton's launchers hand it over; anything else as it is."""
    if kind == "bf16":  # they cut it
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    if kind in _FLOATS:
        return int.from_bytes(struct.pack(f"<{_FLOATS[kind]}", value), "little")
    return value
