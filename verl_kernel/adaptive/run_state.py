# SPDX-License-Identifier: Apache-2.0
"""What manager, sampler and estimator of a run tell each other.

verl hands no object of ours from one to the other, but all three live in the trainer's process: the manager begins the
state, the sampler writes to it, the estimator reads it. In other processes there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_kernel.adaptive.count_log import CountLog
from verl_kernel.adaptive.counts import Counts
from verl_kernel.adaptive.options import PRIOR, AdaOptions
from verl_kernel.adaptive.statistics import PoolStatistics


@dataclass
class RunState:
    """State of Reinforce-Ada in the trainer's process."""

    options: AdaOptions
    counts: Counts
    count_log: CountLog | None
    pools: dict[str, PoolStatistics] = field(default_factory=dict)
    """By uid, the pools of the batch that is trained on."""
    pass_rates: dict[str, float] = field(default_factory=dict)
    """By uid, with budgets: the share of positives among the judged rollouts of the batch that is trained on."""

    def restore(self, step: int) -> None:
        """Read, once, what an earlier run counted before this step."""
        if self.count_log is not None:
            self.count_log.restore(step, self.counts)

    def count(self, step: int, found: Mapping[str, tuple[int, int]]) -> None:
        """Count a batch: by prompt, how many rollouts there were and how many were positive."""
        self.restore(step)
        self.counts.update(found)
        if self.count_log is not None:
            self.count_log.append(step, found)


_states: list[RunState] = []


def begin(options: AdaOptions) -> RunState:
    """Make the state of a run that begins in this process."""
    counts = Counts(options.decay, PRIOR, PRIOR)
    log = CountLog(Path(options.counts_file)) if options.sampling == "est" and options.counts_file else None
    _states[:] = [RunState(options, counts, log)]
    return _states[0]


def current() -> RunState | None:
    """The state of the run in this process; `None` where none began."""
    return _states[0] if _states else None
