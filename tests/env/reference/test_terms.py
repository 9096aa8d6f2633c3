# SPDX-License-Identifier: Apache-2.0
"""Ops that a reference could leave out are named, and no others."""

import pytest

from tests.env.programs import reference
from tests.exploits.tasks import TASKS
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task


def flags(device, result, dtype="float32"):
    inputs = ", ".join([f"torch.randn(16, 64, dtype=torch.{dtype})"] * 2)
    task = Task(reference(result, inputs, "x, y"))
    known = Reference(task, device)
    assert Reference(task, device, known.preparation).task_flags == known.task_flags
    return known.task_flags


@pytest.mark.parametrize(("result", "dtype", "wanted"), [
    ("x + 1e-9 * torch.tanh(y)", "float32", ["insensitive:mul", "insensitive:tanh"]),
    ("torch.relu(x) * (1.0 + torch.sigmoid(y) * 1e-8)", "float32", ["insensitive:mul", "insensitive:sigmoid"]),
    ("(x - x.mean(-1, keepdim=True) * 1e-9).exp()", "float32", ["insensitive:mean", "insensitive:mul"]),
    ("x * y + torch.tanh(y)", "float32", []),
    ("torch.softmax(x @ y.t(), -1) @ y", "float32", []),
    ("nn.functional.layer_norm(x + y, (64,))", "float32", []),
    ("torch.where(x > 0, x.exp(), y.tanh())", "float32", []),
    ("x.clone().add_(y).relu_()", "float32", []),
    ("x + y * 1e-4", "float16", ["insensitive:mul"]),  # half precision hides more
    ("x + y * 0.25", "float16", []),
])  # fmt: skip
def test_terms_without_effect_are_named(device, result, dtype, wanted):
    assert flags(device, result, dtype) == wanted


def test_large_forwards_are_not_tried(device, monkeypatch):
    monkeypatch.setattr("verl_kernel.env.reference.terms._MOST_WORK", 1000)
    assert flags(device, "x + 1e-9 * y") == []


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"constant"}))
def test_no_task_of_the_corpus_has_a_term_to_spare(device, name):
    assert not [flag for flag in Reference(Task(TASKS[name]), device).task_flags if flag.startswith("insensitive")]
