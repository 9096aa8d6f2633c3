# SPDX-License-Identifier: Apache-2.0
"""Answers that compute nothing: zeros, one number everywhere, the output of another trial."""

from __future__ import annotations

import torch

from verl_kernel.env.reference.defects.findings import Finding
from verl_kernel.env.reference.defects.trials import DRAWN, AuditTrials, allows_zeros, finding, largest, zeros
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.reference.value import Value


def idle_answers(trials: AuditTrials) -> list[Finding]:
    """Which of them pass, and outputs that are not finite."""
    found = finding(
        "zeros_pass", trials.passed(lambda number, trial: zeros(trial.expected)), f"{_size(trials)}; zeros are right"
    )
    if not found:
        found = _one_number(trials)
    first = trials.trials[0].expected
    same = trials.passed(lambda number, trial: first)
    found += finding("constant_output", same, "the output of the first trial is right")
    if all(allows_zeros(trial.expected) for trial in trials.trials[:DRAWN]) and not _is_found(found):
        text = f"allclose with 1e-2 takes zeros for every output as drawn; {_size(trials)}"
        found.append(Finding(defect="zeros_pass_allclose", evidence=text, only_drawn=True))
    return found + _not_finite(trials)


def _is_found(found: list[Finding]) -> bool:
    return any(one.defect == "zeros_pass" and not one.only_drawn for one in found)


def _size(trials: AuditTrials) -> str:
    size = largest([trial.expected for trial in trials.trials[:DRAWN]])
    return f"the largest number in an output as drawn is {size:.3g}"


def _one_number(trials: AuditTrials) -> list[Finding]:
    """The mean of the first trial's output, which any program could hold, in place of the others'."""
    means = [float(tensor.double().mean()) for tensor in trials.trials[0].expected.tensors if tensor.numel()]

    def filled(number: int, trial: Trial) -> Value | None:
        expected = trial.expected
        if len(means) != len(expected.tensors) or not expected.is_floating:
            return None
        pairs = zip(expected.tensors, means, strict=True)
        return Value(expected.tree, [torch.full_like(tensor, mean) for tensor, mean in pairs])

    text = f"an output filled with {', '.join(f'{mean:.4g}' for mean in means)} is right"
    return finding("one_number_passes", trials.passed(filled), text)


def _not_finite(trials: AuditTrials) -> list[Finding]:
    tensors = [tensor for trial in trials for tensor in trial.expected.tensors if tensor.is_floating_point()]
    bad, total = sum(int((~t.isfinite()).sum()) for t in tensors), sum(t.numel() for t in tensors)
    if not bad:
        return []
    nan = sum(int(tensor.isnan().sum()) for tensor in tensors)
    text = f"{bad} of {total} numbers in {len(trials.trials)} outputs are not finite, {nan} of them NaN"
    return [Finding(defect="not_finite", evidence=text)]
