# SPDX-License-Identifier: Apache-2.0
"""The trials of an audit, and in which of them an output that should be wrong is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.reference.defects.findings import Defect, Finding
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.reference.value import Value

DRAWN, VARIED = 3, 3
"""Trials on inputs as they are drawn, and on varied ones, of which the last has large inputs."""
_SECRET = b"audit"


@dataclass(frozen=True)
class AuditTrials:
    """Trials of a reference: those as drawn first, the varied ones behind them."""

    reference: Reference
    trials: tuple[Trial, ...]

    @classmethod
    def draw(cls, reference: Reference) -> AuditTrials:
        """The same ones each time (raises TaskError)."""
        first: list[Kind] = ["drawn"] * DRAWN
        later: list[Kind] = ["varied"] * (VARIED - 1)
        kinds: list[Kind] = [*first, *later, "large"]
        return cls(reference, tuple(reference.trial(_SECRET, number, kind) for number, kind in enumerate(kinds)))

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def passed(self, answer: Callable[[int, Trial], Value | None]) -> list[bool]:
        """In which trials an answer, given its number and the trial, is what the judge would accept."""
        return [
            output is not None and trial.expected.agrees(output, self.reference.least)
            for number, trial in enumerate(self.trials)
            for output in [answer(number, trial)]
        ]


def finding(defect: Defect, passed: Sequence[bool], evidence: str) -> list[Finding]:
    """The finding of a defect that shows in all trials, or in all as drawn; none otherwise."""
    if not all(passed[:DRAWN]):
        return []
    counts = f"in {DRAWN} of {DRAWN} trials as drawn and {sum(passed[DRAWN:])} of {VARIED} varied ones"
    return [Finding(defect=defect, evidence=f"{evidence} {counts}", only_drawn=not all(passed))]


def zeros(value: Value) -> Value:
    """A value of the same form that holds zeros."""
    return Value(value.tree, [torch.zeros_like(tensor) for tensor in value.tensors])


def allows_zeros(value: Value) -> bool:
    """Whether `torch.allclose` with 1e-2, as KernelBench compares, takes zeros for this value."""
    pairs = zip(value.tensors, zeros(value).tensors, strict=True)
    return all(compare(wanted, zero, "parity").ok for wanted, zero in pairs)


def largest(values: Sequence[Value]) -> float:
    """Largest finite magnitude in some values."""
    tensors = [tensor.double().abs() for value in values for tensor in value.tensors if not tensor.is_complex()]
    return max((float(torch.where(t.isfinite(), t, 0.0).max()) for t in tensors if t.numel()), default=0.0)
