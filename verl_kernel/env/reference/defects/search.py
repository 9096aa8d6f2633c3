# SPDX-License-Identifier: Apache-2.0
"""Finds all defects of a prepared reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.reference.defects.findings import Defect, Finding
from verl_kernel.env.reference.exploration import FIXED_INPUT
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.negligible_terms import INSENSITIVE
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.roles import same_bytes
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.reference.value import Value

DRAWN = 3
"""Number of trials on inputs as drawn."""
VARIED = 3
"""Number of trials on varied inputs; the last one has large ones."""
_SECRET = b"audit"
"""In place of a judge's secret, so that an audit gives the same findings each time."""


@dataclass(frozen=True)
class AuditTrials:
    """Trials of a reference: first those on inputs as drawn, then the varied ones."""

    reference: Reference
    trials: tuple[Trial, ...]

    @classmethod
    def draw(cls, reference: Reference) -> AuditTrials:
        """Draw the trials, the same at each call (raises TaskError)."""
        first: list[Kind] = ["drawn"] * DRAWN
        later: list[Kind] = ["varied"] * (VARIED - 1)
        kinds: list[Kind] = [*first, *later, "large"]
        return cls(reference, tuple(reference.trial(_SECRET, number, kind) for number, kind in enumerate(kinds)))

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def passed(self, answer: Callable[[int, Trial], Value | None]) -> list[bool]:
        """Return for each trial whether the judge would accept `answer(number, trial)` as its output."""
        return [
            output is not None and trial.expected.agrees(output, self.reference.smallest_scale)
            for number, trial in enumerate(self.trials)
            for output in [answer(number, trial)]
        ]


def finding(defect: Defect, passed: Sequence[bool], evidence: str) -> list[Finding]:
    """Return the finding of a defect that shows in all trials on inputs as drawn; an empty list otherwise."""
    if not all(passed[:DRAWN]):
        return []
    counts = f"in {DRAWN} of {DRAWN} trials as drawn and {sum(passed[DRAWN:])} of {VARIED} varied ones"
    # Where it does not hold on varied inputs, a judge refuses such answers all the same.
    # check: counted-defect
    return [Finding(defect=defect, evidence=f"{evidence} {counts}", only_drawn=not all(passed))]


def zeros(value: Value) -> Value:
    """Return a value of the same form that holds zeros."""
    return Value(value.tree, [torch.zeros_like(tensor) for tensor in value.tensors])


def allows_zeros(value: Value) -> bool:
    """Whether `torch.allclose` with 1e-2, KernelBench's comparison, accepts zeros in place of this value."""
    pairs = zip(value.tensors, zeros(value).tensors, strict=True)
    return all(compare(expected, zero, "parity").ok for expected, zero in pairs)


def largest(values: Sequence[Value]) -> float:
    """Return the largest finite magnitude in these values."""
    tensors = [tensor.double().abs() for value in values for tensor in value.tensors if not tensor.is_complex()]
    return max((float(torch.where(t.isfinite(), t, 0.0).max()) for t in tensors if t.numel()), default=0.0)


# Answers that compute nothing: zeros, one number everywhere, the output of another trial.


def idle_answers(trials: AuditTrials) -> list[Finding]:
    """Find answers without computation that pass, and outputs that are not finite."""
    # check: zeros-pass
    findings = finding(
        "zeros_pass", trials.passed(lambda number, trial: zeros(trial.expected)), f"{_size(trials)}; zeros are right"
    )
    if not findings:
        findings = _one_number(trials)
    # Replays of one output: a program that remembers it would pass.
    first = trials.trials[0].expected
    same = trials.passed(lambda number, trial: first)
    # check: constant-output-passes
    findings += finding("constant_output", same, "the output of the first trial is right")
    if all(allows_zeros(trial.expected) for trial in trials.trials[:DRAWN]) and not _zeros_pass(findings):
        text = f"allclose with 1e-2 takes zeros for every output as drawn; {_size(trials)}"
        # check: zeros-pass-allclose
        findings.append(Finding(defect="zeros_pass_allclose", evidence=text, only_drawn=True))
    return findings + _not_finite(trials)


