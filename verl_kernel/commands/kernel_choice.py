# SPDX-License-Identifier: Apache-2.0
"""Which of several judged kernels to keep: who is rewarded, then the ACES score on further inputs, then the speedup."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.aces import outcome_table, select
from verl_kernel.env import EvalResult, GymOptions, Task


@dataclass(frozen=True)
class KernelChoice:
    """The kernel to keep, by its place among those judged."""

    kernel: int
    passed: int
    """Further inputs on which it agreed with the reference."""
    inputs: int


def choose_kernel(
    task: Task,
    sources: Sequence[str],
    results: Sequence[EvalResult],
    options: GymOptions,
    inputs: int,
    seed: int | None,
) -> KernelChoice | None:
    """Run all kernels on the same further inputs, a third of each kind, and choose; None if no kernel is rewarded.

    Args:
        task: what they compute.
        sources: their texts; those that were refused belong here too, they tell inputs apart.
        results: their verdicts, in the same order.
        options: as they were judged.
        inputs: how many to run each on.
        seed: draws the same inputs in every run.
    """
    if not any(result.rewarded for result in results):
        return None
    from verl_kernel.env import KINDS, Judge  # torch and triton, which a usage error need not wait for

    secret = os.urandom(32) if seed is None else hashlib.sha256(f"choice\0{seed}".encode()).digest()
    kinds = [KINDS[number % len(KINDS)] for number in range(inputs)]
    with Judge(options) as judge:
        rows = [judge.survey(task, source, kinds, secret) for source in sources]
    table, ran = outcome_table(rows)
    speeds = [result.sure_speedup for result in results]
    (best,) = select(table, speeds, passed=[result.rewarded for result in results], mask=ran)
    return KernelChoice(best, sum(table[best]), inputs)
