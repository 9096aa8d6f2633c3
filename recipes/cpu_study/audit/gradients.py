# SPDX-License-Identifier: Apache-2.0
"""Gradients of the policy's parameters: for each group of rollouts, that of every estimator from the same samples.

The loss is that of the recipe where the policy has not moved since it sampled: all ratios are 1, nothing is clipped,
and tokens are summed up (`loss_agg_mode: seq-mean-token-sum-norm`). So the direction in which an estimator moves the
parameters is, up to a constant,

    g = mean over the group's rollouts of the sum over turns of A[turn] * grad log pi(tokens of the turn)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from recipes.cpu_study.audit.rollouts import Group, Rollout

Weights = Mapping[str, Sequence[Sequence[float]]]
"""By name, the weight of each turn of each rollout, row by row of the groups."""


def log_probs(model: Any, rollout: Rollout, temperature: float) -> torch.Tensor:
    """Return the log-probabilities of a rollout's response tokens, (T,), with gradient."""
    ids = torch.tensor([[*rollout.prompt, *rollout.response]])
    logits = model(input_ids=ids).logits[0, len(rollout.prompt) - 1 : -1].float() / temperature
    own: torch.Tensor = logits.log_softmax(-1).gather(-1, ids[0, len(rollout.prompt) :, None])[:, 0]
    return own


def group_gradients(
    model: Any, groups: Sequence[Group], weights: Weights, temperature: float, note: Callable[[], None]
) -> dict[str, torch.Tensor]:
    """Return by name the gradients of the groups, (G, P) float32 for P trained parameters.

    Args:
        model: a causal language model of Hugging Face, in evaluation mode.
        groups: G groups.
        weights: of each turn, by name.
        temperature: at which the rollouts were sampled.
        note: called after each group.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    size = sum(parameter.numel() for parameter in trained)
    gradients = {name: torch.zeros(len(groups), size) for name in weights}
    row = 0
    for number, group in enumerate(groups):
        for rollout in group:
            own = {name: rows[row] for name, rows in weights.items() if any(rows[row])}
            for turn, gradient in _scores(model, rollout, temperature, own, trained):
                for name, rows in own.items():
                    gradients[name][number] += rows[turn] / len(group) * gradient
            row += 1
        note()
    return gradients


def _scores(
    model: Any,
    rollout: Rollout,
    temperature: float,
    weights: Mapping[str, Sequence[float]],
    trained: Sequence[torch.Tensor],
) -> list[tuple[int, torch.Tensor]]:
    """Return the gradient of the log-probability of each turn that some name gives a weight, with its number."""
    needed = [turn for turn in range(len(rollout.turns)) if any(rows[turn] for rows in weights.values())]
    if not needed:
        return []
    own = log_probs(model, rollout, temperature) * torch.tensor(rollout.mask)
    gradients = []
    for turn in needed:
        record = rollout.turns[turn]
        parts = torch.autograd.grad(
            own[record.start : record.stop].sum(), trained, retain_graph=turn != needed[-1], allow_unused=True
        )
        flat = [
            torch.zeros_like(parameter) if part is None else part
            for part, parameter in zip(parts, trained, strict=True)
        ]
        gradients.append((turn, torch.cat([part.flatten() for part in flat])))
    return gradients


def distance(model: Any, group: Group, temperature: float) -> float | None:
    """Return the mean distance of the model's log-probabilities from the sampler's; None if these were not kept."""
    recorded = [rollout for rollout in group if rollout.log_probs is not None]
    if not recorded:
        return None
    total, tokens = 0.0, 0
    with torch.no_grad():
        for rollout in recorded:
            mask = torch.tensor(rollout.mask).bool()
            gaps = (log_probs(model, rollout, temperature) - torch.tensor(rollout.log_probs)).abs()[mask]
            total, tokens = total + float(gaps.sum()), tokens + len(gaps)
    return total / max(tokens, 1)
