# SPDX-License-Identifier: Apache-2.0
"""How near a kernel is to the fastest possible time: its share of the roofline, and NVIDIA's SOL score.

Unlike a speedup, neither grows because the reference is slow. Times are in milliseconds, of one clock.
"""

from __future__ import annotations


def roofline_share(kernel_ms: float, roofline_ms: float) -> float:
    """The roofline over the kernel's time, in [0, 1]; 1 for a kernel that needs less work than the roofline counts."""
    return min(1.0, roofline_ms / kernel_ms)


def sol_score(kernel_ms: float, reference_ms: float, roofline_ms: float) -> float | None:
    """1 / (1 + (T - T_sol) / (T_base - T_sol)): 0.5 at the reference's time, 1 at the roofline (arXiv 2603.19173).

    None where the reference is at its roofline itself, so that nothing can be gained. The paper's T_base is a tuned
    baseline; ours is the reference in the mode that it was timed in.
    """
    room = reference_ms - roofline_ms
    if room <= 0:
        return None
    return 1.0 / (1.0 + max(0.0, kernel_ms - roofline_ms) / room)
