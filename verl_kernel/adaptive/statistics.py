# SPDX-License-Identifier: Apache-2.0
"""What is known about a prompt's pool after its rollouts were chosen; it travels as the prompt's tag `ada_pool`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
        return {**asdict(self), "rewards": [list(own) for own in self.rewards]}

    @classmethod
    def from_tag(cls, tag: Mapping[str, Any]) -> PoolStatistics:
        """Read what `tag` wrote."""
        return cls(**{**tag, "rewards": tuple(tuple(own) for own in tag["rewards"])})
