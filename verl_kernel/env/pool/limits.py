# SPDX-License-Identifier: Apache-2.0
"""Limits of a judge's process, and what its exit says."""

from __future__ import annotations

from verl_kernel.env.compilation.targets import CODE_S, COMPILE_S, MOST_CHOICES
from verl_kernel.env.judge.processes.own_time import backstop_s
from verl_kernel.env.options import GymOptions

START_S = 180.0
"""Longest start of a judge process, in seconds."""
_SLACK_S = 60.0
"""Margin of an evaluation's limit beyond the limits of its parts, in seconds."""
REFERENCE_HUNG = 77
"""Exit status of a judge process whose reference exceeded `reference_timeout_s`."""


def evaluation_limit_s(options: GymOptions, sizes: int = 1) -> float:
    """Return the wall-clock seconds after which a judge counts as hung, for a task of so many sizes.

    This exceeds the sum of all limits within an evaluation, on a busy machine too. The reference has two phases
    (preparation and forwards), a candidate that fails without its kernels is loaded again, and a judge with a GPU may
    have to wait until others release it.
    """
    budgets = [*(options.reference_timeout_s,) * 2, *(options.load_timeout_s,) * 4, options.run_timeout_s, CODE_S]
    if options.targets:
        compiling_s = [COMPILE_S] * len(options.targets)
        budgets += [*compiling_s, *(options.load_timeout_s, options.run_timeout_s, *compiling_s) * MOST_CHOICES]
    if options.reference_mode != "eager":  # torch's compiler, a forward without data, and one that counts its program
        budgets += [*(options.reference_timeout_s,) * 3, options.load_timeout_s, CODE_S, COMPILE_S]
    waits_s = 0.0 if options.device == "cpu" else options.patience_s
    return max(1, sizes) * sum(map(backstop_s, budgets)) + waits_s + _SLACK_S
