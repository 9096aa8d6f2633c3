# SPDX-License-Identifier: Apache-2.0
"""The state that manager, sampler and estimator of a run share.

verl passes none of our objects between them, but all three live in the trainer's process: the manager creates the
state, the sampler writes to it, and the estimator reads it. Other processes have no such state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_kernel.adaptive.counts import CountLog, Counts
from verl_kernel.adaptive.options import PRIOR, AdaOptions
from verl_kernel.adaptive.pool import PoolStatistics


@dataclass
class RunState:
    """State of Reinforce-Ada in the trainer's process."""

    options: AdaOptions
    counts: Counts
    count_log: CountLog | None
    pools: dict[str, PoolStatistics] = field(default_factory=dict)
    """The pools of the current training batch, by uid."""
    pass_rates: dict[str, float] = field(default_factory=dict)
    """With budgets: the share of positives among the judged rollouts of the current training batch, by uid."""

    def restore(self, step: int) -> None:
        """Read the counts that an earlier run wrote before this step; only the first call does so."""
        if self.count_log is not None:
            self.count_log.restore(step, self.counts)

    def count(self, step: int, batch_counts: Mapping[str, tuple[int, int]]) -> None:
        """Count a batch: for each prompt, the number of rollouts and of positive ones."""
        self.restore(step)
        self.counts.update(batch_counts)
        if self.count_log is not None:
            self.count_log.append(step, batch_counts)


_states: list[RunState] = []


def begin(options: AdaOptions) -> RunState:
    """Create the state of a run that begins in this process."""
    counts = Counts(options.decay, PRIOR, PRIOR)
    log = CountLog(Path(options.counts_file)) if options.sampling == "est" and options.counts_file else None
    _states[:] = [RunState(options, counts, log)]
    return _states[0]


def current() -> RunState | None:
    """Return the state of the run in this process; `None` if no run has begun here."""
    return _states[0] if _states else None
