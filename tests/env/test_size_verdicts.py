# SPDX-License-Identifier: Apache-2.0
"""A candidate is judged at each size of its task, and gets one verdict."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.env.programs import program_of
from tests.env.test_sizes import task
from verl_kernel.env import EvalError, EvalResult, EvalStatus, GymOptions, Task
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.size_verdicts import at_sizes, joined

OPTIONS = GymOptions(device="cpu", correctness_trials=1)
SIZES = task("[{'columns': 256}, {'columns': 257}, {'columns': 1024}]")
ROWS = """
@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=at < columns)

def forward(self, x):
    out = torch.empty_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
RIGHT = program_of(ROWS)
LAZY = "if x.shape[1] == 1024: return torch.softmax(x, -1)"
AT_TWO_OF_THREE = RIGHT.replace("out = torch", f"{LAZY}\n        out = torch")
PADDED_BY_ZEROS = RIGHT.replace('float("-inf")', "0.0")


def verdict(status=EvalStatus.OK, speedup=2.0, low=None, **facts):
    known = {"speedup": speedup, "speedup_low": low or speedup} if status is EvalStatus.OK else {}
    return EvalResult(task_id="t", status=status, correctness=status is EvalStatus.OK, **known, **facts)


def test_a_task_at_one_size_draws_its_inputs_without_arguments():
    one = SIZES.at_size(SIZES.workloads[1])
    names: dict = {}
    exec(one.reference, names)
    assert [tuple(x.shape) for x in names["get_inputs"]()] == [(4, 257)]
    assert (one.task_id, one.workloads) == ("softmax[columns=257]", ())
    assert one.fingerprint != SIZES.fingerprint


@given(st.lists(st.floats(0.05, 50.0), min_size=3, max_size=3))
def test_the_speedup_is_the_geometric_mean(speedups):
    result = joined(SIZES, [verdict(speedup=speedup) for speedup in speedups])
    assert result.speedup == pytest.approx(math.prod(speedups) ** (1 / 3))
    assert result.worst_speedup == min(speedups)
    assert [one.speedup for one in result.sizes] == speedups


def test_all_else_is_that_of_the_slowest_size():
    result = joined(SIZES, [verdict(time_coverage=0.9), verdict(speedup=0.5, time_coverage=0.3), verdict()])
    assert (result.task_id, result.task_hash, result.time_coverage) == ("softmax", SIZES.text_hash, 0.3)


@pytest.mark.parametrize(("verdicts", "found"), [
    ([verdict(speedup=1.0), verdict(speedup=9.0, decoy_kernel=True)], (EvalStatus.OK, 3.0, False)),
    ([verdict(), verdict(speedup=None), verdict()], (EvalStatus.OK, None, True)),
    ([verdict(EvalStatus.INCORRECT), verdict(EvalStatus.INFRA_ERROR)], (EvalStatus.INFRA_ERROR, None, False)),
])  # fmt: skip
def test_decoys_unknown_times_and_failures_of_ours_count(verdicts, found):
    result = joined(SIZES, verdicts)
    assert (result.status, result.speedup and pytest.approx(result.speedup), result.rewarded) == found


def test_wrong_at_one_size_is_wrong():
    wrong = verdict(EvalStatus.INCORRECT, error=EvalError(stage="correctness", type="WrongValues", message="off"))
    result = joined(SIZES, [verdict(), wrong, verdict()])
    assert (result.status, result.speedup, result.rewarded) == (EvalStatus.INCORRECT, None, False)
    assert result.error.message == "at columns=257: off"
    assert result.wrong_sizes == ("columns=257",)


def test_no_size_is_judged_where_it_could_not_matter(judge):
    refused, unloaded = (
        judge.evaluate(SIZES, text) for text in ("import os", RIGHT.replace("class ", "1 / 0\nclass "))
    )
    assert (refused.status, len(refused.sizes)) == (EvalStatus.REJECTED_STATIC, 1)
    assert (unloaded.status, len(unloaded.sizes)) == (EvalStatus.LOAD_ERROR, 1)


def test_the_worst_size_can_be_what_counts():
    result = joined(SIZES, [verdict(speedup=4.0, low=3.0), verdict(speedup=1.5, low=1.0), verdict(speedup=2.0)])
    assert (result.at_worst_size().speedup, result.at_worst_size().speedup_low) == (1.5, 1.0)


def test_an_audit_is_of_the_first_size(judge):
    audit = judge.audit(SIZES)
    assert (audit.task_id, audit.task_hash) == ("softmax", SIZES.text_hash)


def test_all_sizes_have_the_same_weights(device):
    layer = SIZES.reference.replace("torch.softmax(x, -1)", "self.rows(x.T)").replace("    def forward", """\
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Linear(4, 4)
    def forward""")  # fmt: skip
    first, second = (Reference(one, device) for one in map(Task(layer).at_size, Task(layer).workloads[:2]))
    assert first.shares_weights(second)
    assert all(torch.equal(first.state[name], second.state[name]) for name in second.state)


@pytest.mark.processes
def test_what_fails_at_one_size_earns_nothing(judge):
    right, wrong, lazy = (judge.evaluate(SIZES, text) for text in (RIGHT, PADDED_BY_ZEROS, AT_TWO_OF_THREE))
    assert (right.status, [one.status for one in right.sizes]) == (EvalStatus.OK, [EvalStatus.OK] * 3)
    assert (wrong.status, wrong.wrong_sizes) == (EvalStatus.INCORRECT, ("columns=257",))
    assert (lazy.status, lazy.wrong_sizes) == (EvalStatus.DECOY, ("columns=1024",))


FAILS_AT_257 = RIGHT.replace("        out =", "        if x.shape[1] == 257:\n            x.nothing\n        out =", 1)


@pytest.mark.processes
def test_a_failure_at_one_size_leaves_the_others(judge):
    result = judge.evaluate(SIZES, FAILS_AT_257)
    assert [one.status.value for one in result.sizes] == ["ok", "runtime_error", "ok"]
    assert result.sizes[2].speedup is not None


COUNTING = program_of(ROWS.replace("    out =", """\
    columns = x.shape[1]
    self.seen[columns] = self.seen.get(columns, 0) + 1
    if columns != 256 and self.seen[columns] > 2:
        x.nothing
    out =""", 1), "self.seen = {}")  # fmt: skip


@pytest.mark.processes
def test_one_secret_size_has_a_forward_more_the_ablation(judge_with):
    with judge_with(correctness_trials=5) as judge:
        results = [judge.evaluate(SIZES, f"{COUNTING}# {number}") for number in range(8)]
    failed = [result.wrong_sizes for result in results]
    assert [len(sizes) for sizes in failed] == [1] * 8, results[0].error
    assert {*failed} == {("columns=257",), ("columns=1024",)}, results[0].error


MIXED = RIGHT.replace("return out", "return out * 1.0")


@pytest.mark.processes
@pytest.mark.parametrize(("text", "trials"), [(RIGHT, [5, 2, 2]), (MIXED, [5, 5, 5])])
def test_few_trials_where_kernels_alone_compute(text, trials, judge_with):
    with judge_with(correctness_trials=5) as judge:
        results = judge.each_size(at_sizes(EvalRequest(SIZES, text)))
    assert [one.trials.passed for one in results] == trials
