# SPDX-License-Identifier: Apache-2.0
"""Pass rates of prompts from decayed counts (Reinforce-Ada-Est, arXiv 2510.04996, Algorithm 1).

For the n rollouts of a prompt in a step, k of them positive:

    N_tot <- lambda N_tot + n,   N_pos <- lambda N_pos + k,   p = (N_pos + alpha) / (N_tot + alpha + beta)

A log of all that was counted, one JSON object per batch, lets a resumed run know the pass rates. Its fields: `step`,
and `found` with the number of rollouts and of positive ones by prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_kernel.files import read_objects


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
    tallies: dict[str, tuple[float, float]] = field(default_factory=dict)
    """N_tot and N_pos of each prompt."""

    def update(self, batch_counts: Mapping[str, tuple[int, int]]) -> None:
        """Add a step's rollouts: for each prompt, the number of rollouts and of positive ones."""
        for name, (rollouts, positives) in batch_counts.items():
            total, hits = self.tallies.get(name, (0.0, 0.0))
            self.tallies[name] = (self.decay * total + rollouts, self.decay * hits + positives)

    def share(self, name: str) -> float:
        """Return the pass rate of a prompt; the prior's mean if the prompt was never seen."""
        total, hits = self.tallies.get(name, (0.0, 0.0))
        return (hits + self.prior_positive) / (total + self.prior_positive + self.prior_negative)


class CountLog:
    """Keeps the log file; `restore` removes lines that an earlier run wrote for later steps.

    Args:
        path: the file; its folder is created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = False

    def restore(self, step: int, counts: Counts) -> None:
        """Give `counts` the results of all steps before `step`; only the first call does so."""
        if self._open:
            return
        self._open = True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A run that was killed may have left the start of a line, which is skipped.
        batches = read_objects(self._path) if self._path.exists() else ()
        earlier = [batch for batch in batches if batch["step"] < step]
        for batch in earlier:
            counts.update(batch["found"])
        self._path.write_text("".join(f"{json.dumps(batch)}\n" for batch in earlier), encoding="utf-8")

    def append(self, step: int, batch_counts: Mapping[str, tuple[int, int]]) -> None:
        """Append the counts of a step's batch."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "found": batch_counts}) + "\n")
