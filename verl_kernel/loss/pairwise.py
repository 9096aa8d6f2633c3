# SPDX-License-Identifier: Apache-2.0
"""Pairwise OPMD, and the advantages that make REINFORCE of it (arXiv 2509.24203, the derivation of its losses).

At the optimum of E[r] - tau KL(pi || pi_old), a_i = r_i - tau (log pi(y_i) - log pi_old(y_i)) is the same for all
answers y_i to a prompt. The loss asks for that, pair by pair; with K answers and their mean a,

    L = K^-2 sum over i < j of (a_i - a_j)^2 = K^-1 sum over i of (a_i - a)^2
    gradient of L = -2 tau K^-1 sum over i of (a_i - a) gradient of log pi(y_i)

The second line is REINFORCE with the advantages a_i - a, exactly and at any policy. verl spreads the answers to
a prompt over micro-batches and devices and tells a policy loss no prompt, so the first line cannot be one of its
losses; the advantages can be had wherever both log-probabilities are known.
"""

from __future__ import annotations

import numpy as np
import torch

from verl_kernel.advantage.groups import number_prompts
from verl_kernel.loss.ratios import within


def pairwise_loss(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    scores: torch.Tensor,
    mask: torch.Tensor,
    index: np.ndarray,
    tau: float,
) -> torch.Tensor:
    """Mean over prompts of K^-2 sum over pairs of (a_i - a_j)^2: a scalar; a prompt with one answer adds 0.

    Args:
        log_prob: (B, T), with gradient.
        old_log_prob: (B, T).
        scores: (B,) rewards r.
        mask: (B, T), 1 on the tokens that count.
        index: (B,) prompt identifiers.
        tau: weight of the KL divergence, above 0.
    """
    group = number_prompts(index, scores.device)
    values = _shifted(log_prob, old_log_prob, scores, mask, tau)
    same = torch.triu(group[:, None] == group[None, :], diagonal=1)
    sizes = torch.bincount(group)[group].to(values.dtype)
    pairs = (values[:, None] - values[None, :]).square() / sizes[:, None].square()
    return torch.where(same, pairs, 0).sum() / len(torch.unique(group))


def pairwise_advantages(
    log_prob: torch.Tensor,
    old_log_prob: torch.Tensor,
    scores: torch.Tensor,
    mask: torch.Tensor,
    index: np.ndarray,
    tau: float,
) -> torch.Tensor:
    """The advantages a_i - a of answers, without gradient: (B,); arguments as those of `pairwise_loss`."""
    with torch.no_grad():
        group = number_prompts(index, scores.device)
        values = _shifted(log_prob, old_log_prob, scores, mask, tau)
        totals = values.new_zeros(int(group.max()) + 1).index_add(0, group, values)
        return values - (totals / torch.bincount(group))[group]


def _shifted(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor, tau: float
) -> torch.Tensor:
    log_prob, old_log_prob = within(mask.bool(), log_prob, old_log_prob)
    return scores - tau * (log_prob - old_log_prob).sum(dim=1)
