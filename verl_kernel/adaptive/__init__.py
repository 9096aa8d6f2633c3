# SPDX-License-Identifier: Apache-2.0
"""Reinforce-Ada: how many rollouts a prompt gets, and which of them are trained on (arXiv 2510.04996)."""

from verl_kernel.adaptive.budgets import budgets
from verl_kernel.adaptive.counts import Counts
from verl_kernel.adaptive.options import AdaOptions
from verl_kernel.adaptive.pool import ExitRule, Pool, PoolStatistics

__all__ = ["AdaOptions", "Counts", "ExitRule", "Pool", "PoolStatistics", "budgets"]
