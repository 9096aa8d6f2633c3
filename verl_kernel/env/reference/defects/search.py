# SPDX-License-Identifier: Apache-2.0
"""All defects of a prepared reference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from verl_kernel.env.reference.defects.answers import idle_answers
from verl_kernel.env.reference.defects.dependence import ignored
from verl_kernel.env.reference.defects.findings import Finding
from verl_kernel.env.reference.defects.trials import AuditTrials
from verl_kernel.env.reference.exploration import FIXED_INPUT
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.terms import INSENSITIVE

LEAST_MS = 0.01
"""CUDA events resolve half a microsecond (CUDA runtime API): a twentieth of the time of such a forward."""


def find_defects(
    reference: Reference, reference_ms: float | None, guard: Callable[[], AbstractContextManager[object]]
) -> list[Finding]:
    """What makes a reference a poor task, with evidence.

    Args:
        reference: prepared.
        reference_ms: of a forward at the true size; None where it is not known.
        guard: context manager around each part of the search, which bounds its time.

    Raises:
        TaskError: the program fails on a further draw of its inputs.
    """
    with guard():
        trials = AuditTrials.draw(reference)
    with guard():
        found = idle_answers(trials)
    with guard():
        found += ignored(trials)
    return found + _known(reference, found) + _too_small(reference_ms)


def _known(reference: Reference, found: list[Finding]) -> list[Finding]:
    """What the judge found out when it prepared the reference."""
    flags, known = reference.task_flags, []
    if "constant_output" in flags and all(one.defect != "constant_output" for one in found):
        text = "the output is the same in every trial of the preparation: the judge rewards no answer"
        known.append(Finding(defect="constant_output", evidence=text))
    if "constant_inputs" in flags:
        known.append(Finding(defect="constant_inputs", evidence="the inputs are the same in every draw"))
    for number in (flag.removeprefix(FIXED_INPUT) for flag in flags if flag.startswith(FIXED_INPUT)):
        text = f"tensor {number} is the same in every trial, however varied: a program need not read it"
        known.append(Finding(defect="fixed_input", evidence=text))
    ops = dict.fromkeys(flag.removeprefix(INSENSITIVE) for flag in flags if flag.startswith(INSENSITIVE))
    if ops:
        text = f"with zeros in place of the result of {', '.join(ops)} the output is still right"
        known.append(Finding(defect="insensitive", evidence=text))
    return known


def _too_small(reference_ms: float | None) -> list[Finding]:
    if reference_ms is None or reference_ms >= LEAST_MS:
        return []
    text = f"a forward takes {1e3 * reference_ms:.1f} us on the simulated clock, less than {1e3 * LEAST_MS:.0f}"
    return [Finding(defect="too_small_to_time", evidence=text)]
