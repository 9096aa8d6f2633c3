# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Timing, Trials
from verl_kernel.rollout.feedback import format_feedback, no_code_feedback

TIMING = Timing(median=0.01, p20=0.01, p80=0.01, mean=0.01, n=5)


def result(status: EvalStatus, **fields) -> EvalResult:
    return EvalResult(task_id="t", status=status, **fields)


def test_a_correct_kernel_is_told_speedup_coverage_and_top_kernels():
    text = format_feedback(
        result(
            EvalStatus.OK,
            correctness=True,
            speedup=1.234,
            time_coverage=0.456,
            kernel_ms=TIMING,
            top_kernels=(("add_kernel", 0.002), ("aten::mul", 0.001)),
        )
    )
    assert "Verdict: ok" in text and "1.23x" in text and "46%" in text
    assert "add_kernel 2.0 us, aten::mul 1.0 us" in text
    assert text.endswith("defines ModelNew.")


def test_a_wrong_kernel_is_told_how_wrong():
    trials = Trials(passed=1, total=5, max_abs=0.5, max_rel=2.0)
    text = format_feedback(result(EvalStatus.INCORRECT, correctness=False, trials=trials))
    assert "1 of 5" in text and "0.5" in text


def test_the_useful_end_of_an_error_survives():
    error = EvalError(stage="load", type="NameError", message="x" * 1000 + " name 'blok' is not defined")
    text = format_feedback(result(EvalStatus.LOAD_ERROR, error=error))
    assert "name 'blok' is not defined" in text


@pytest.mark.parametrize("limit", [100, 200, 360, 800])
def test_the_message_is_capped_and_keeps_its_instruction(limit):
    error = EvalError(stage="run", type="ValueError", message="y" * 5000, traceback_tail="z\n" * 500)
    text = format_feedback(result(EvalStatus.RUNTIME_ERROR, error=error), limit)
    assert len(text) <= max(limit, 80)
    assert text.endswith("defines ModelNew.")


def test_no_reward_and_no_seed_reach_the_policy():
    text = format_feedback(result(EvalStatus.OK, correctness=True, speedup=2.0, seed_commit="ab" * 32))
    assert "reward" not in text.lower() and "abab" not in text


def test_an_answer_without_code_is_told_so():
    assert "```python block" in no_code_feedback()
