# SPDX-License-Identifier: Apache-2.0
"""Options of the estimators of the REC family, read from `algorithm.rec`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from verl_kernel.option_group import OptionGroup


@dataclass(frozen=True)
class RecOptions(OptionGroup):
    """What `asymre_shift`, `opmd_baseline` and `red_drop_balance` have beyond `algorithm.trloo`.

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    NODE = "algorithm.rec"

    asymre_shift: Annotated[float, Interval(gt=-math.inf, lt=math.inf), "a finite number"] = -0.1
    """Added to the mean that `asymre_shift` takes off; below 0, answers are learned from a little more than avoided.
    Above 0 bad answers count more than good ones, with which policies collapse on old data."""
    opmd_baseline: Literal["mean", "logavgexp"] = "mean"
    """Baseline of `opmd_baseline`: the group's `mean`, or `logavgexp`, between the mean and the largest return."""
    opmd_tau: Annotated[float, Interval(gt=0, lt=math.inf)] = 1.0
    """Temperature of `logavgexp`: large gives the mean, small the largest return."""
    red_drop_seed: Annotated[int, Interval(ge=0)] = 0
    """Seed of the draws of `red_drop_balance`."""
