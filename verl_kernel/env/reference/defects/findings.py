# SPDX-License-Identifier: Apache-2.0
"""Results of an audit of a task."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from verl_kernel.env.result import Record

Defect = Literal[
    "zeros_pass",
    "one_number_passes",
    "constant_output",
    "constant_inputs",
    "fixed_input",
    "ignored_input",
    "ignored_weights",
    "insensitive",
    "not_finite",
    "too_small_to_time",
    "zeros_pass_allclose",
]


class Finding(Record):
    """One defect with what shows it."""

    defect: Defect
    evidence: str
    """A sentence with figures."""
    only_drawn: bool = False
    """Whether it holds on inputs as `get_inputs()` draws them only: the judge's varied trials tell the difference."""


class Audit(Record):
    """What was found out about a task."""

    task_id: str
    task_hash: str
    unfit: str | None = None
    """Why it cannot be a task at all; null where it can."""
    sizes: dict[int, int] = Field(default_factory=dict)
    """By the task's own sizes, those of the reduced copy that was run; empty where it was run as it is."""
    reference_ms: float | None = None
    """Of one forward at the true size, on the simulated clock; null where an op has no price."""
    findings: tuple[Finding, ...] = ()
