# SPDX-License-Identifier: Apache-2.0
"""How close a kernel is to the fastest possible time: its share of the roofline, and NVIDIA's SOL score.

Unlike a speedup, neither grows with a slower reference. Times are in milliseconds, from the same clock.
"""

from __future__ import annotations


def roofline_share(kernel_ms: float, roofline_ms: float) -> float:
    """Return roofline time / kernel time, in [0, 1]; 1 for a kernel that needs less work than the roofline counts."""
    return min(1.0, roofline_ms / kernel_ms)


def sol_score(kernel_ms: float, reference_ms: float, roofline_ms: float) -> float | None:
    """Return 1 / (1 + (T - T_sol) / (T_base - T_sol)): 0.5 at T = T_base, 1 at T = T_sol (arXiv 2603.19173).

    None if the reference itself is at its roofline, so that nothing can be gained. The paper's T_base is a tuned
    baseline; here it is the reference in the mode in which it was timed.
    """
    room = reference_ms - roofline_ms
    if room <= 0:
        return None
    return 1.0 / (1.0 + max(0.0, kernel_ms - roofline_ms) / room)
