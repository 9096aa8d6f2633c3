# SPDX-License-Identifier: Apache-2.0
"""Estimators that subtract a baseline of the group from the return, and do nothing else.

For rollout i of a prompt, turn t of its T_i turns, and N the members of the turn's group (`groups`),

    G[i, t] = sum over s >= t of gamma^(s - t) * r[i, s]

    trloo           A[i, t] = G[i, t] - mean of G[j, t] over j != i = N / (N - 1) * (G[i, t] - mean of G[., t])
    turn_grpo       A[i, t] = G[i, t] - mean of G[., t]
    asymre_shift    A[i, t] = G[i, t] - (mean of G[., t] + shift)
    opmd_baseline   A[i, t] = G[i, t] - tau * log(mean of exp(G[., t] / tau)), or as turn_grpo

With `credit: trajectory`, G[i, 1] stands in place of every G[i, t]. `normaliser: deviation` divides the first two by
the standard deviation of G[., t] in the group, as GRPO does; nothing else is divided. `negative_weight` multiplies what
is then below 0 in the first two. A turn alone in its group gets
what `singleton` says. These keys are those of `algorithm.trloo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from verl_kernel.advantage.groups import Groups, TurnBatch, sum_groups, turn_advantages
from verl_kernel.advantage.options import RecOptions
from verl_kernel.advantage.registry import estimator


@estimator("trloo", grouped=True)
def trloo(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the mean of the group's others, i.e. leave-one-out (Dr. Kernel, Eq. 2 and 5)."""
    return _against_mean(batch, leave_one_out=True)


# The REC family's baseline is the plain mean of the group too: its name leads to the same function.
@estimator("turn_grpo", "rec_group_mean", grouped=True)
def turn_grpo(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the mean of the whole group (Dr. Kernel, Eq. 3 and 4), the ablation of `trloo`.

    A turn's own return is part of the mean, which shrinks its expected gradient by the factor 1 - 1/N.
    """
    return _against_mean(batch, leave_one_out=False)


def _against_mean(batch: TurnBatch, *, leave_one_out: bool) -> torch.Tensor:
    return turn_advantages(batch.groups(), batch.options, leave_one_out=leave_one_out)


@estimator("asymre_shift", grouped=True)
def asymre_shift(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the group mean lowered a little (AsymRE, arXiv 2506.20520; arXiv 2509.24203).

    Lowering the baseline by b adds b to every advantage, which is the gradient of b * log pi of the sampled tokens: a
    forward-KL pull towards the policy that sampled them. `asymre_kl` is the same thing written as a policy loss.
    """
    shift = RecOptions.from_node(algorithm.get("rec", None)).asymre_shift
    groups = batch.groups()
    return groups.settle(batch.returns - (groups.means + shift), batch.options.singleton)


@estimator("opmd_baseline", grouped=True)
def opmd_baseline(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the group's mean or log-average-exp (policy mirror descent, arXiv 2509.24203).

    The log-average-exp is the value of the problem regularised with temperature tau: it tends to the mean for large
    tau and to the largest return for small tau. The matching loss, `opmd_scaled`, divides by 1 + tau.
    """
    options = RecOptions.from_node(algorithm.get("rec", None))
    groups = batch.groups()
    baseline = groups.means if options.opmd_baseline == "mean" else log_mean_exp(groups, options.opmd_tau)
    return groups.settle(batch.returns - baseline, batch.options.singleton)


def log_mean_exp(groups: Groups, tau: float) -> torch.Tensor:
    """Return the log-average-exp of each group's returns at a temperature: (B, K) float64, 0 without members."""
    lowest = torch.where(groups.counted, groups.returns, -torch.inf)
    rows = groups.prompts[:, None].expand_as(lowest)
    largest = torch.full_like(lowest, -torch.inf).scatter_reduce(0, rows, lowest, "amax").gather(0, rows)
    largest = torch.where(groups.sizes > 0, largest, 0.0)
    # The largest is taken out before the exponential, which would overflow for a small tau.
    above = torch.where(groups.counted, (groups.returns - largest) / tau, -torch.inf).exp()
    mean = sum_groups(above, groups.prompts) / groups.sizes.clamp_min(1)
    return largest + tau * torch.where(groups.sizes > 0, mean, 1.0).log()
