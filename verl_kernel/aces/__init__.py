# SPDX-License-Identifier: Apache-2.0
"""ACES: which of many tests tell candidates apart, from a table of candidates and tests alone.

`outcome_table` makes the table of what the gym said, `weights` gives each test a weight, `scores` each candidate a
score, `select` the candidates to keep, `report` the facts of each test. Source: arXiv 2604.03922. It never sees what
is right: where most candidates share a fault it prefers that fault, so it ranks what a reference has judged and
replaces no reference.
"""

from verl_kernel.aces.selection import scores, select
from verl_kernel.aces.summary import report
from verl_kernel.aces.table import outcome_table
from verl_kernel.aces.weighting import Weights, weights

__all__ = ["Weights", "outcome_table", "report", "scores", "select", "weights"]
