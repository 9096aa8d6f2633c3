# SPDX-License-Identifier: Apache-2.0
"""What a launch did that did not run in this process."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verl_kernel.env.trace import Step

Uses = tuple[list[tuple[torch.Tensor, int]], list[tuple[torch.Tensor, int]]]
"""Tensors read and tensors written, each with its bytes."""


@dataclass(frozen=True)
class NativeWork:
    """Of one launch."""

    counts: tuple[int, int, int]
    """Bytes, operations, operations of half precision, as in `TraceEvent`."""
    steps: tuple[Step, ...]
    uses: Uses
