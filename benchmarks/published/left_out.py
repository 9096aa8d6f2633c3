# SPDX-License-Identifier: Apache-2.0
"""Honest programs that get no time yet, and why."""

LEFT_OUT: dict[str, str] = {
    "gems_nll_loss_last_block": "a plain load of a counter that other blocks add to: a race by the memory model",
    "fla_logcumsumexp": "on large inputs it loses what lies far below the largest of its chunk: a limit of its own",
}
