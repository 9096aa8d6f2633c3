# SPDX-License-Identifier: Apache-2.0
"""One load, store or atomic of a program, and where in the source it stands."""

from __future__ import annotations

import dis
import sys
from enum import Enum
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Place = tuple[CodeType, int]
"""Code of a kernel or of a function that it calls, and the offset of an instruction in it."""


class Kind(Enum):
    """What an access does."""

    LOAD = "load"
    VOLATILE = "volatile load"
    """A load that a program may repeat until another one has written; it counts as an atomic that only reads."""
    STORE = "store"
    ATOMIC = "atomic"
    EXCHANGE = "exchange"
    """An atomic that writes without looking: its result is thrown away."""

    @property
    def word(self) -> str:
        """`load`, `store` or `atomic`."""
        return {Kind.VOLATILE: "load", Kind.EXCHANGE: "atomic"}.get(self, self.value)


class Access(NamedTuple):
    """An access with all its lanes; addresses are those of first bytes."""

    kind: Kind
    program: int
    """Number of the program in the order in which programs run, from 1."""
    pointers: Array
    mask: Array
    itemsize: int
    place: Place | None
    value: Array | None = None
    """What a store stores, in the shape of `pointers`."""
    before: Array | None = None
    """What lay at the active lanes before a store."""

    @property
    def addresses(self) -> Array:
        """Addresses of the active lanes."""
        return active(self.pointers, self.mask)


def active(values: Array, mask: Array) -> Array:
    """The lanes of `values` that a mask of the same shape selects, in order."""
    return values[mask]


def find_place(file: str) -> Place | None:
    """Where the code of `file` is that called, through Triton, the function above; None if there is none."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(place: Place | None) -> int | None:
    """The line in its file."""
    if place is None:
        return None
    code, offset = place
    return next((line for start, end, line in code.co_lines() if start <= offset < end), None)


@lru_cache(maxsize=4096)
def is_discarded(place: Place | None) -> bool:
    """Whether the result of the call at this place is thrown away, as that of a statement of its own."""
    if place is None:
        return False
    code, offset = place
    after = (step.opname for step in dis.get_instructions(code) if step.offset > offset)
    return next(after, "") == "POP_TOP"
