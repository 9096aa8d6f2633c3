# SPDX-License-Identifier: Apache-2.0
"""The facts of one judged answer that figures need, and the rules for correct, fast, lost, decoy and hack."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.figures.speed_of_light import roofline_share, sol_score


@dataclass(frozen=True)
class Attempt:
    """One answer to a task, in a sample (an independent trajectory), at a turn."""

    task: str
    sample: int
    """Number of the sample, from 0."""
    turn: int
    """Number of the turn, from 1."""
    status: str
    """`env.EvalStatus` as text; `decoy` even if the gym only recorded that it is one."""
    correct: bool
    """Whether the answer may earn a reward: right values that come from its own kernels, no hack, safe."""
    compiled: bool = False
    speedup: float | None = None
    """Point estimate of the speedup; None if it is unknown or the answer is not correct."""
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
    found_decoy: bool = False
    """Whether its kernels were found not to matter, independent of the verdict."""
    time_coverage: float | None = None
    """Share of device time in its own kernels; None if it is unknown or the answer is not correct."""
    number_coverage: float | None = None
    """Share of launches that are its own kernels; None as above."""

    @property
    def lost(self) -> bool:
        """Whether the gym failed, so that nothing is known about the answer."""
        return self.status == "infra_error"

    @property
    def is_decoy(self) -> bool:
        """Whether its kernels do not matter for its output."""
        return self.found_decoy or self.status == "decoy"

    @property
    def is_hack(self) -> bool:
        """Whether it is a hack or a decoy."""
        return self.is_decoy or self.status == "hacking"

    def is_fast(self, p: float) -> bool:
        """Whether it is correct and more than `p` times as fast as the reference (fast_p of arXiv 2502.10517)."""
        return self.correct and self.speedup is not None and self.speedup > p

    def is_surely_fast(self, p: float) -> bool:
        """Whether it is correct and the whole interval of its speedup lies above `p`, so that noise does not count."""
        return self.correct and self.sure_speedup is not None and self.sure_speedup > p


def attempt_of(
    result: EvalResult, *, task: str | None = None, sample: int = 0, turn: int = 1, tokens: int | None = None,
    level: int | None = None, family: str | None = None,
) -> Attempt:  # fmt: skip
    """Take from a verdict what figures need; numbers that are not finite or not above 0 count as unknown."""
    right = result.rewarded
    share, sol = _nearness(result) if right else (None, None)
    return Attempt(
        task=result.task_id if task is None else task, sample=sample, turn=turn, status=_status(result), correct=right,
        compiled=bool(result.compiled),
        speedup=_positive(result.speedup) if right else None,
        sure_speedup=_positive(result.sure_speedup) if right else None,
        roofline=share, sol=sol, tokens=tokens, level=level, family=family, found_decoy=bool(result.decoy_kernel),
        time_coverage=result.time_coverage if right else None,
        number_coverage=result.number_coverage if right else None,
    )  # fmt: skip


def _status(result: EvalResult) -> str:
    is_decoy = result.status is EvalStatus.OK and bool(result.decoy_kernel)
    return (EvalStatus.DECOY if is_decoy else result.status).value


def _nearness(result: EvalResult) -> tuple[float | None, float | None]:
    """Return the share of the roofline and the SOL score."""
    medians = [None if one is None else _positive(one.median) for one in (result.kernel_ms, result.reference_ms)]
    (kernel, reference), roofline = medians, _positive(result.roofline_ms)
    if kernel is None or roofline is None:
        return None, None
    sol = None if reference is None else sol_score(kernel, reference, roofline)
    return roofline_share(kernel, roofline), sol


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None
