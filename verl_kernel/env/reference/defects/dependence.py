# SPDX-License-Identifier: Apache-2.0
"""Inputs and weights that the outputs do not depend on: others in their place change nothing that a trial compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from verl_kernel.env.reference.defects.findings import Finding
from verl_kernel.env.reference.defects.trials import AuditTrials, finding
from verl_kernel.env.reference.roles import same_bytes
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.reference.value import Value

_MOST_WEIGHTS = 24
"""Parameters of a model that are tried one by one; of a larger model they are tried together only."""


def ignored(trials: AuditTrials) -> list[Finding]:
    """Inputs and weights without effect."""
    inputs = range(len(trials.trials[0].inputs.tensors))
    return [one for number in inputs for one in _ignored_input(trials, number)] + _ignored_weights(trials)


def _ignored_input(trials: AuditTrials, place: int) -> list[Finding]:
    found = [_donor(trials, number, place) for number in range(len(trials.trials))]
    donors = [donor for donor in found if donor is not None]
    if len(donors) < len(found):
        return []

    def answer(number: int, trial: Trial) -> Value | None:
        tensors = list(trial.inputs.tensors)
        tensors[place] = donors[number]
        return trials.reference.output(Value(trial.inputs.tree, tensors))

    return finding("ignored_input", trials.passed(answer), f"with another tensor {place} the output is the same")


def _donor(trials: AuditTrials, number: int, place: int) -> torch.Tensor | None:
    """The same input of another trial, of the same shape and with other numbers; None where there is none."""
    own = trials.trials[number].inputs.tensors[place]
    for trial in (*trials.trials[number + 1 :], *trials.trials[:number]):
        if len(trial.inputs.tensors) > place:
            other = trial.inputs.tensors[place]
            if other.shape == own.shape and not same_bytes(other, own):
                return other
    return None


@dataclass(frozen=True)
class _Parameters:
    """Parameters of a model, and other numbers for them."""

    own: Mapping[str, torch.Tensor]
    other: Mapping[str, torch.Tensor]

    def of(self, names: set[str]) -> dict[str, torch.Tensor]:
        """The model's, those with these names replaced."""
        return {name: self.other[name] if name in names else tensor for name, tensor in self.own.items()}


def _ignored_weights(trials: AuditTrials) -> list[Finding]:
    own = trials.reference.parameters()
    generator = torch.Generator().manual_seed(0)
    numbers = _Parameters(own, {name: _shuffled(tensor, generator) for name, tensor in own.items()})
    if not own:
        return []
    passed = _passed(trials, numbers, set(own))
    if all(passed):
        text = f"with other numbers in all {len(own)} parameters the output is the same"
        return finding("ignored_weights", passed, text)
    names = [] if len(own) > _MOST_WEIGHTS else list(_idle(trials, numbers))
    text = f"with other numbers in {', '.join(names)} the output is the same"
    return finding("ignored_weights", _passed(trials, numbers, set(names)), text) if names else []


def _idle(trials: AuditTrials, numbers: _Parameters) -> Iterator[str]:
    for name in numbers.own:
        if all(_passed(trials, numbers, {name})):
            yield name


def _passed(trials: AuditTrials, numbers: _Parameters, names: set[str]) -> list[bool]:
    with trials.reference.other_parameters(numbers.of(names)):
        return trials.passed(lambda number, trial: trials.reference.output(trial.inputs))


def _shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same numbers at other places, each half to one and a half times as large: of the sign that they have."""
    if not tensor.is_floating_point():
        return tensor
    order = torch.randperm(tensor.numel(), generator=generator)
    scale = 0.5 + torch.rand(tensor.numel(), generator=generator)
    return (tensor.reshape(-1).cpu()[order] * scale).to(tensor).view(tensor.shape)
