# SPDX-License-Identifier: Apache-2.0
"""What a reference learns of its task, verdicts where sizes change or outputs do not, and ops without effect."""

from dataclasses import replace

import pytest
import torch

from tests.env import programs
from tests.env.programs import elementwise
from tests.exploits.tasks import TASKS
from verl_kernel.env import KINDS, EvalResult, EvalStatus, GymOptions, Task
from verl_kernel.env.reference.reference import Reference
from verl_kernel.errors import TaskError

OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=6)
ROWS = elementwise("tl.maximum(v, 0.0) * 2.0")
FIXED = Task(TASKS["sized"].replace("int(torch.randint(2, 12, ()))", "7"))
RARE = "torch.randn(16, 64) if int(torch.randint(0, 3, ())) else torch.randn(-1)"


def reference(device, forward, inputs="torch.randn(16, 64)", members="pass"):
    return Reference(Task(programs.reference(forward, inputs, members=members)), device)


def change(task, **traits):
    task.preparation = replace(task.preparation, traits=replace(task.preparation.traits, **traits))


def test_constant_weights_differ_from_their_start_and_come_back(device):
    task = reference(device, "x * self.gain + self.bias", members=(
        "self.gain, self.bias = nn.Parameter(torch.ones(64)), nn.Parameter(torch.zeros(64))"
    ))  # fmt: skip
    changed = task.trial(b"s", 0, "drawn")
    x = changed.inputs.tensors[0]
    assert torch.equal(changed.expected.tensors[0], x * task.state["gain"] + task.state["bias"])
    assert not torch.equal(changed.expected.tensors[0], x)
    task.use_weights(initial=True)
    assert torch.equal(task.trial(b"s", 0, "drawn").expected.tensors[0], x)
    task.use_weights(initial=False)
    assert torch.equal(task.trial(b"s", 0, "drawn").expected.tensors[0], changed.expected.tensors[0])


@pytest.mark.parametrize("forward", ["x / (self.b == 0).all()", "x * torch.tensor([1.0])[self.b.long()][:1]"])
def test_weights_that_must_start_as_they_do_are_left(device, forward):
    """Changed, the first divides by zero and the second fails."""
    task = reference(device, forward, members="self.b = nn.Parameter(torch.zeros(64))")
    assert task.constants == {}
    assert not task.state["b"].any()
    assert task.trial(b"s", 0, "varied").expected.tensors[0].isfinite().all()


def test_tied_weights_stay_tied(device):
    task = reference(device, "x * self.a + self.b", members="self.a = nn.Parameter(torch.ones(64)); self.b = self.a")
    assert torch.equal(task.state["a"], task.state["b"])
    assert task.state["a"].unique().numel() > 1


@pytest.mark.parametrize(("forward", "comes"), [
    ("x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)", True),
    ("nn.functional.normalize(x)", True),
    ("nn.functional.layer_norm(x, (64,))", True),
    ("torch.softmax(x, -1) * x", True),
    ("x / x.norm(dim=-1, keepdim=True)", False),
    ("x.argmax(-1)", False),
    ("torch.arange(64.0)[x.argmax(-1)] * x[:, 0].cos()", False),
    ("torch.sign(x)", False),
])  # fmt: skip
def test_zero_rows_come_where_the_program_is_continuous(device, forward, comes):
    task = reference(device, forward)
    rows = [(task.trial(b"s", number, "varied").inputs.tensors[0] == 0).all(-1).sum().item() for number in range(3)]
    assert rows == [int(comes)] * 3
    assert not (task.trial(b"s", 0, "drawn").inputs.tensors[0] == 0).all(-1).any()


@pytest.mark.parametrize(("forward", "inputs", "flags"), [
    ("torch.relu(x)", "torch.randn(16, 64)", []),
    ("torch.relu(x)", "torch.ones(16, 64)", []),  # fixed inputs that can be varied
    ("torch.relu(x) - torch.relu(x)", "torch.randn(16, 64)", ["constant_output"]),
    ("torch.softmax(x, -1).sum(-1)", "torch.randn(16, 64)", ["constant_output"]),
    ("x * 3", "torch.arange(9)", ["constant_inputs", "constant_output"]),
])  # fmt: skip
def test_degenerate_tasks_are_flagged(device, forward, inputs, flags):
    assert reference(device, forward, inputs).task_flags == flags


def test_a_varied_trial_that_breaks_is_drawn_plainly(device):
    """Logarithms of large numbers are fine, of negative ones not; a rare zero is found out in the trial itself."""
    task = reference(device, "torch.log(x)", "torch.rand(16, 64) + 0.5")
    variation = task.preparation.traits.variation
    assert not variation.signs
    assert variation.high == 8.0
    change(task, variation=replace(variation, signs=True))
    trial = task.trial(b"s", 0, "varied")
    assert (trial.inputs.tensors[0] > 0).all()
    assert trial.expected.tensors[0].isfinite().all()


@pytest.mark.parametrize(("forward", "written"), [
    ("x + 1", 4096), ("x.clamp_(min=0)", 2048), ("x", 0),
    ("(x[2:4].fill_(-9), x)[1]", 512), ("(x.mul_(2) + 1, x)", 8192),
])  # fmt: skip
def test_outputs_in_an_inputs_memory_write_only_changes(device, forward, written):
    trial = reference(device, forward).trial(b"s", 0, "drawn")
    assert trial.written_bytes == pytest.approx(written, rel=0.2)


def test_sizes_that_change_fit_and_each_trial_has_its_own_trace(device):
    task = Reference(Task(TASKS["sized"]), device)
    trials = [task.trial(b"s", number, "varied" if number % 2 else "drawn") for number in range(80)]
    rows = [trial.inputs.tensors[0].shape[0] for trial in trials]
    assert set(rows) == set(range(2, 12))
    assert all(trial.written_bytes == 256 * count for trial, count in zip(trials, rows, strict=True))
    assert len({sum(event.bytes for event in trial.events) for trial in trials}) == 10