def _zeros_pass(findings: list[Finding]) -> bool:
    return any(each.defect == "zeros_pass" and not each.only_drawn for each in findings)


def _size(trials: AuditTrials) -> str:
    size = largest([trial.expected for trial in trials.trials[:DRAWN]])
    return f"the largest number in an output as drawn is {size:.3g}"


def _one_number(trials: AuditTrials) -> list[Finding]:
    """Try outputs filled with the mean of the first trial's output, a number that any program could contain."""
    means = [float(tensor.double().mean()) for tensor in trials.trials[0].expected.tensors if tensor.numel()]

    def filled(number: int, trial: Trial) -> Value | None:
        expected = trial.expected
        if len(means) != len(expected.tensors) or not expected.is_floating:
            return None
        pairs = zip(expected.tensors, means, strict=True)
        return Value(expected.tree, [torch.full_like(tensor, mean) for tensor, mean in pairs])

    text = f"an output filled with {', '.join(f'{mean:.4g}' for mean in means)} is right"
    return finding("one_number_passes", trials.passed(filled), text)  # check: one-number-passes


def _not_finite(trials: AuditTrials) -> list[Finding]:
    tensors = [tensor for trial in trials for tensor in trial.expected.tensors if tensor.is_floating_point()]
    bad, total = sum(int((~t.isfinite()).sum()) for t in tensors), sum(t.numel() for t in tensors)
    if not bad:
        return []
    nan = sum(int(tensor.isnan().sum()) for tensor in tensors)
    text = f"{bad} of {total} numbers in {len(trials.trials)} outputs are not finite, {nan} of them NaN"
    return [Finding(defect="not_finite", evidence=text)]  # check: not-finite


# Inputs and weights that the outputs do not depend on: replacing them changes nothing that a trial compares.


_MOST_WEIGHTS = 24
"""Largest number of parameters tried one by one; those of a larger model are only tried all together."""


def ignored(trials: AuditTrials) -> list[Finding]:
    """Find inputs and weights without effect."""
    inputs = range(len(trials.trials[0].inputs.tensors))
    return [each for number in inputs for each in _ignored_input(trials, number)] + _ignored_weights(trials)


def _ignored_input(trials: AuditTrials, index: int) -> list[Finding]:
    candidates = [_donor(trials, number, index) for number in range(len(trials.trials))]
    donors = [donor for donor in candidates if donor is not None]
    if len(donors) < len(candidates):
        return []

    def answer(number: int, trial: Trial) -> Value | None:
        tensors = list(trial.inputs.tensors)
        tensors[index] = donors[number]
        return trials.reference.output(Value(trial.inputs.tree, tensors))

    # check: ignored-input
    return finding("ignored_input", trials.passed(answer), f"with another tensor {index} the output is the same")


def _donor(trials: AuditTrials, number: int, index: int) -> torch.Tensor | None:
    """Return this input of another trial, with the same shape and other numbers; None where there is none."""
    own = trials.trials[number].inputs.tensors[index]
    for trial in (*trials.trials[number + 1 :], *trials.trials[:number]):
        if len(trial.inputs.tensors) > index:
            candidate = trial.inputs.tensors[index]
            if candidate.shape == own.shape and not same_bytes(candidate, own):
                return candidate
    return None


@dataclass(frozen=True)
class _Parameters:
    """Parameters of a model, and replacements for them."""

    own: Mapping[str, torch.Tensor]
    replacements: Mapping[str, torch.Tensor]

    def of(self, names: set[str]) -> dict[str, torch.Tensor]:
        """Return the model's parameters, those with these names replaced."""
        return {name: self.replacements[name] if name in names else tensor for name, tensor in self.own.items()}


