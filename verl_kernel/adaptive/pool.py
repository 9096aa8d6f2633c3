# SPDX-License-Identifier: Apache-2.0
"""The pool of one prompt: rollouts drawn in rounds until the exit rule is satisfied (Reinforce-Ada-Seq).

Source: arXiv 2510.04996, Algorithm 2. The caller decides which rollouts are positive; rewards may be any numbers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TAG = "ada_pool"


@dataclass(frozen=True)
class PoolStatistics:
    """A pool in numbers."""

    draws: int
    """Number of rollouts started."""
    rewards: tuple[tuple[float, ...], ...]
    """Rewards of the turns of every rollout that could be judged."""
    positives: int
    reason: str
    """Why drawing ended: `met` (the exit rule), `limit` (`max_draws`), `stalled` (a round brought no rollout)."""
    judge_calls: int = 0
    """Number of candidates of these rollouts that were judged."""
    judge_seconds: float = 0.0
    """Seconds that judges spent on them."""

    @property
    def share(self) -> float:
        """Return the share of positives among the judged rollouts; 0 if there are none."""
        return self.positives / len(self.rewards) if self.rewards else 0.0

    def weight(self, cap: float) -> float:
        """Return 1 / (share of positives), at most `cap` (>= 1)."""
        return min(1.0 / self.share, cap) if self.share > 0 else cap

    def tag(self) -> dict[str, Any]:
        """Return the statistics as plain lists and numbers."""
        return {**asdict(self), "rewards": [list(turn_rewards) for turn_rewards in self.rewards]}

    @classmethod
    def from_tag(cls, tag: Mapping[str, Any]) -> PoolStatistics:
        """Read what `tag` wrote."""
        return cls(**{**tag, "rewards": tuple(tuple(turn_rewards) for turn_rewards in tag["rewards"])})


@dataclass(frozen=True)
class ExitRule:
    """The rule by which a prompt has enough rollouts."""

    k_pos: int
    """Positive rollouts that it needs."""
    k_neg: int
    """Negative rollouts that it needs: 0 in the variant `pos`."""
    size: int
    """Rollouts that it needs in any case: the number that is trained on."""
    round_size: int
    """Rollouts in a round (M)."""
    max_draws: int
    """Largest number of rollouts."""


@dataclass
class Pool:
    """The rollouts of one prompt, numbered in the order in which they were added."""

    rule: ExitRule
    draws: int = 0
    """Number of rollouts that were started, including those that were never added."""
    rewards: list[tuple[float, ...]] = field(default_factory=list)
    """The rewards of the turns of each rollout."""
    positive: list[bool] = field(default_factory=list)
    stalled: bool = False
    """Whether a whole round added no rollout."""

    def next_round(self) -> int:
        """Begin a round and return how many rollouts to draw: 0 if the pool is done."""
        if self.done():
            return 0
        count = min(self.rule.round_size, self.rule.max_draws - self.draws)
        self.draws += count
        return count

    def add(self, rewards: Sequence[Sequence[float]], positive: Sequence[bool]) -> None:
        """Add the results of a round: the rewards of each rollout's turns, and whether it is positive.

        A round without results ends the rounds: if every rollout fails, further ones would fail too.
        """
        self.stalled = self.stalled or not rewards
        self.rewards += [tuple(map(float, turn_rewards)) for turn_rewards in rewards]
        self.positive += [bool(is_positive) for is_positive in positive]

    def done(self) -> bool:
        """Whether no further round is due."""
        return self.met() or self.stalled or self.draws >= self.rule.max_draws

    def met(self) -> bool:
        """Whether the exit rule is satisfied."""
        hits = sum(self.positive)
        misses = len(self.positive) - hits
        return hits >= self.rule.k_pos and misses >= self.rule.k_neg and len(self.positive) >= self.rule.size

    def select(self, n: int, rng: random.Random) -> list[int]:
        """Return the numbers of `n` rollouts to train on, ascending; all rollouts if there are fewer.

        Half of `n`, rounded down, are positives, the others negatives; if one class has too few, the other fills the
        gap. So both classes occur whenever the pool has both and n is at least 2.
        """
        hits = [i for i, is_positive in enumerate(self.positive) if is_positive]
        misses = [i for i, is_positive in enumerate(self.positive) if not is_positive]
        from_hits = kept_positives(len(hits), len(misses), n)
        from_misses = min(n - from_hits, len(misses))
        return sorted(rng.sample(hits, from_hits) + rng.sample(misses, from_misses))

    def statistics(self) -> PoolStatistics:
        """Return what estimators and metrics need to know about the pool."""
        reason = "met" if self.met() else "stalled" if self.stalled else "limit"
        return PoolStatistics(self.draws, tuple(self.rewards), sum(self.positive), reason)


def kept_positives(hits: int, misses: int, n: int) -> int:
    """Return how many of `n` kept rollouts are positive, from a pool with `hits` positives and `misses` negatives."""
    half = min(n // 2, hits)
    return min(max(half, n - misses), hits)
