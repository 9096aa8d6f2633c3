# SPDX-License-Identifier: Apache-2.0
"""Whole evaluations of tasks that are too large, by a judge with real processes."""

import pytest

from tests.env.programs import HONEST, REFERENCE
from tests.env.true_size.programs import PRODUCT, ROWS, TUNED, product, rows
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import TaskError

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=2, true_size="auto")
LARGE = "x.numel() > 1 << 24"


@pytest.fixture(scope="module")
def judge():
    with Judge(OPTIONS, seed=11) as judge:
        yield judge


def test_an_honest_kernel_is_charged_the_true_size(judge):
    result = judge.evaluate(Task(ROWS), rows())
    assert result.status is EvalStatus.OK
    assert result.rewarded
    assert result.hack_flags == ()
    assert len(result.true_size.sizes) == 2
    assert result.true_size.unknown is None
    assert all(new < old for sizes in result.true_size.sizes for old, new in sizes.items())
    assert result.trials.passed == result.trials.total == 4
    assert [launch.grid for launch in result.launches] == [(32768 * 16384 // 8192, 1, 1)]
    assert result.kernel_ms.median > 1
    assert result.reference_ms.median > 1
    assert result.time_coverage == 1.0
    assert result.profile.ms == result.kernel_ms.median
    assert {one.name: one.least for one in result.profile.launches[0].tensors} == {
        "x": 4 * 32768 * 16384, "w": 4 * 16384, "o": 4 * 32768 * 16384
    }  # fmt: skip
    assert result.roofline_ms == pytest.approx(2 * 4 * 32768 * 16384 / 3350e6, rel=1e-3)
    assert result.roofline_ms < result.kernel_ms.median
    assert EvalResult.model_validate_json(result.model_dump_json()) == result
    again = judge.evaluate(Task(ROWS), rows())
    assert again.model_copy(update={"stage_seconds": {}}) == result.model_copy(update={"stage_seconds": {}})


def test_an_honest_product_is_charged_the_true_size(judge):
    result = judge.evaluate(Task(PRODUCT), product())
    assert (result.status, result.true_size.unknown, result.hack_flags) == (EvalStatus.OK, None, ())
    assert [launch.grid for launch in result.launches] == [(32, 64, 1)]
    assert result.kernel_ms.median > 1
    assert 0.1 < result.roofline_ms < result.kernel_ms.median


def test_a_tuned_kernel_may_choose_anew_at_the_true_size(judge):
    result = judge.evaluate(Task(PRODUCT), TUNED)
    assert (result.status, result.true_size.unknown, result.hack_flags) == (EvalStatus.OK, None, ())
    assert result.launches[0].grid in [(16, 32, 1), (32, 64, 1)]
    assert result.kernel_ms.median > 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (rows(f"if {LARGE}: return x"), "shares memory with an input"),
        (rows("n = min(n, 1 << 22)"), "load"),
        (rows("n = n if n < 1 << 24 else n // 2"), "launch 1 loads 50% of x"),
        (rows(kernel="c = c if n < 1 << 24 else c % B"), "launch 1 loads 0% of x"),
    ],
)
def test_doing_less_at_the_true_size_has_no_speedup(judge, source, reason):
    result = judge.evaluate(Task(ROWS), source)
    assert result.status is EvalStatus.SIZE_DEPENDENT
    assert not result.rewarded
    assert reason in result.true_size.unknown
    assert result.speedup is None
    assert result.kernel_ms is None
    assert result.time_coverage is None


def test_a_shortened_sum_at_the_true_size_has_no_speedup(judge):
    result = judge.evaluate(Task(PRODUCT), product("min(K, 2048)"))
    assert result.status is EvalStatus.SIZE_DEPENDENT
    assert not result.rewarded
    assert "launch 1 loads 25% of b" in result.true_size.unknown
    assert result.speedup is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (rows("n = n + 0 * int(x.sum().item() > 1e30)"), "reads the value of a tensor on the host"),
        (rows("n = n if n < 1 << 24 else x.numpy().size"), "reads a tensor on the host"),
        (rows("[] if n < 1 << 24 else [].pop()"), "IndexError"),
        (rows("try:\n            x[0, 0].item()\n        except Exception:\n            pass"), "reads the value"),
    ],
)
def test_what_cannot_be_followed_has_no_speedup_and_says_why(judge, source, reason):
    result = judge.evaluate(Task(ROWS), source)
    assert result.status is EvalStatus.OK
    assert result.rewarded
    assert result.hack_flags == ()
    assert reason in result.true_size.unknown
    assert result.speedup is None


def test_a_program_that_is_right_at_one_size_only_is_wrong(judge):
    """The second size is larger, whatever both are."""
    small = judge.evaluate(Task(ROWS), rows()).true_size.sizes[0]
    elements = small[32768] * small[16384]
    result = judge.evaluate(Task(ROWS), rows(f"n = n if n <= {elements} else 0"))
    assert result.status is EvalStatus.INCORRECT
    assert result.trials.passed == 2
    assert result.speedup is None


def test_what_a_program_does_once_is_no_difference(judge):
    once = 'self.seen = getattr(self, "seen", None) or [n]'
    result = judge.evaluate(Task(ROWS), rows(once))
    assert (result.status, result.true_size.unknown, result.hack_flags) == (EvalStatus.OK, None, ())


def test_a_small_task_is_judged_as_it_is(judge):
    task = Task(REFERENCE)
    result = judge.evaluate(task, HONEST)
    with Judge(GymOptions(device="cpu", static_check="off", correctness_trials=2), seed=11) as plain:
        expected = plain.evaluate(task, HONEST)
    assert result.true_size is None
    assert result.model_copy(update={"stage_seconds": {}}) == expected.model_copy(update={"stage_seconds": {}})


def test_an_irreducible_task_is_refused_in_one_sentence(judge):
    fixed = ROWS.replace("return torch.relu", "assert x.shape == (32768, 16384)\n        return torch.relu")
    with pytest.raises(TaskError, match="no copy with smaller sizes runs the same ops") as caught:
        judge.evaluate(Task(fixed, "fixed"), rows())
    assert "\n" not in str(caught.value)