def _ignored_weights(trials: AuditTrials) -> list[Finding]:
    own = trials.reference.parameters()
    generator = torch.Generator().manual_seed(0)
    numbers = _Parameters(own, {name: _shuffled(tensor, generator) for name, tensor in own.items()})
    if not own:
        return []
    passed = _passed(trials, numbers, set(own))
    # All at once first: most models use their weights, and then each parameter has to be tried.
    if all(passed):
        text = f"with other numbers in all {len(own)} parameters the output is the same"
        return finding("ignored_weights", passed, text)  # check: ignored-weights
    names = [] if len(own) > _MOST_WEIGHTS else list(_ignored_names(trials, numbers))
    text = f"with other numbers in {', '.join(names)} the output is the same"
    # check: ignored-other-weights
    return finding("ignored_weights", _passed(trials, numbers, set(names)), text) if names else []


def _ignored_names(trials: AuditTrials, numbers: _Parameters) -> Iterator[str]:
    for name in numbers.own:
        if all(_passed(trials, numbers, {name})):
            yield name


def _passed(trials: AuditTrials, numbers: _Parameters, names: set[str]) -> list[bool]:
    with trials.reference.other_parameters(numbers.of(names)):
        return trials.passed(lambda number, trial: trials.reference.output(trial.inputs))


def _shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Permute the numbers and multiply each by a factor between 0.5 and 1.5, which keeps its sign."""
    if not tensor.is_floating_point():
        return tensor
    # Numbers of the same size as before, so that outputs are usable and finite.
    order = torch.randperm(tensor.numel(), generator=generator)
    scale = 0.5 + torch.rand(tensor.numel(), generator=generator)
    return (tensor.reshape(-1).cpu()[order] * scale).to(tensor).view(tensor.shape)


LEAST_MS = 0.01
"""Shortest forward to time: CUDA events resolve half a microsecond (CUDA runtime API), a twentieth of it."""


def find_defects(
    reference: Reference, reference_ms: float | None, guard: Callable[[], AbstractContextManager[object]]
) -> list[Finding]:
    """Find what makes a reference a poor task, with evidence.

    Args:
        reference: prepared reference.
        reference_ms: time of a forward at the true size; None where it is unknown.
        guard: context manager around each part of the search, which bounds its time.

    Raises:
        TaskError: the program fails on a further draw of its inputs.
    """
    with guard():
        trials = AuditTrials.draw(reference)
    with guard():
        findings = idle_answers(trials)
    with guard():
        findings += ignored(trials)
    return findings + _flagged_findings(reference, findings) + _too_small(reference_ms)


def _flagged_findings(reference: Reference, findings: list[Finding]) -> list[Finding]:
    """Return findings for the flags that the preparation of the reference has set."""
    flags, flagged = reference.task_flags, []
    if "constant_output" in flags and all(each.defect != "constant_output" for each in findings):
        text = "the output is the same in every trial of the preparation: the judge rewards no answer"
        flagged.append(Finding(defect="constant_output", evidence=text))  # check: constant-output
    if "constant_inputs" in flags:
        # check: constant-inputs
        flagged.append(Finding(defect="constant_inputs", evidence="the inputs are the same in every draw"))
    for number in (flag.removeprefix(FIXED_INPUT) for flag in flags if flag.startswith(FIXED_INPUT)):
        text = f"tensor {number} is the same in every trial, however varied: a program need not read it"
        flagged.append(Finding(defect="fixed_input", evidence=text))  # check: fixed-input
    ops = dict.fromkeys(flag.removeprefix(INSENSITIVE) for flag in flags if flag.startswith(INSENSITIVE))
    if ops:
        text = f"with zeros in place of the result of {', '.join(ops)} the output is still right"
        flagged.append(Finding(defect="insensitive", evidence=text))  # check: insensitive
    return flagged


def _too_small(reference_ms: float | None) -> list[Finding]:
    if reference_ms is None or reference_ms >= LEAST_MS:
        return []
    text = f"a forward takes {1e3 * reference_ms:.1f} us on the simulated clock, less than {1e3 * LEAST_MS:.0f}"
    return [Finding(defect="too_small_to_time", evidence=text)]  # check: too-small-to-time
