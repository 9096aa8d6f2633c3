# SPDX-License-Identifier: Apache-2.0
"""Profiling-based reward (PR) of one evaluated candidate (Dr. Kernel, Eq. 7 and 8).

    r = scale * (correct_weight + speedup_weight * f(speedup) + coverage_weight * coverage + terms added by others)

(less `slow_penalty` where the speedup is below 1) for a candidate that `earns`. `scale` 1 is the paper's Eq. 8, 0.5 the
released recipe. f is what `variant` chooses:

    sum         min(speedup, speedup_cap)
    weighted    1 where speedup >= 1 + margin, else 0
    milestone   the value of the highest of `MILESTONES` that the speedup reaches, 0 below the first

The speedup is the lower end of its confidence interval unless `speedup` is `point`, so that noise never pays; measured
ones within 2 % of 1 count as 1 either way. On a simulated clock there is no noise, and the two are the same.

Any other candidate earns 0 less the penalty of its kind. Penalties are 0 by default and not scaled. A measurement
that is unknown earns nothing and costs nothing. `TERMS` is open to other packages (docs/howto/reward_term.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.env import ONLY_THIS_SIZE, EvalResult, EvalStatus, is_parity
from verl_kernel.errors import ConfigError, InfraError
from verl_kernel.option_group import OptionGroup

COVERAGES = {"time": "time_coverage", "number": "number_coverage"}
MILESTONES = ((3.0, 1.0), (2.0, 0.8), (1.5, 0.6), (1.2, 0.4), (1.0, 0.2))
"""(speedup reached, value), highest first."""
WEIGHTS = ("correct_weight", "speedup_weight", "coverage_weight")
_Amount = Annotated[float, Interval(ge=0, lt=math.inf)]
_HACKS = (EvalStatus.DECOY, EvalStatus.HACKING)
_NOT_COMPILED = (EvalStatus.REJECTED_STATIC, EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR)


@dataclass(frozen=True)
class ProfilingReward(OptionGroup):
    """Options of the reward, read from `kernelgym.reward`.

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names
            `kernelgym.reward.<key>`.
    """

    NODE = "kernelgym.reward"

    variant: Literal["sum", "weighted", "milestone"] = "sum"
    """f, what a speedup is worth: `sum` (min(speedup, speedup_cap)), `weighted` (1 where speedup >= 1 + margin) or
    `milestone` (0.2 at 1x to 1 at 3x)."""
    speedup: Literal["point", "low"] = "low"
    """Which speedup: `low` (the lower end of its interval; unknown in a measured record without one) or `point`."""
    sizes: Literal["mean", "worst"] = "mean"
    """Which speedup of a task of several sizes: `mean` (the geometric one) or `worst` (the least)."""
    scale: _Amount = 0.5
    """Factor of the sum r = scale * (correct_weight + speedup_weight * f(speedup) + coverage_weight * coverage), which
    a correct kernel earns: 0.5 in the released recipe, 1.0 in the paper's Eq. 8."""
    speedup_cap: _Amount = 3.0
    """Speedup beyond which `sum` earns nothing more."""
    margin: _Amount = 0.01
    """By how much a candidate must beat the reference for `weighted` to count it as faster."""
    correct_weight: _Amount = 1.0
    """What it is worth that a kernel is correct."""
    speedup_weight: _Amount = 1.0
    """Factor of f(speedup)."""
    coverage_weight: _Amount = 1.0
    """Factor of the coverage."""
    coverage: Literal["time", "number"] = "time"
    """`time` (share of device time in the candidate's own kernels) or `number` (share of launches)."""
    decoy_penalty: _Amount = 0.0
    """Taken from decoys and hacks."""
    uncompiled_penalty: _Amount = 0.0
    """Taken where there was no program, or the gate, the import or Triton refused it."""
    incorrect_penalty: _Amount = 0.0
    """Taken from wrong answers."""
    failure_penalty: _Amount = 0.0
    """Taken from candidates that raised, crashed, timed out or ran out of memory."""
    only_this_size: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Factor of what a kernel earns that is wrong at a size that its task does not name; needs
    `kernelgym.other_sizes: true`."""
    slow_penalty: _Amount = 0.0
    """Taken from correct candidates whose point speedup is below 1, beyond the A/A band where it was measured."""
    pay_decoys: bool = False
    """Whether a correct decoy earns what a kernel earns, for ablations; needs `kernelgym.decoys: record`."""
    terms: Annotated[Mapping[str, _Amount], "a mapping of terms to finite numbers of at least 0"] = field(
        default_factory=dict, hash=False
    )
    """Weights of terms that other packages have added to `TERMS`, by name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_terms()
        self._refuse_contradictions()

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every term of the sum, by the term's name in `TERMS`."""
        return {**{key.removesuffix("_weight"): getattr(self, key) for key in WEIGHTS}, **self.terms}

    def _check_terms(self) -> None:
        added = [name for name in TERMS if f"{name}_weight" not in WEIGHTS]
        for name in self.terms:
            if name not in added:
                raise ConfigError(
                    f"kernelgym.reward.terms.{name} is no term that was added (added: {', '.join(added) or 'none'}): "
                    "name the module that adds it in VERL_USE_EXTERNAL_MODULES"
                )

    def _refuse_contradictions(self) -> None:
        for key, variant in (("speedup_cap", "sum"), ("margin", "weighted")):
            value, default = getattr(self, key), getattr(ProfilingReward, key)
            if value != default and self.variant != variant:
                raise ConfigError(
                    f"kernelgym.reward.{key} is {value} but variant is {self.variant}, which does not read it: leave "
                    f"it out, or set kernelgym.reward.variant={variant}"
                )
        if self.scale == 0 or not any(self.weights.values()):
            key = "scale" if self.scale == 0 else "correct_weight"
            raise ConfigError(
                f"kernelgym.reward.{key} is 0 and nothing else can be earned: give scale and one of "
                f"{', '.join(WEIGHTS)} a value above 0"
            )


