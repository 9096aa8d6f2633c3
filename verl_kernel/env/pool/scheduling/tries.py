# SPDX-License-Identifier: Apache-2.0
"""How often an evaluation that failed for reasons of ours is done again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Generic

from verl_kernel.env.pool.scheduling.judge_handle import Handle, JudgeLost
from verl_kernel.errors import InfraError

ATTEMPTS = 2
"""Attempts that may fail while the judge, or an owner who restarts it, is still there."""
_LOSSES = 3
"""Further attempts after the judge was lost with its node: the node's other judges are lost one after another."""


@dataclass
class Tries(Generic[Handle]):
    """The attempts at one evaluation."""

    made: int = 0
    lost: int = 0
    """Those that ended with the judge's actor or node."""
    suspect: Handle | None = None
    """The judge that failed last."""
    failure: Exception = field(default_factory=lambda: InfraError("no attempt was made"))
    """How it failed."""
    queue_seconds: float = 0.0
    """From the beginning to the first judge."""
    begun: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        """Note that a judge is there for another attempt."""
        self.queue_seconds = self.queue_seconds if self.made else time.monotonic() - self.begun
        self.made += 1

    def failed(self, judge: Handle, failure: InfraError) -> None:
        """Note that it failed."""
        self.suspect, self.failure = judge, failure
        self.lost += isinstance(failure, JudgeLost)

    @property
    def left(self) -> bool:
        """Whether there is another one."""
        return self.made - self.lost < ATTEMPTS and self.lost <= _LOSSES
