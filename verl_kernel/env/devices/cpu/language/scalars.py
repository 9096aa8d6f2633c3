# SPDX-License-Identifier: Apache-2.0
"""Floating arguments of a launch are Triton's under its interpreter, as they are on a GPU.

The interpreter leaves them Python's floats: `f.to(tl.float16)` and `~(f > 0.5)` fail, and `1.0 / f` raises where a GPU
gives infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


def install() -> None:
    """Wrap the interpreter's conversion of arguments (once per process)."""
    original = interpreter._implicit_cvt

    def convert(value: Any) -> Any:
        if type(value) is not float:
            return original(value)
        return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)

    interpreter._implicit_cvt = convert
