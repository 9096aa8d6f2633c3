# SPDX-License-Identifier: Apache-2.0
"""Chooses which of several judged kernels to keep: rewarded ones, by ACES score on further inputs, then by speedup."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.aces import outcome_table, select
from verl_kernel.env import EvalResult, GymOptions, Task
from verl_kernel.errors import ConfigError


@dataclass(frozen=True)
class KernelChoice:
    """The kernel to keep, by its index among the judged ones."""

    kernel: int
    passed: int
    """Number of further inputs on which it agreed with the reference."""
    inputs: int


def choose_kernel(
    task: Task,
    sources: Sequence[str],
    results: Sequence[EvalResult],
    options: GymOptions,
    *,
    inputs: int,
    seed: int | None,
) -> KernelChoice | None:
    """Run all kernels on the same further inputs, a third of each kind, and choose; None if no kernel is rewarded.

    Args:
        task: task of the kernels.
        sources: texts of all kernels, including refused ones, which help to weigh the inputs.
        results: verdicts on them, in the same order.
        options: options of their judgement.
        inputs: number of further inputs for each kernel.
        seed: seed of the inputs, to draw the same ones in every run.
    """
    if task.workloads:
        raise ConfigError("--choose is given, and the reference has WORKLOADS: it chooses for tasks of one size")
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
