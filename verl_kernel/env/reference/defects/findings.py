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
    """One defect with its evidence."""

    defect: Defect
    evidence: str
    """A sentence with figures."""
    only_drawn: bool = False
    """Whether it holds only on inputs as `get_inputs()` draws them, so that the judge's varied trials detect it."""


class Audit(Record):
    """The result of an audit of a task."""

    task_id: str
    task_hash: str
    unfit: str | None = None
    """Why it cannot be a task at all; null where it can."""
    sizes: dict[int, int] = Field(default_factory=dict)
    """Sizes of the reduced copy that was run, by the task's own sizes; empty where the task itself was run."""
    reference_ms: float | None = None
    """Milliseconds of one forward at the true size on the simulated clock; null where an op has no price."""
    findings: tuple[Finding, ...] = ()
