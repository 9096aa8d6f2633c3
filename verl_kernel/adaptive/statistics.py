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

    def tag(self) -> dict[str, Any]:
        """As plain lists and numbers."""
        return {**asdict(self), "rewards": [list(own) for own in self.rewards]}

    @classmethod
    def from_tag(cls, tag: Mapping[str, Any]) -> PoolStatistics:
        """Read what `tag` wrote."""
        return cls(**{**tag, "rewards": tuple(tuple(own) for own in tag["rewards"])})
