# SPDX-License-Identifier: Apache-2.0
"""What the scores need to know of one judged answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    """One answer: of a task, in a sample (an independent trajectory), at a turn."""

    task: str
    sample: int
    """From 0."""
    turn: int
    """From 1."""
    status: str
    """`env.EvalStatus` as text."""
    correct: bool
    """Whether the answer may earn a reward: right values that come from its own kernels, no hack, safe."""
    compiled: bool = False
    speedup: float | None = None
    """Of the point estimate; null where it is unknown or the answer is not correct."""
    sure_speedup: float | None = None
    """Lower end of the speedup's interval; on a simulated clock the speedup itself."""
    roofline: float | None = None
    """Share of the fastest possible time that the answer reaches, in [0, 1]."""
    sol: float | None = None
    """SOL score: 0.5 at the reference's time, 1 at the roofline."""
    tokens: int | None = None
    """Tokens of the prompt and of the answer together."""
    level: int | None = None
    family: str | None = None

    @property
    def lost(self) -> bool:
        """Whether the gym failed, so that nothing is known about the answer."""
        return self.status == "infra_error"
