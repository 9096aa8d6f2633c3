# SPDX-License-Identifier: Apache-2.0
"""`GPUMODE/KernelBook`: modules of public repositories as tasks, by the columns of its card.

`python_code` is the reference, `entry_point` its class. Prompts are ours. What Inductor made of the module
(`triton_code`, `original_triton_code`) is left out: it calls Inductor's runtime, which no candidate may.
"""

from __future__ import annotations

from verl_kernel.data.foreign_rows import Record, asked_row
from verl_kernel.data.prompts import task_prompt
from verl_kernel.data.rows import Row
from verl_kernel.errors import DataError

_USED = {"python_code", "entry_point", "triton_code", "original_triton_code"}


def task_row(record: Record, number: int) -> Row:
    """A row of KernelBook (raises DataError)."""
    reference, entry = record.get("python_code"), record.get("entry_point") or "Model"
    if not isinstance(reference, str) or not reference.strip():
        raise DataError("there is no reference: the column python_code is empty")
    left = {name: value for name, value in record.items() if name not in _USED}
    identity = record.get("uuid")
    return asked_row(
        task_prompt(reference, str(entry)), reference, str(entry), number, source="kernelbook",
        task_id="" if identity is None else f"kernelbook-{identity}", data_source="kernelbook", level=None, left=left,
    )  # fmt: skip
