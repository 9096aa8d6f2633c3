# SPDX-License-Identifier: Apache-2.0
"""A loss whose gradient trains LoRAs by the mean over several selections, and routers by leave-one-out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from verl_kernel.errors import ConfigError
from verl_kernel.remix.layers import Routing


class ReMixLoss(NamedTuple):
    """`loss`, to call backward on, and `rows` (M, B), the loss of each row under each selection."""

    loss: torch.Tensor
    rows: torch.Tensor


def remix_loss(
    routing: Routing,
    row_losses: Callable[[], torch.Tensor],
    selections: int,
    *,
    prompt: torch.Tensor | None = None,
    keys: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
    mode: Literal["sample", "uniform"] = "sample",
) -> ReMixLoss:
    """Call a model under `selections` independent selections and return their mean loss with ReMix's gradients.

    The routers' gradient is 1/(M-1) sum_m (L_m - mean L) grad log Q(J_m) for each row (arXiv 2603.10160). LoRAs get
    the mean of the M gradients of L, which the paper does not specify. Each selection's activations are freed before
    the next, so the memory of one selection suffices; the losses of several micro-batches can be added or called
    backward in turn.

    Args:
        routing: routing of the model; no pass of it is open.
        row_losses: calls the model and returns (B,) losses, weighted so that their sum is the loss of the batch.
        selections: M, at least 2 if routers are trained.
        prompt: see `Routing.run`.
        keys: see `Routing.run`.
        generator: see `Routing.run`.
        mode: `uniform` leaves the routers untrained and chooses without them.

    Raises:
        ConfigError: fewer than two selections with routers to train, or none at all.
    """
    minimum = 2 if mode == "sample" else 1
    if selections < minimum:
        raise ConfigError(f"remix.selections is {selections}; leave-one-out needs at least {minimum}")
    loras = [weight for layer in routing.layers.values() for weight in (layer.lora_a, layer.lora_b)]
    means = [torch.zeros_like(weight) for weight in loras]
    rows, log_q = [], []
    for _ in range(selections):
        with routing.run(mode, prompt, keys, generator=generator) as run:
            losses = row_losses()
            # Backward runs inside the pass, so that checkpointed layers find their choice again.
            parts = torch.autograd.grad(losses.sum() / selections, loras, allow_unused=True)
        for mean, part in zip(means, parts, strict=True):
            if part is not None:
                mean += part
        rows.append(losses.detach())
        if mode == "sample":
            log_q.append(routing.log_probability(run))
    losses = torch.stack(rows)
    loss = losses.mean(0).sum()
    for weight, mean in zip(loras, means, strict=True):
        loss = loss + _gradient_only((weight * mean).sum())
    if mode == "sample":
        loss = loss + _gradient_only(leave_one_out(losses, torch.stack(log_q)))
    return ReMixLoss(loss, losses)


def leave_one_out(losses: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """Return a sum whose gradient is an unbiased estimate of the gradient of the expected loss.

    Args:
        losses: (M, ...) of M independent selections.
        log_q: (M, ...), the differentiable log-probability of each.

    Returns:
        1/(M-1) sum_m (L_m - mean L) log Q(J_m), summed over rows.
    """
    advantage = (losses - losses.mean(0)).detach() / (len(losses) - 1)
    return (advantage.to(log_q.dtype) * log_q).sum()


def _gradient_only(term: torch.Tensor) -> torch.Tensor:
    """Return a term of value zero that keeps its gradient."""
    return term - term.detach()
