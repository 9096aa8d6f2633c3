# SPDX-License-Identifier: Apache-2.0
"""A kernel whose compilation shows that Triton, its assembler and the target work together."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def copy_kernel(source, target, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy `size` elements."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + places, mask=places < size)
    tl.store(target + places, values, mask=places < size)
