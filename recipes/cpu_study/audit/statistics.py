# SPDX-License-Identifier: Apache-2.0
"""What the gradients of groups say about a step: signal over noise, and what its first update would gain.

With g_i the gradient of group i of n, m their mean and S = sum |g_i - m|^2 / (n - 1), a step of B groups has

    signal  |mu|^2 = |m|^2 - S / n        without bias; may be below 0
    noise   S / B                         the variance of the step's mean, summed over parameters
    SNR     signal / noise

Adam's first update is the sign of the step's gradient times the rate, so to first order a step s gains

    rate * sign(mean of g over s) . grad P(right)

where grad P(right) is estimated by groups outside of the step. Steps are cut from random orders of the groups, and
the figure is the mean over steps and outside groups. Intervals: the jackknife's pseudo-values of the groups (n times
the figure less n - 1 times the figure without the group) are resampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

CHUNK = 1 << 16
"""Parameters that are handled at a time: signs of many steps at once would fill the memory."""
ORDERS = 20
"""Random orders of the groups, each cut into steps."""
DRAWS = 2000
"""Of the bootstrap."""


@dataclass(frozen=True)
class JackknifeEstimate:
    """A figure with its 95 % interval, and the pseudo-value of each group."""

    value: float
    low: float
    high: float
    parts: torch.Tensor
    """(n,) float64."""

    def less(self, other: JackknifeEstimate, seed: int) -> JackknifeEstimate:
        """Return the difference to another figure of the same groups, paired by group."""
        return _interval(self.value - other.value, self.parts - other.parts, seed)


def jackknifed(figure: Callable[[torch.Tensor], float], n: int, seed: int) -> JackknifeEstimate:
    """Return a figure with its interval.

    Args:
        figure: computes it from the numbers of some of the groups.
        n: number of groups.
        seed: seed of the bootstrap.
    """
    everyone = torch.arange(n)
    value = figure(everyone)
    without = torch.tensor([figure(everyone[everyone != group]) for group in range(n)], dtype=torch.float64)
    return _interval(value, n * value - (n - 1) * without, seed)


def _interval(value: float, parts: torch.Tensor, seed: int) -> JackknifeEstimate:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(parts), (DRAWS, len(parts)), generator=generator)
    low, high = torch.quantile(parts[drawn].mean(1), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    # The pseudo-values' mean is the figure without the jackknife's bias; the interval is put around the figure itself.
    shift = value - float(parts.mean())
    return JackknifeEstimate(value, low + shift, high + shift, parts)


def gram(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the inner products of rows, (n, P) and (m, P) to (n, m) float64."""
    chunks = zip(torch.split(a, CHUNK, dim=1), torch.split(b, CHUNK, dim=1), strict=True)
    return torch.stack([(x.double() @ y.double().T) for x, y in chunks]).sum(0)


def snr(products: torch.Tensor, groups: torch.Tensor, step: int) -> float:
    """Return signal over noise of a step of `step` groups, from the groups' inner products (n, n); 0 without noise."""
    own = products[groups][:, groups]
    n = len(groups)
    square, spread = float(own.mean()), float((own.diagonal().sum() - n * own.mean()) / (n - 1))
    return (square - spread / n) / (spread / step) if spread > 0 else 0.0


def noise_share(whole: torch.Tensor, part: torch.Tensor, groups: torch.Tensor) -> float:
    """Return the share of the whole's variance that a summand brings, covariance included; 0 without noise.

    Args:
        whole: inner products of the whole, (n, n).
        part: inner products of the summand with the whole, (n, n).
        groups: numbers of the groups that count.
    """

    def spread(products: torch.Tensor) -> float:
        own = products[groups][:, groups]
        return float(own.diagonal().sum() - len(groups) * own.mean())

    total = spread(whole)
    return spread(part) / total if total > 0 else 0.0


def steps_of(trained: Sequence[int], step: int, seed: int) -> torch.Tensor:
    """Cut random orders of the groups into steps: (R, step) numbers of groups; what is left of an order is left out."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.tensor(list(trained))
    orders = [numbers[torch.randperm(len(numbers), generator=generator)] for _ in range(ORDERS)]
    return torch.cat([order[: len(order) // step * step].view(-1, step) for order in orders])


def cosine(products: torch.Tensor, steps: torch.Tensor, groups: torch.Tensor) -> float:
    """Return the mean cosine of a step's gradient with the mean of the groups outside of it.

    Args:
        products: inner products of the groups, (n, n).
        steps: (R, step) numbers of groups.
        groups: numbers of the groups that count; steps with others are left out.
    """
    cosines = []
    for step in _inside(steps, groups):
        rest = groups[~torch.isin(groups, step)]
        dot, own, other = (float(products[a][:, b].mean()) for a, b in ((step, rest), (step, step), (rest, rest)))
        if own > 0 and other > 0:
            cosines.append(dot / (own * other) ** 0.5)
    return sum(cosines) / len(cosines) if cosines else 0.0


def step_gains(
    gradients: torch.Tensor, goals: Sequence[torch.Tensor], steps: torch.Tensor, rate: float
) -> list[torch.Tensor]:
    """Return for each goal what each step's first update gains by the goal's gradient of each group: (R, n) float64.

    Args:
        gradients: an estimator's, of the groups: (n, P).
        goals: of the P(right) of several turns, of the groups: (n, P) each.
        steps: (R, step) numbers of groups.
        rate: Adam's.
    """
    mixed = torch.zeros(len(steps), len(gradients)).scatter_(1, steps, 1.0)
    by_goal = [torch.zeros(len(steps), len(gradients), dtype=torch.float64) for _ in goals]
    for first in range(0, gradients.shape[1], CHUNK):
        chunk = slice(first, first + CHUNK)
        signs = (mixed @ gradients[:, chunk]).sign()
        for gains, goal in zip(by_goal, goals, strict=True):
            gains += rate * (signs @ goal[:, chunk].T).double()
    return by_goal


def mean_gain(gains: torch.Tensor, steps: torch.Tensor, targets: torch.Tensor, groups: torch.Tensor) -> float:
    """Return the mean gain over steps, and over the target groups outside of each.

    Args:
        gains: (R, n).
        steps: (R, step) numbers of groups.
        targets: (n,) bool: which groups' P(right) counts.
        groups: numbers of the groups that count; steps with others are left out.
    """
    counted = torch.zeros_like(targets)
    counted[groups] = True
    used = torch.isin(steps, groups).all(1)
    pairs = (targets & counted).repeat(len(steps), 1)
    pairs &= ~torch.zeros_like(pairs).scatter_(1, steps, True)
    pairs &= used[:, None]
    return float(gains[pairs].mean()) if bool(pairs.any()) else 0.0


def _inside(steps: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    return steps[torch.isin(steps, groups).all(1)]
