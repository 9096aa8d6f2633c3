# SPDX-License-Identifier: Apache-2.0
"""Kinds of answers and splits of tasks, apart from what makes them: names that are read without torch."""

from __future__ import annotations

from enum import Enum
from typing import Literal, get_args

Split = Literal["same", "new_sizes", "new_chain", "new_family"]
"""Distance of validation tasks from training."""
SPLITS: tuple[Split, ...] = get_args(Split)
DATA_SOURCE = "kernel_world"
"""Data source of training rows; a split's rows have its name behind it."""
LAZY_SHARE = 0.3
"""Coverage below which profiling-based rejection drops a kernel."""


class Kind(str, Enum):
    """What the gym is expected to say of an answer."""

    FUSED = "fused"
    """Right; torch does none of the steps."""
    PARTIAL = "partial"
    """Right; torch does some steps."""
    LAZY = "lazy"
    """Right; the kernels' share of the device kernels is below `LAZY_SHARE`."""
    DECOY = "decoy"
    """The result does not depend on a kernel."""
    WRONG = "wrong"
    """Another result."""
    TYPE = "type"
    """The right values in another type."""
    OUTSIDE = "outside"
    """Memory outside of the tensors is read or written."""
    BROKEN = "broken"
    """Refused by its text, or does not compile or launch."""


RIGHT = (Kind.FUSED, Kind.PARTIAL, Kind.LAZY)
