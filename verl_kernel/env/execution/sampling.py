# SPDX-License-Identifier: Apache-2.0
"""Counts a launch from samples of its programs, which really run.

Two samples are drawn apart from each other, and must agree: they are doubled until they do. The count is that of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from verl_kernel.env.execution.extrapolation import Weighted, extrapolated
from verl_kernel.env.execution.strata import WHOLE, Grid, Stratum, strata
from verl_kernel.env.execution.windows import Windows
from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.ipc.execution_messages import Tally

AGREEMENT = 0.05
"""How far two samples may be apart in any number, over the larger one."""
FEW, FEWEST, MOST = 4, 8, 128
"""Programs drawn from between the edges: while configurations are compared; in each of the first two samples."""
_DOUBLED = 3
"""How often samples are doubled at most."""
_WORK = 3e9
"""Instructions of single threads that the first two samples together may take, where more programs do not hurt."""
Run = Callable[[Sequence[int]], LaunchCount]
"""Runs programs of the launch, by number."""


class Apart(Exception):
    """Two samples of a launch do not agree."""

    def __init__(self, what: str, part: float) -> None:
        super().__init__(
            f"two samples of its programs differ by {part:.0%} in {what}, so what all of them do is not known"
        )


@dataclass(frozen=True)
class Sampler:
    """Samples one launch.

    Args:
        run: runs some of its programs.
        grid: of it.
        random: draws programs.
        compare: what two accounts are furthest apart in, and how far.
        told: the account of a count.
    """

    run: Run
    grid: Grid
    random: np.random.Generator
    told: Callable[[LaunchCount], Tally]
    compare: Callable[[Tally, Tally], tuple[str, float]]

    def count(self, is_tried: bool = False) -> LaunchCount:
        """What the whole launch does.

        Args:
            is_tried: whether a rough answer will do.

        Raises:
            Apart: the samples do not agree.
            Fault: a program does what no GPU defines.
        """
        total = prod(self.grid)
        if total <= WHOLE:
            return self.run(self.random.permutation(total).tolist())
        first = self.run([0])
        if is_tried:
            return extrapolated(self.grid, self._sample(strata(self.grid, FEW), {0: first}))
        between = int(min(MOST, max(FEWEST, _WORK / 2 / max(1, first.heaviest_work))))
        for _ in range(_DOUBLED + 1):
            known = {0: first}
            samples = [self._sample(strata(self.grid, between), known) for _ in range(2)]
            what, part = self.compare(*(self.told(extrapolated(self.grid, sample)) for sample in samples))
            if part <= AGREEMENT:
                both = [(weight / 2, count) for sample in samples for weight, count in sample]
                found = extrapolated(self.grid, both)
                return replace(found, rereads=Windows(self.run, self.grid, self.random).rereads(found))
            between *= 2
        raise Apart(what, part)

    def _sample(self, parts: Sequence[Stratum], known: dict[int, LaunchCount]) -> list[Weighted]:
        """One program of each stratum; those that stand for themselves alone run once for all samples."""
        drawn = [(stratum.draw(self.random, self.grid), stratum.size) for stratum in parts]
        for place in self.random.permutation(len(drawn)).tolist():
            number = drawn[place][0]
            if number not in known:
                known[number] = self.run([number])
        return [(float(size), known[number]) for number, size in drawn]
