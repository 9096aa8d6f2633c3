# SPDX-License-Identifier: Apache-2.0
"""Advantage estimators: pure tensor functions with verl's estimator signature, by the name they register under."""

from __future__ import annotations

from verl_kernel.adaptive import AdaOptions
from verl_kernel.advantage import ada, baselines, red_drop, rsft  # noqa: F401
from verl_kernel.advantage.options import RecOptions
from verl_kernel.advantage.registry import ESTIMATORS, GROUPED, estimator
from verl_kernel.advantage.topr import ToprOptions
from verl_kernel.option_group import OptionGroup

__all__ = ["ESTIMATORS", "GROUPED", "OPTIONS", "RecOptions", "ToprOptions", "estimator"]

OPTIONS: tuple[type[OptionGroup], ...] = (RecOptions, ToprOptions, AdaOptions)
"""Nodes of `algorithm` that some estimators read in addition to `algorithm.trloo`."""
