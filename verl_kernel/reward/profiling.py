# SPDX-License-Identifier: Apache-2.0
"""Profiling-based reward (PR) of one evaluated candidate (Dr. Kernel, Eq. 7 and 8).

    r = scale * (correct_weight + speedup_weight * min(speedup, speedup_cap) + coverage_weight * coverage)

for a candidate whose result is `rewarded` (correct and no decoy), else 0. `scale` 1 is the paper's Eq. 8, 0.5 the
released recipe. A measurement that is unknown earns nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import ConfigError, InfraError

COVERAGES = {"time": "time_coverage", "number": "number_coverage"}


@dataclass(frozen=True)
class ProfilingReward:
    """Options of the reward, read from `kernelgym.reward`.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.reward.<key>`.
    """

    scale: float = 0.5
    speedup_cap: float = 3.0
    """Speedup beyond which nothing more is earned."""
    correct_weight: float = 1.0
    speedup_weight: float = 1.0
    coverage_weight: float = 1.0
    coverage: str = "time"
    """`time` (share of device time in the candidate's own kernels) or `number` (share of launches)."""

    def __post_init__(self) -> None:
        for key in ("scale", "speedup_cap", "correct_weight", "speedup_weight", "coverage_weight"):
            value = getattr(self, key)
            numeric = isinstance(value, int | float) and not isinstance(value, bool)
            if not numeric or not math.isfinite(value) or value < 0:
                raise ConfigError(f"kernelgym.reward.{key} is {value!r}; it must be a finite number of at least 0")
        if self.coverage not in COVERAGES:
            raise ConfigError(f"kernelgym.reward.coverage is {self.coverage!r}; it must be time or number")


def profiling_reward(result: EvalResult, options: ProfilingReward | None = None) -> float:
    """Reward of one candidate, in [0, scale * (correct_weight + speedup_weight * speedup_cap + coverage_weight)].

    Args:
        result: the verdict on the candidate.
        options: weights and caps.

    Raises:
        InfraError: the candidate was not judged (`infra_error`), or a measurement is not a finite number;
            neither says anything about the candidate, so neither may become a reward.
    """
    options = options or ProfilingReward()
    if result.status is EvalStatus.INFRA_ERROR:
        reason = result.error.message if result.error else "no reason given"
        raise InfraError(f"task {result.task_id} was not judged ({reason}); an infra_error has no reward")
    if not result.rewarded:
        return 0.0
    speedup = min(_measured(result, "speedup"), options.speedup_cap)
    coverage = min(_measured(result, COVERAGES[options.coverage]), 1.0)
    earned = options.correct_weight + options.speedup_weight * speedup + options.coverage_weight * coverage
    return options.scale * earned


def _measured(result: EvalResult, key: str) -> float:
    value = getattr(result, key)
    if value is None:
        return 0.0
    if not math.isfinite(value) or value < 0:
        raise InfraError(f"task {result.task_id} was judged with {key} {value}: the evaluator's measurement is broken")
    return float(value)
