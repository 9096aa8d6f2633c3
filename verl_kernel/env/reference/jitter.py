# SPDX-License-Identifier: Apache-2.0
"""Changes the last digits of inputs: outputs that differ then are those that rounding may decide."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_JITTER = {torch.float64: 1e-10, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative difference that rounding alone makes between two correct programs, by dtype.

8-bit floats stay unchanged: both programs read the same numbers, and one step of them far exceeds a later rounding.
"""


def jittered(tensors: Sequence[torch.Tensor], seed: int = 0) -> list[torch.Tensor]:
    """Return copies with floating numbers other than 0 and 1 changed by a few units in the last place, up or down."""
    generator = torch.Generator().manual_seed(seed)
    return [_moved(tensor, generator) for tensor in tensors]


def _moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_complex(_jittered(torch.view_as_real(tensor), generator).contiguous())
    return _jittered(tensor, generator) if tensor.dtype in _JITTER else tensor


def _jittered(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    # Exact zeros and ones stay: they are masks, padding and neutral elements, not rounded results.
    is_up = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.bool).to(tensor.device)
    jitter, dtype = _JITTER[tensor.dtype], torch.promote_types(tensor.dtype, torch.float32)
    down, up = torch.tensor([1 - jitter, 1 + jitter], dtype=torch.float64, device=tensor.device).to(dtype)
    moved = (tensor * torch.where(is_up, up, down)).to(tensor.dtype)
    return torch.where((tensor == 0) | (tensor == 1), tensor, moved)
