# SPDX-License-Identifier: Apache-2.0
"""Timing noise where there is none by nature: a simulated time as a busy GPU might have measured it, for studies."""

from __future__ import annotations

from random import Random

from verl_kernel.env.clocks.statistics import compared
from verl_kernel.env.result import EvalResult

CALLS = 9
"""Timed calls of either program: enough for an interval of the median, few enough to leave it wide."""


def with_noise(result: EvalResult, size: float, generator: Random) -> EvalResult:
    """The result with times of `CALLS` noisy calls of each program and, from them as on a GPU, its speedups.

    Each call takes the simulated time multiplied by a log-normal factor of median 1: noise has no sign. A result
    without a speedup is returned as it is.

    Args:
        result: of a simulated clock.
        size: standard deviation of the factor's logarithm.
        generator: of the factors.
    """
    if result.speedup is None or result.kernel_ms is None or result.reference_ms is None:
        return result
    kernel, reference = (
        [known.median * generator.lognormvariate(0.0, size) for _ in range(CALLS)]
        for known in (result.kernel_ms, result.reference_ms)
    )
    return result.model_copy(update={**dict(compared(kernel, reference)), "env": result.env | {"timing_noise": size}})
