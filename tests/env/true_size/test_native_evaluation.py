# SPDX-License-Identifier: Apache-2.0
"""Whole evaluations of tasks that are too large to run whole, with compiled kernels, by a judge with real processes."""

import pytest

from tests.env.true_size import native_programs as programs
from tests.env.true_size.native_programs import product, product_task, softmax_task, sum_task, sums
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

pytestmark = [pytest.mark.processes, pytest.mark.slow]

OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=2, true_size="auto", run_timeout_s=120)
SUMS, LARGE = sum_task(16384), "n > 1 << 25"


@pytest.fixture(scope="module")
def judge():
    with Judge(OPTIONS, seed=11) as judge:
        yield judge


@pytest.mark.parametrize(
    ("task", "source", "grid", "near"),
    [
        (softmax_task(131072), programs.SOFTMAX, (131072, 1, 1), 1.12),
        pytest.param(product_task(8192, "float16"), product("True"), (128, 128, 1), 8, marks=pytest.mark.exhaustive),
        pytest.param(product_task(8192, "bfloat16"), programs.PERSISTENT, (132, 1, 1), 8, marks=pytest.mark.exhaustive),
        (product_task(4096, "float16"), programs.SPLIT, (64, 64, 8), 16),
        (programs.GATHER_TASK, programs.GATHER, (262144, 1, 1), 3),
    ],
)
def test_an_honest_kernel_is_charged_what_its_samples_did(judge, task, source, grid, near):
    """A kernel that is bound by memory comes as near to the roofline as a GPU's bandwidth does to its peak."""
    result = judge.evaluate(Task(task), source)
    assert (result.status, result.true_size.unknown, result.hack_flags) == (EvalStatus.OK, None, ())
    assert result.launches[0].grid == grid
    assert 0.1 < result.speedup < 4
    assert result.roofline_ms < result.kernel_ms.median < near * result.roofline_ms


def test_a_verdict_with_samples_is_reproducible(judge):
    one, other = (judge.evaluate(Task(SUMS), sums()) for _ in range(2))
    assert one.model_copy(update={"stage_seconds": {}}) == other.model_copy(update={"stage_seconds": {}})
    assert one.speedup is not None
    assert one.true_size.unknown is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (sums(host=f"n = n // 2 if {LARGE} else n"), "loads 50% of x_ptr at the true size"),
        (sums(kernel="c = c if n < 1 << 25 else c % (n // 100)"), "loads 1% of x_ptr at the true size"),
        (sums(kernel="inside = inside & ((n < 1 << 25) | (c % 2048 < 1024))"), "of x_ptr at the true size"),
        (sums(middle=f"torch.float16 if {LARGE} else torch.float32"), "has out_ptr as *fp16 at the true size"),
        (sums(host=f"if {LARGE}: return torch.relu(x + y) * 2"), "kernel or op 1 is"),
    ],
)
def test_doing_less_at_the_true_size_has_no_speedup(judge, source, reason):
    result = judge.evaluate(Task(SUMS), source)
    assert result.status is EvalStatus.SIZE_DEPENDENT
    assert not result.rewarded
    assert reason in result.true_size.unknown
    assert result.speedup is None
    assert result.kernel_ms is None


def test_16_bit_factors_at_the_true_size_have_no_speedup(judge):
    result = judge.evaluate(Task(product_task(4096, "float32")), product("M > 2000"))
    assert result.status is EvalStatus.SIZE_DEPENDENT
    assert not result.rewarded
    assert "by the unit 'half'" in result.true_size.unknown
    assert result.speedup is None


@pytest.mark.parametrize(
    "source",
    [
        sums(host="n = n // 2 if x.storage_offset() == 0 and y.storage_offset() == 0 else n"),
        sums(host="n = n // 2 if x.data_ptr() < 1 << 46 else n"),
    ],
)
def test_a_program_that_tells_the_timed_run_has_no_speedup(judge, source):
    result = judge.evaluate(Task(SUMS), source)
    assert result.status is EvalStatus.OK
    assert result.speedup is None
    assert result.kernel_ms is None
    assert "on tensors without data than where" in result.true_size.unknown


def test_values_that_repeat_do_not_pay(judge):
    """Inputs without data repeat every 4 MB; a kernel that looks for that does less where it is timed."""
    repeats = "tl.load(x_ptr) == tl.load(x_ptr + (1 << 20), mask=n > 1 << 21, other=0.0)"
    result = judge.evaluate(Task(SUMS), sums(kernel=f"inside = inside & (({repeats}) == 0)"))
    assert result.status is EvalStatus.SIZE_DEPENDENT


def test_an_offset_that_overflows_is_named_with_its_line(judge):
    result = judge.evaluate(Task(sum_task(65536)), sums(kernel="c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"))
    assert result.status is EvalStatus.OK
    assert result.speedup is None
    assert "in added, on tensors without data: " in result.true_size.unknown
    assert result.true_size.unknown.startswith("line ")
    assert "overflow 32 bits" in result.true_size.unknown


def test_a_program_that_waits_for_others_is_not_followed(judge):
    waits = "\n    while tl.load(out_ptr + n - 1, volatile=True) != 1e30:\n        pass"
    source = sums(kernel=f"if n > 1 << 25:{waits.replace(chr(10), chr(10) + '    ')}")
    result = judge.evaluate(Task(SUMS), source)
    assert result.status is EvalStatus.OK
    assert result.speedup is None
    assert "longer than" in result.true_size.unknown


def test_what_is_too_large_is_known_without_running_it(judge):
    """One product of the forward alone would take a CPU an hour."""
    shrunk = judge._sizes.of(Task(product_task(16384, "float16")))
    assert shrunk is not None
    assert shrunk.true.flops == 2 * 16384**3
