# SPDX-License-Identifier: Apache-2.0
"""Pass rates of prompts from decayed counts (Reinforce-Ada-Est, arXiv 2510.04996, Algorithm 1).

For the n rollouts of a prompt in a step, k of them positive:

    N_tot <- lambda N_tot + n,   N_pos <- lambda N_pos + k,   p = (N_pos + alpha) / (N_tot + alpha + beta)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Decayed numbers of rollouts and of positive ones, by prompt.

    Args:
        decay: lambda.
        prior_positive: alpha.
        prior_negative: beta.
    """

    decay: float
    prior_positive: float
    prior_negative: float
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    """N_tot and N_pos of each prompt."""

    def update(self, found: Mapping[str, tuple[int, int]]) -> None:
        """Add a step's rollouts: for each prompt, the number of rollouts and of positive ones."""
        for name, (rollouts, positives) in found.items():
            total, hits = self.seen.get(name, (0.0, 0.0))
            self.seen[name] = (self.decay * total + rollouts, self.decay * hits + positives)

    def share(self, name: str) -> float:
        """Return the pass rate of a prompt; the prior's mean if the prompt was never seen."""
        total, hits = self.seen.get(name, (0.0, 0.0))
        return (hits + self.prior_positive) / (total + self.prior_positive + self.prior_negative)