def earns(result: EvalResult, pay_decoys: bool = False) -> bool:
    """Whether a candidate may earn: it is right, on a task that tells, and no decoy unless decoys are paid."""
    return result.solves if pay_decoys else result.rewarded


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
    if options.sizes == "worst" and result.sizes is not None:
        result = result.at_worst_size()
    if not earns(result, options.pay_decoys):
        return 0.0 - _penalty(result, options)
    earned = sum(weight * TERMS[name](result, options) for name, weight in options.weights.items())
    earned *= options.only_this_size if ONLY_THIS_SIZE in result.hack_flags else 1.0
    point = _point(result)
    slow = point is not None and point < 1.0
    return options.scale * earned - (options.slow_penalty if slow else 0.0)


def _correct(result: EvalResult, options: ProfilingReward) -> float:
    return 1.0


def _speedup(result: EvalResult, options: ProfilingReward) -> float:
    speedup = _point(result) if options.speedup == "point" else _measured(result, "sure_speedup")
    return 0.0 if speedup is None else _WORTHS[options.variant](speedup, options)


def _coverage(result: EvalResult, options: ProfilingReward) -> float:
    return min(_measured(result, COVERAGES[options.coverage]) or 0.0, 1.0)


Term = Callable[[EvalResult, ProfilingReward], float]
"""What a rewarded candidate has by one measure, before its weight: 0 is nothing, 1 by convention a full score."""
TERMS: dict[str, Term] = {"correct": _correct, "speedup": _speedup, "coverage": _coverage}
"""The terms of the sum. The weight of one that another package adds stands in `kernelgym.reward.terms`."""


def _point(result: EvalResult) -> float | None:
    speedup = _measured(result, "speedup")
    if speedup is None or result.is_simulated:
        return speedup
    return 1.0 if is_parity(speedup) else speedup


def _milestone(speedup: float, options: ProfilingReward) -> float:
    return next((value for reached, value in MILESTONES if speedup >= reached), 0.0)


_WORTHS: dict[str, Callable[[float, ProfilingReward], float]] = {
    "sum": lambda speedup, options: min(speedup, options.speedup_cap),
    "weighted": lambda speedup, options: float(speedup >= 1.0 + options.margin),
    "milestone": _milestone,
}


def _penalty(result: EvalResult, options: ProfilingReward) -> float:
    if result.decoy_kernel or result.status in _HACKS:
        return options.decoy_penalty
    if result.status in _NOT_COMPILED:
        return options.uncompiled_penalty
    # A verdict `ok` that is not rewarded is not known to be correct.
    if result.status in (EvalStatus.INCORRECT, EvalStatus.SIZE_DEPENDENT, EvalStatus.OK):
        return options.incorrect_penalty
    return options.failure_penalty


def _measured(result: EvalResult, key: str) -> float | None:
    value = getattr(result, key)
    if value is None:
        return None
    if not math.isfinite(value) or value < 0:
        raise InfraError(f"task {result.task_id} was judged with {key} {value}: the evaluator's measurement is broken")
    return float(value)
