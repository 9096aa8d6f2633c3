# SPDX-License-Identifier: Apache-2.0
"""Kernel-Smith's data sets, by the columns of their cards.

RL rows have `message` where verl has `prompt`, and `reward_model.ground_truth` is JSON text with `reference_code`; the
program to start from stays in `extra_info.source`. SFT rows have `_id` and `messages`.
"""

from __future__ import annotations

from verl_kernel.data.foreign_rows import Record, row_of_verl
from verl_kernel.data.rows import Row
from verl_kernel.data.talks import Talk, talk_of


def rl_row(record: Record, number: int) -> Row:
    """A row of `CoopReason/Kernel-Smith-RL-2K` (raises DataError)."""
    return row_of_verl(record, number, source="kernelsmith-rl")


def sft_talk(record: Record, number: int) -> Talk:
    """A conversation of `CoopReason/Kernel-Smith-SFT-71K` (raises DataError)."""
    return talk_of(record, number)
