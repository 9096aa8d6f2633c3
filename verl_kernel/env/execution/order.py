# SPDX-License-Identifier: Apache-2.0
"""In which order the programs of a launch run.

Two forwards share a draw, and the second one turns its order round: so of any two programs each comes first once.
"""

from __future__ import annotations

import numpy as np

from verl_kernel.env.executor.library.grid import RESIDENT

_DRAWN = 1 << 20
"""Most programs whose order is drawn one by one; of more they run from a drawn one on."""


def drawn(draw: np.random.Generator, programs: int, may_wait: bool) -> np.ndarray:
    """Numbers of the programs in a drawn order.

    Args:
        draw: what it is drawn from.
        programs: how many there are.
        may_wait: whether programs may wait for others: then an earlier one begins before all that are not resident
            beside it.
    """
    numbers = np.arange(programs)
    if may_wait:
        parts = np.split(numbers, range(RESIDENT, programs, RESIDENT))
        return np.concatenate([draw.permutation(part) for part in parts])
    if programs <= _DRAWN:
        return draw.permutation(programs)
    return np.roll(numbers, int(draw.integers(programs)))


def turned(order: np.ndarray, may_wait: bool) -> np.ndarray:
    """The same the other way round (arguments as of `drawn`)."""
    if not may_wait:
        return order[::-1]
    return np.concatenate([part[::-1] for part in np.split(order, range(RESIDENT, len(order), RESIDENT))])
