# SPDX-License-Identifier: Apache-2.0
"""What is known of a prompt's pool after its rollouts were chosen; travels as the tag `ada_pool` of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

TAG = "ada_pool"


@dataclass(frozen=True)
class PoolStatistics:
    """A pool in numbers."""

    draws: int
    """Rollouts started."""
    rewards: tuple[tuple[float, ...], ...]
    """Rewards of the turns of every rollout that could be judged."""
    positives: int
    reason: str
    """Why no more were drawn: `met` (the exit rule), `limit` (`max_draws`), `stalled` (a round brought nothing)."""
    judge_calls: int = 0
    """Candidates that the draws had judged."""
    judge_seconds: float = 0.0
    """Seconds that judges spent on them."""

    @property
    def share(self) -> float:
        """Share of positives among the judged rollouts; 0 without any."""
        return self.positives / len(self.rewards) if self.rewards else 0.0

    def weight(self, cap: float) -> float:
        """1 over the share of positives, at most `cap` (>= 1)."""
        return min(1.0 / self.share, cap) if self.share > 0 else cap

    def flat(self, tolerance: float) -> bool:
        """Whether all rollouts earned the same in every turn, so that no gradient is left.

        Args:
            tolerance: largest difference between rewards that are the same.
        """
        width = max(map(len, self.rewards), default=0)
        padded = [(*own, *[0.0] * (width - len(own))) for own in self.rewards]
        return all(max(turn) - min(turn) <= tolerance for turn in zip(*padded, strict=True))

    def tag(self) -> dict[str, Any]:
        """As plain lists and numbers."""
        return {**asdict(self), "rewards": [list(own) for own in self.rewards]}

    @classmethod
    def from_tag(cls, tag: Mapping[str, Any]) -> PoolStatistics:
        """Read what `tag` wrote."""
        return cls(**{**tag, "rewards": tuple(tuple(own) for own in tag["rewards"])})
