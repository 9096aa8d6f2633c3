# SPDX-License-Identifier: Apache-2.0
"""Poor tasks are found, each by its own defect, and sound ones have none."""

from contextlib import nullcontext

import pytest
import torch

from tests.env.programs import reference
from verl_kernel.env.reference.defects.search import DRAWN, LEAST_MS, find_defects
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task

LINEAR = "self.l = nn.Linear(64, 64)"
CONVOLUTION = {"members": "self.c = nn.Conv2d(1, 4, 3)"}


def task(forward, members="pass", other="torch.randn(32, 64)"):
    return reference(forward, f"torch.rand(32, 64), {other}", "x, y", members)


def findings(device, *words, ms=1.0, **options):
    return find_defects(Reference(Task(task(*words, **options)), device), ms, nullcontext)


def defects(device, *words, **options):
    return {(found.defect, found.only_drawn) for found in findings(device, *words, **options)}


@pytest.mark.parametrize(("forward", "options"), [
    ("x * y + 1", {}),
    ("self.l(x) @ y.T", {"members": LINEAR}),
    ("nn.functional.layer_norm(x + y, (64,))", {}),
    ("nn.functional.mse_loss(x, y)", {}),
    ("(x * y).argmax(-1)", {}),
    ("x[torch.arange(32), y]", {"other": "torch.randint(0, 64, (32,))"}),
    ("1e-6 * (x + y).softmax(-1) * y", {}),
])  # fmt: skip
def test_a_sound_task_has_no_defect_that_the_judge_would_miss(device, forward, options):
    is_small = forward.startswith("1e-6")
    assert [one.defect for one in findings(device, forward, **options)] == ["zeros_pass_allclose"] * is_small


@pytest.mark.parametrize(("forward", "options", "wanted"), [
    ("(x.abs() + y.abs()).clamp(max=0.0)", {}, {("zeros_pass", False), ("constant_output", False)}),
    ("nn.functional.relu(-x) + 0 * y", {}, {("zeros_pass", True), ("constant_output", True)}),  # of drawn inputs only
    ("(x + y).softmax(-1).sum(-1)", {}, {("one_number_passes", False), ("constant_output", False)}),
    ("x.exp() + y * 0", {}, {("ignored_input", False)}),
    # A bias before a norm.
    ("nn.functional.instance_norm(self.c((x + y)[None, None]))", CONVOLUTION, {("ignored_weights", False)}),
    ("x + y + self.l(x) * 0", {"members": LINEAR}, {("ignored_weights", False)}),
    ("(x + y) / torch.zeros(64)", {}, {("not_finite", False)}),
    ("(x - 3).log() + y", {}, {("not_finite", False)}),
])  # fmt: skip
def test_a_poor_task_is_found_by_its_defect(device, forward, options, wanted):
    assert wanted <= defects(device, forward, **options)


def test_evidence_has_the_figures(device):
    found = {one.defect: one.evidence for one in findings(device, "x.clamp(min=2) - 2 + 0 * y")}
    assert "the largest number in an output as drawn is 0;" in found["zeros_pass"]
    assert f"in {DRAWN} of {DRAWN} trials as drawn and" in found["zeros_pass"]
    assert "with another tensor 1 the output is the same" in found["ignored_input"]
    found = {one.defect: one.evidence for one in findings(device, "(x + y)[:, 0] / (torch.arange(32) > 15)")}
    assert "96 of 192 numbers in 6 outputs are not finite" in found["not_finite"]


def test_parameters_without_effect_are_named_and_come_back(device):
    text = task("self.a(x) + y", "self.a = nn.Linear(64, 64); self.b = nn.Linear(64, 2)", "torch.rand(32, 64)")
    prepared = Reference(Task(text), device)
    before, trial = prepared.parameters(), prepared.trial(b"x", 0, "drawn")
    (found,) = find_defects(prepared, 1.0, nullcontext)
    assert found.defect == "ignored_weights"
    assert "in b.weight, b.bias the output" in found.evidence
    assert all(torch.equal(before[name], value) for name, value in prepared.parameters().items())
    again = prepared.trial(b"x", 0, "drawn")
    assert torch.equal(trial.expected.tensors[0], again.expected.tensors[0])


def test_what_the_judge_flags_is_in_it(device):
    found = {one.defect: one.evidence for one in findings(device, "x + torch.sigmoid(y) * 1e-9")}
    assert "zeros in place of the result of mul, sigmoid the output" in found["insensitive"]
    fixed = Task(task("torch.ones(4) * 2", other="torch.ones(3)").replace("rand(", "ones("))
    found = {one.defect for one in find_defects(Reference(fixed, device), None, nullcontext)}
    assert {"constant_output", "one_number_passes"} <= found


@pytest.mark.parametrize(("ms", "is_small"), [(LEAST_MS / 2, True), (LEAST_MS, False), (None, False)])
def test_times_that_no_clock_resolves_are_named(device, ms, is_small):
    assert (("too_small_to_time", False) in defects(device, "x * y", ms=ms)) == is_small
