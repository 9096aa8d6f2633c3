# SPDX-License-Identifier: Apache-2.0
"""Which correctness trials are varied, large, ablated or inspected: drawn from the secret, so no program can know."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.result import Trials


@dataclass(frozen=True)
class TrialPlan:
    """Numbers of trials; None where there is only one."""

    total: int
    varied: int | None
    """Its inputs are varied."""
    large: int | None
    """Its inputs are varied and enlarged."""
    ablated: int
    """The ablation comes after this trial at the earliest."""
    inspected: int
    """In it the runner looks for functions that were replaced."""

    @classmethod
    def draw(cls, secret: bytes, total: int) -> TrialPlan:
        """The plan of an evaluation.

        The ablation needs the varied trial, by which it shows what moves and what computes, and another trial behind
        it, so that a program which guesses its place has to be right about it.
        """
        inspected = secret[2] % total
        if total == 1:
            return cls(total, None, None, 0, inspected)
        varied = 1 + secret[0] % max(1, (total - 1) // 2)
        others = [number for number in range(1, total) if number != varied] or [varied]
        last = max(varied, total - 2)
        ablated = varied + secret[1] % (last - varied + 1)
        return cls(total, varied, others[secret[3] % len(others)], ablated, inspected)

    def is_varied(self, number: int) -> bool:
        """Whether the inputs of a trial are varied, enlarged or not."""
        return number in (self.varied, self.large)


def worst(so_far: Trials, agreement: Agreement) -> Trials:
    """The summary with one trial more."""

    def larger(one: float | None, other: float | None) -> float | None:
        return max((value for value in (one, other) if value is not None), default=None)

    return Trials(
        passed=so_far.passed + agreement.ok, total=so_far.total, first_bad_index=agreement.first_bad_index,
        max_abs=larger(so_far.max_abs, agreement.max_abs), max_rel=larger(so_far.max_rel, agreement.max_rel),
    )  # fmt: skip