def test_a_rare_huge_draw_is_drawn_again(device):
    task = reference(device, "x * 2.0", "torch.randn(4 if torch.rand(()) < 0.7 else 4000, 64)")
    change(task, input_bytes=4096, output_bytes=4096)
    assert {task.trial(b"s", number, "drawn").inputs.tensors[0].shape[0] for number in range(30)} == {4}


@pytest.mark.processes
def test_a_task_whose_sizes_change_is_timed_on_equal_sizes(judge):
    result = judge.evaluate(Task(TASKS["sized"]), ROWS)
    assert result.rewarded, result.error
    assert result.trials.passed == 6, result.error
    assert result.speedup == pytest.approx(judge.evaluate(FIXED, ROWS).speedup, rel=0.05)


@pytest.mark.processes
def test_a_constant_output_is_right_and_never_rewarded(judge):
    task = Task(TASKS["sized"].replace("torch.relu(x) * 2.0", "torch.relu(x) - torch.relu(x)"))
    result = judge.evaluate(task, elementwise("v * 0.0"))
    assert (result.status, result.correctness, result.task_flags) == (EvalStatus.OK, True, ("constant_output",))
    assert not result.rewarded
    assert EvalResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.processes
def test_every_kind_of_trial_has_a_secret_place(judge, monkeypatch):
    seen, trial, places = [], Reference.trial, set()
    monkeypatch.setattr(Reference, "trial", lambda self, *told: seen.append(told[-1]) or trial(self, *told))
    for number in range(6):
        seen.clear()
        assert judge.evaluate(FIXED, f"{ROWS}# {number}").rewarded
        assert seen[0] == "drawn"
        assert all(seen.count(kind) == 1 for kind in KINDS if kind != "drawn")
        places.add(tuple(seen))
    assert len(places) > 1


@pytest.mark.parametrize(("forward", "members", "expected"), [
    ("torch.relu(x)", "pass", True),
    ("self.drop(x)", "self.drop = nn.Dropout(0.0)", True),
    ("self.drop(x)", "self.drop = nn.Dropout(0.5).eval()", True),
    ("self.norm(x)", "self.norm = nn.BatchNorm1d(64)", False),
    ("self.norm(x)", "self.norm = nn.BatchNorm1d(64); self.eval()", False),
    ("self.norm(x)", "self.norm = nn.BatchNorm1d(64, track_running_stats=False)", True),
    ("x / self.training", "pass", False),
    ("torch.relu(x) if self.training else [][0]", "pass", False),
])  # fmt: skip
def test_it_is_known_whether_train_and_eval_mode_agree(device, forward, members, expected):
    task = reference(device, forward, members=members)
    assert task.is_switchable is expected
    assert task.model.training is ("self.eval" not in members)


def flags(device, result, dtype="float32"):
    inputs = ", ".join([f"torch.randn(16, 64, dtype=torch.{dtype})"] * 2)
    task = Task(programs.reference(result, inputs, "x, y"))
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


@pytest.mark.slow
def test_a_product_of_gigaflops_is_tried(device):
    """It was left out as too large, and a program without it was paid ten times the reference's time."""
    weight = "self.w = nn.Parameter(torch.randn(900, 900) / 30)"
    made = reference(device, "x.abs() + 1e-7 * (x @ self.w)", "torch.randn(900, 900)", weight)
    assert "insensitive:mm" in made.task_flags


def test_large_forwards_are_not_tried(device, monkeypatch):
    monkeypatch.setattr("verl_kernel.env.reference.negligible_terms._MOST_WORK", 1000)
    assert flags(device, "x + 1e-9 * y") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TASKS) - {"constant"}))
def test_no_task_of_the_corpus_has_a_term_to_spare(device, name):
    assert not [flag for flag in Reference(Task(TASKS[name]), device).task_flags if flag.startswith("insensitive")]


@pytest.mark.parametrize(("forward", "inputs", "members"), [
    ("torch.relu(x) * x", RARE, "pass"),
    ("torch.relu(x) * (x if x[0, 0] > 0 else x[99])", "torch.randn(16, 64)", "pass"),
    ("torch.relu(x) * self.w", "torch.randn(16, 64)",
     "self.w = nn.Parameter(torch.rand(64) if torch.initial_seed() > 9 else torch.rand(-1))"),
])  # fmt: skip
def test_what_fails_at_times_is_judged_where_it_works(device, forward, inputs, members):
    task = reference(device, forward, inputs, members=members)
    assert "fails_at_times" in task.task_flags
    drawn = [task.trial(b"s", number, kind).inputs.tensors[0] for number, kind in enumerate(KINDS * 2)]
    assert all(tensor.shape == (16, 64) for tensor in drawn)
    assert not any(torch.equal(drawn[0], tensor) for tensor in drawn[1:])


def test_what_works_at_its_own_seed_only_is_varied_there(device):
    source = programs.reference("torch.relu(x) * x", "torch.randn(16, 64) if works() else torch.randn(-1)")
    source += "\n\nSEEN = []\n\n\ndef works():\n    SEEN.append(torch.initial_seed())\n    return SEEN[0] == SEEN[-1]\n"
    task = Reference(Task(source), device)
    assert "fails_at_times" in task.task_flags
    one, other = (task.trial(b"s", number, "varied").inputs.tensors[0] for number in (0, 1))
    assert not torch.equal(one, other)


def test_what_never_works_is_no_task(device):
    with pytest.raises(TaskError, match="get_inputs"):
        reference(device, "torch.relu(x)", "torch.randn(-1)")
