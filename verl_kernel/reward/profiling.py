# SPDX-License-Identifier: Apache-2.0
"""Profiling-based reward (PR) of one evaluated candidate (Dr. Kernel, Eq. 7 and 8).

    r = scale * (correct_weight + speedup_weight * f(speedup) + coverage_weight * coverage)

(less `slow_penalty` where the speedup is below 1) for a candidate whose result is `rewarded` (correct and, unless
`pay_decoys`, no decoy). `scale` 1 is the paper's Eq. 8, 0.5 the released recipe. f is what `variant` chooses:

    sum         min(speedup, speedup_cap)
    weighted    1 where speedup >= 1 + margin, else 0
    milestone   the value of the highest of `MILESTONES` that the speedup reaches, 0 below the first

The speedup is the lower end of its confidence interval unless `speedup` is `point`, so that noise never pays; measured
ones within 2 % of 1 count as 1 either way. On a simulated clock there is no noise, and the two are the same.

Any other candidate earns 0 less the penalty of its kind. Penalties are 0 by default and not scaled. A measurement
that is unknown earns nothing and costs nothing.
"""

from __future__ import annotations

import math

from verl_kernel.env.clock.statistics import is_parity
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import InfraError
from verl_kernel.options import ProfilingReward

COVERAGES = {"time": "time_coverage", "number": "number_coverage"}
MILESTONES = ((3.0, 1.0), (2.0, 0.8), (1.5, 0.6), (1.2, 0.4), (1.0, 0.2))
"""(speedup reached, value), highest first."""
_HACKS = (EvalStatus.DECOY, EvalStatus.HACKING)
_NOT_COMPILED = (EvalStatus.REJECTED_STATIC, EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR)


def profiling_reward(result: EvalResult, options: ProfilingReward | None = None) -> float:
    """Reward of one candidate; without penalties never below 0.

    Args:
        result: the verdict on the candidate.
        options: variant, weights, caps and penalties.

    Raises:
        InfraError: the candidate was not judged (`infra_error`), or a measurement is not a finite number;
            neither says anything about the candidate, so neither may become a reward.
    """
    options = options or ProfilingReward()
    if result.status is EvalStatus.INFRA_ERROR:
        reason = result.error.message if result.error else "no reason given"
        raise InfraError(f"task {result.task_id} was not judged ({reason}); an infra_error has no reward")
    paid_decoy = options.pay_decoys and result.status is EvalStatus.OK and result.correctness
    if not (result.rewarded or paid_decoy):
        return 0.0 - _penalty(result, options)
    point = _point(result)
    speedup = point if options.speedup == "point" else _measured(result, "sure_speedup")
    coverage = min(_measured(result, COVERAGES[options.coverage]) or 0.0, 1.0)
    worth = 0.0 if speedup is None else _worth(speedup, options)
    earned = options.correct_weight + options.speedup_weight * worth + options.coverage_weight * coverage
    slow = point is not None and point < 1.0
    return options.scale * earned - (options.slow_penalty if slow else 0.0)


def _point(result: EvalResult) -> float | None:
    speedup = _measured(result, "speedup")
    if speedup is None or result.timing_source == "simulated":
        return speedup
    return 1.0 if is_parity(speedup) else speedup


def _worth(speedup: float, options: ProfilingReward) -> float:
    if options.variant == "sum":
        return min(speedup, options.speedup_cap)
    if options.variant == "weighted":
        return float(speedup >= 1.0 + options.margin)
    return next((value for reached, value in MILESTONES if speedup >= reached), 0.0)


def _penalty(result: EvalResult, options: ProfilingReward) -> float:
    if result.decoy_kernel or result.status in _HACKS:
        return options.decoy_penalty
    if result.status in _NOT_COMPILED:
        return options.uncompiled_penalty
    # A verdict `ok` that is not rewarded is not known to be correct.
    if result.status in (EvalStatus.INCORRECT, EvalStatus.OK):
        return options.incorrect_penalty
    return options.failure_penalty


def _measured(result: EvalResult, key: str) -> float | None:
    value = getattr(result, key)
    if value is None:
        return None
    if not math.isfinite(value) or value < 0:
        raise InfraError(f"task {result.task_id} was judged with {key} {value}: the evaluator's measurement is broken")
    return float(value)
