# SPDX-License-Identifier: Apache-2.0
"""Draws ordered subsets without replacement from a softmax, and computes their exact probability."""

from __future__ import annotations

import torch


def draw(logits: torch.Tensor, size: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draw ordered subsets without replacement, each element from the softmax over the remaining ones.

    The `size` largest of logits plus Gumbel noise, in order, have that distribution (Plackett-Luce).

    Args:
        logits: (..., n) float.
        size: elements of a subset.
        generator: source of the noise, which is made on its device; torch's default if None.

    Returns:
        (..., size) long, indices in the order drawn.
    """
    device = logits.device if generator is None else generator.device
    noise = torch.empty(logits.shape, dtype=torch.float64, device=device).exponential_(generator=generator)
    return top(logits - noise.to(logits.device).log(), size)


def top(logits: torch.Tensor, size: int) -> torch.Tensor:
    """Return the indices of the `size` largest logits, (..., size) long; the largest first, equal ones by index."""
    return logits.sort(dim=-1, descending=True, stable=True).indices[..., :size]


def log_probability(logits: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return log P(`draw` returns `order`): the sum over j of log q_j - log(1 - q of those drawn before j).

    Args:
        logits: (..., n) float; gradients flow into them.
        order: (..., size) long, without repetition.

    Returns:
        (...) float.
    """
    total = torch.zeros_like(logits[..., 0])
    left = logits
    for place in range(order.shape[-1]):
        index = order[..., place : place + 1]
        total = total + (left.gather(-1, index).squeeze(-1) - left.logsumexp(-1))
        left = left.scatter(-1, index, -torch.inf)
    return total


def membership(order: torch.Tensor, count: int) -> torch.Tensor:
    """Return the subset as (..., count) bool: which of `count` elements it holds."""
    return torch.zeros(*order.shape[:-1], count, dtype=torch.bool, device=order.device).scatter(-1, order, True)
