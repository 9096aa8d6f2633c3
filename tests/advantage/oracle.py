# SPDX-License-Identifier: Apache-2.0
"""Naive turn-level advantages, written as the papers' sums with plain loops. The e2e test imports this too."""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from verl_kernel.advantage.turns import ZERO_REWARD


def returns_to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    return [sum(gamma ** (s - t) * rewards[s] for s in range(t, len(rewards))) for t in range(len(rewards))]


def shaped(rewards: Sequence[float], shaping: str, gamma: float) -> list[float]:
    if shaping == "none":
        return list(rewards)
    last = rewards[-1] * (1 - gamma) if shaping == "difference_terminal" else rewards[-1]
    return [b - a for a, b in zip([0.0, *rewards[:-1]], [*rewards[:-1], last], strict=True)]


def voids(rewards: Sequence[float]) -> list[bool]:
    """Whether a turn earned nothing after one before it had earned something."""
    earned = [reward if abs(reward) > ZERO_REWARD else 0.0 for reward in rewards]
    return [reward <= 0 and any(earlier > 0 for earlier in earned[:t]) for t, reward in enumerate(earned)]


def naive_advantages(
    turn_rewards: Sequence[Sequence[float]], uids: Sequence[str], *, gamma: float = 1.0, singleton: str = "zero",
    leave_one_out: bool = False, kept: Sequence[Sequence[bool]] | None = None, mask_void_turn: bool = False,
    shaping: str = "none", baseline: str = "turn", credit: str = "turn", normaliser: str = "none",
    negative_weight: float = 1.0, value: Callable[[list[float]], float] = fmean,
) -> list[list[float]]:  # fmt: skip
    """Advantages of the turns of every row; `kept` are the turns that count, all where it is None.

    The baseline is `value` of the returns in a group.
    """
    counts = kept or [[True] * len(row) for row in turn_rewards]
    returns = [returns_to_go(shaped(rewards, shaping, gamma), gamma) for rewards in turn_rewards]
    void = [[mask_void_turn and is_void for is_void in voids(rewards)] for rewards in turn_rewards]

    if credit == "trajectory":
        returns = [[row[0]] * len(row) for row in returns]

    def credited(j: int, t: int) -> float:
        if t < len(returns[j]):
            return returns[j][t]
        return returns[j][0] if credit == "trajectory" else 0.0

    def member(j: int, t: int) -> bool:
        if t < len(returns[j]):
            return counts[j][t] and not void[j][t]
        return baseline == "padded" and any(counts[j])

    advantages: list[list[float]] = []
    for i, row in enumerate(returns):
        advantages.append([])
        for t, own in enumerate(row):
            group = [j for j in range(len(returns)) if uids[j] == uids[i] and member(j, t)]
            if not member(i, t):
                advantage = 0.0
            elif len(group) == 1:
                advantage = own if singleton == "raw" else 0.0
            else:
                others = [j for j in group if j != i or not leave_one_out]
                deviation = stdev([credited(j, t) for j in group]) + 1e-6 if normaliser == "deviation" else 1.0
                advantage = (own - value([credited(j, t) for j in others])) / deviation
            advantages[i].append(advantage * (negative_weight if advantage < 0 else 1.0))
    return advantages


def naive_trloo(turn_rewards: list[list[float]], uids: list[str]) -> list[list[float]]:
    return naive_advantages(turn_rewards, uids, leave_one_out=True)
