# SPDX-License-Identifier: Apache-2.0
"""ACES: find out which of many tests tell candidates apart, from a table of candidates and tests alone.

`outcome_table` makes the table from the gym's outcomes, `weights` gives each test a weight, `scores` gives each
candidate a score, `select` chooses the candidates to keep, and `report` lists the facts of each test. Source: arXiv
2604.03922. ACES never sees the right answer: where most candidates share a fault, it prefers that fault. So it ranks
candidates that a reference has already judged, and does not replace a reference.
"""

from verl_kernel.aces.selection import report, scores, select
from verl_kernel.aces.table import outcome_table
from verl_kernel.aces.weighting import Weights, weights

__all__ = ["Weights", "outcome_table", "report", "scores", "select", "weights"]
