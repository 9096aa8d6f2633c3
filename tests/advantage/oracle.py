# SPDX-License-Identifier: Apache-2.0
"""Naive turn-level advantages, written as the paper's sums with plain loops. The e2e test imports this too."""

from __future__ import annotations


def returns_to_go(rewards: list[float], gamma: float) -> list[float]:
    return [sum(gamma ** (s - t) * rewards[s] for s in range(t, len(rewards))) for t in range(len(rewards))]


def naive_advantages(
    turn_rewards: list[list[float]], uids: list[str], gamma: float, singleton: str, leave_one_out: bool
) -> list[list[float]]:
    returns = [returns_to_go(rewards, gamma) for rewards in turn_rewards]
    advantages: list[list[float]] = []
    for i, row in enumerate(returns):
        advantages.append([])
        for t, value in enumerate(row):
            group = [j for j in range(len(returns)) if uids[j] == uids[i] and len(returns[j]) > t]
            if len(group) == 1:
                advantages[i].append(value if singleton == "raw" else 0.0)
                continue
            baseline = [returns[j][t] for j in group if j != i or not leave_one_out]
            advantages[i].append(value - sum(baseline) / len(baseline))
    return advantages


def naive_trloo(
    turn_rewards: list[list[float]], uids: list[str], gamma: float = 1.0, singleton: str = "zero"
) -> list[list[float]]:
    """Leave-one-out advantage of every turn of every trajectory."""
    return naive_advantages(turn_rewards, uids, gamma, singleton, leave_one_out=True)


def naive_turn_grpo(
    turn_rewards: list[list[float]], uids: list[str], gamma: float = 1.0, singleton: str = "zero"
) -> list[list[float]]:
    """Advantage of every turn of every trajectory against the mean of its whole group."""
    return naive_advantages(turn_rewards, uids, gamma, singleton, leave_one_out=False)
