# SPDX-License-Identifier: Apache-2.0
"""Conditions keep their type under Triton's interpreter.

The interpreter gives a comparison the type of its operands, so a scalar one becomes a block of integers or floats where
it meets another: `(columns < n) & (row < m)` is then no mask but a list of zeros and ones, which Triton 3.9 refuses,
older versions take, and NumPy reads as indices instead of a mask.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder


def install() -> None:
    """Wrap the interpreter's builder (once per process, after the counters, which read the operands' type)."""
    original = InterpreterBuilder.binary_op

    @wraps(original)
    def binary_op(self: Any, *operands: Any) -> Any:
        result = original(self, *operands)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1
        return result

    InterpreterBuilder.binary_op = binary_op
