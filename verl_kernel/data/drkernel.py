# SPDX-License-Identifier: Apache-2.0
"""The data sets of Dr. Kernel (arXiv 2602.05885), by the columns of their cards.

RL and validation rows have verl's form: `data_source`, `prompt` [{role, content}], `ability`, `reward_model`
{ground_truth, style}, `extra_info`. The cold start has `messages`, five rounds of user and assistant, beside what is
known of the trajectory (`final_speedup`, `best_round`, `original_python_code`, ...).
"""

from __future__ import annotations

from verl_kernel.data.foreign_rows import Record, row_of_verl
from verl_kernel.data.rows import Row
from verl_kernel.data.talks import Talk, talk_of

VALIDATION_LEVEL = 2
"""The validation set is level 2 of KernelBench."""


def rl_row(record: Record, number: int) -> Row:
    """A row of `hkust-nlp/drkernel-rl-data` (raises DataError)."""
    return row_of_verl(record, number, source="drkernel-rl")


def validation_row(record: Record, number: int) -> Row:
    """A row of `hkust-nlp/drkernel-validation-data` (raises DataError)."""
    return row_of_verl(record, number, source="drkernel-validation", level=VALIDATION_LEVEL)


def coldstart_talk(record: Record, number: int) -> Talk:
    """A trajectory of `hkust-nlp/drkernel-coldstart-8k` (raises DataError)."""
    return talk_of(record, number)
