# SPDX-License-Identifier: Apache-2.0
"""Ratios pi / pi_old of tokens, turns and rows, in logarithms."""

from __future__ import annotations

import torch

LIMIT = 20.0
"""Log-ratios are clipped to this absolute value before the exponential, as in verl's own losses."""


def within(mask: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return (B, T) tensors in at least float32, with value and gradient 0 outside the mask (B, T) bool.

    float16 overflows at e^11, far below `LIMIT`, and outside the mask verl may leave any value: 0 times inf is NaN.
    """
    return tuple(torch.where(mask, one, 0).to(torch.promote_types(one.dtype, torch.float32)) for one in tensors)


def log_ratio_at(level: str, log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Give each token the log-ratio of its token, turn or row.

    Args:
        level: `token`; `turn` or `geometric`, the mean over the tokens of a turn or of a row; `sequence`, their sum
            over a row. A turn is a run of ones in the mask.
        log_ratio: (B, T) of the tokens; any values outside the mask.
        mask: (B, T) bool.

    Returns:
        (B, T), clipped at `LIMIT`; meaningless outside the mask.
    """
    if level == "token":
        return log_ratio.clamp(-LIMIT, LIMIT)
    whole = segment_sum(log_ratio, mask, level)
    if level != "sequence":
        whole = whole / segment_sum(torch.ones_like(log_ratio), mask, level).clamp_min(1)
    return whole.clamp(-LIMIT, LIMIT)


def number_segments(mask: torch.Tensor, level: str) -> tuple[torch.Tensor, int]:
    """Number the turns or rows that have tokens: (B, T) bool to (B, T) int64, and return their count.

    The number of a token outside the mask is meaningless.
    """
    if level == "turn":
        starts = mask.clone()
        starts[:, 1:] &= ~mask[:, :-1]
    else:
        starts = mask & (mask.cumsum(dim=1) == 1)
    numbers = starts.reshape(-1).cumsum(0).view_as(mask) - 1
    return numbers.clamp_min(0), int(starts.sum())


def segment_sum(values: torch.Tensor, mask: torch.Tensor, level: str) -> torch.Tensor:
    """Give each token the sum over its turn (`turn`) or its row (any other level): (B, T) to (B, T)."""
    numbers, count = number_segments(mask, "turn" if level == "turn" else "trajectory")
    inside = torch.where(mask, values, 0).reshape(-1)
    return inside.new_zeros(max(count, 1)).index_add(0, numbers.reshape(-1), inside)[numbers]
