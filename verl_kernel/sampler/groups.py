# SPDX-License-Identifier: Apache-2.0
"""Zero-variance groups: prompts that teach nothing because all of their rollouts earned the same in every turn.

For any discount, the group-relative advantages of a prompt are 0 in all turns exactly in this case: returns agree in
all turns if and only if rewards do. A rollout that ended early earned 0 in the turns it did not reach. A
prompt with a single rollout, or with rows that carry no turns, never counts as one.

With `group_spread: last_turn`, only the last reward of each rollout is compared, as in the published recipe. Then a
prompt whose rollouts differ in earlier turns only counts as zero-variance although it could teach.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from verl_kernel.reward.record import TurnRecord


def prompt_of(key: str) -> str:
    """Return the prompt's uid from a trajectory's key (verl's `{uid}_{session}_{output}`)."""
    return key.rsplit("_", 2)[0]


def has_zero_variance(rewards: Sequence[Sequence[float]], std: float) -> bool:
    """Whether the rollouts of one prompt earned the same in every turn.

    Args:
        rewards: per rollout, the rewards of its turns.
        std: standard deviation of a turn's rewards up to which they count as equal.
    """
    if len(rewards) < 2 or not all(rewards):
        return False
    width = max(map(len, rewards))
    padded = ([*row, *[0.0] * (width - len(row))] for row in rewards)
    return all(statistics.pstdev(turn) <= std for turn in zip(*padded, strict=True))


def compared_rewards(turns: Sequence[TurnRecord], spread: str) -> list[float]:
    """Return the rewards of a rollout that the filter compares: those of all `turns`, or that of the `last_turn`."""
    return [turn.reward for turn in (turns[-1:] if spread == "last_turn" else turns)]


def zero_variance_prompts(
    rows: Iterable[tuple[str, Sequence[TurnRecord]]], std: float, spread: str = "turns"
) -> dict[str, bool]:
    """Return for every prompt's uid whether its group has zero variance.

    Args:
        rows: key and turns of each trajectory.
        std: as in `has_zero_variance`.
        spread: as in `compared_rewards`.
    """
    groups: dict[str, list[list[float]]] = defaultdict(list)
    for key, turns in rows:
        groups[prompt_of(key)].append(compared_rewards(turns, spread))
    return {uid: has_zero_variance(rewards, std) for uid, rewards in groups.items()}
