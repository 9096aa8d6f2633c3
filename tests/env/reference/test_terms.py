# SPDX-License-Identifier: Apache-2.0
"""Ops that a reference could leave out are named, and no others."""

import pytest

from tests.env.programs import reference
from tests.exploits.tasks import TASKS
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task


def flags(device, result, options=""):
    task = Task(reference(result, f"torch.randn(16, 64{options}), torch.randn(16, 64{options})", "x, y"))
    known = Reference(task, device)
    again = Reference(task, device, known.preparation)
    assert again.task_flags == known.task_flags
    return known.task_flags


@pytest.mark.parametrize(
    ("result", "wanted"),
    {
        "x + 1e-9 * torch.tanh(y)": ["insensitive:mul", "insensitive:tanh"],
        "torch.relu(x) * (1.0 + torch.sigmoid(y) * 1e-8)": ["insensitive:mul", "insensitive:sigmoid"],
        "(x - x.mean(-1, keepdim=True) * 1e-9).exp()": ["insensitive:mean", "insensitive:mul"],
        "x * y + torch.tanh(y)": [],
        "torch.softmax(x @ y.t(), -1) @ y": [],
        "nn.functional.layer_norm(x + y, (64,))": [],
        "torch.where(x > 0, x.exp(), y.tanh())": [],
        "x.clone().add_(y).relu_()": [],
    }.items(),
)
def test_terms_without_effect_are_named(device, result, wanted):
    assert flags(device, result) == wanted


def test_half_precision_hides_more(device):
    assert flags(device, "x + y * 1e-4", ", dtype=torch.float16") == ["insensitive:mul"]
    assert flags(device, "x + y * 0.25", ", dtype=torch.float16") == []


def test_large_forwards_are_not_tried(device, monkeypatch):
    monkeypatch.setattr("verl_kernel.env.reference.terms._MOST_WORK", 1000)
    assert flags(device, "x + 1e-9 * y") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TASKS) - {"constant"}))
def test_no_task_of_the_corpus_has_a_term_to_spare(device, name):
    assert not [flag for flag in Reference(Task(TASKS[name]), device).task_flags if flag.startswith("insensitive")]
