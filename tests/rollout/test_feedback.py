# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.test_sizes import task
from tests.figures.profiles import profiled
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Launch, Timing, Trials, TrueSize
from verl_kernel.env.size_verdicts import joined
from verl_kernel.figures.profile_lines import result_lines
from verl_kernel.rollout.feedback import format_feedback

TIMING = Timing(median=0.01, p20=0.01, p80=0.01, mean=0.01, n=5)


def result(status: EvalStatus, **fields) -> EvalResult:
    return EvalResult(task_id="t", status=status, **fields)


def test_a_correct_kernel_is_told_its_figures():
    text = format_feedback(
        result(
            EvalStatus.OK, correctness=True, speedup=1.234, time_coverage=0.456, kernel_ms=TIMING,
            top_kernels=(("add_kernel", 0.002), ("aten::mul", 0.001)),
        )
    )  # fmt: skip
    assert "Verdict: ok" in text
    assert "1.23x" in text
    assert "46%" in text
    assert "add_kernel 2.0 us, aten::mul 1.0 us" in text
    assert text.endswith("defines ModelNew.")


def test_the_least_speedup_over_the_sizes_is_told():
    fast, slow = (result(EvalStatus.OK, correctness=True, speedup=speedup) for speedup in (4.0, 1.0))
    text = format_feedback(joined(task("[256, 257]"), [fast, slow]))
    assert "Speedup: 2.00x, the mean over 2 sizes; the least is 1.00x at 257" in text


@pytest.mark.parametrize("form", ["short", "full"])
def test_a_noisy_measurement_is_told_with_what_it_supports(form):
    facts = {"correctness": True, "speedup": 1.5, "speedup_low": 1.25}
    told = format_feedback(result(EvalStatus.OK, timing_source="cuda_event", **facts), form=form)
    assert ("at least 1.25x" if form == "short" else '"speedup_low": 1.25') in told
    exact = format_feedback(result(EvalStatus.OK, timing_source="simulated", **facts), form=form)
    assert "1.25" not in exact
    assert ("Speedup: 1.50x (simulated)" if form == "short" else '"timing_source": "simulated"') in exact


def test_a_profile_takes_the_place_of_the_longest_kernels():
    told = profiled(speedup=1.5, top_kernels=(("softmax", 0.07),))
    text = format_feedback(told, 2000, form="profile")
    assert [line for line in text.splitlines() if line.startswith("predicted: ")] == result_lines(told)
    assert "Speedup: 1.50x" in text
    assert "Top:" not in text
    assert "predicted" not in format_feedback(told, 2000)


def test_a_short_message_keeps_the_largest_saving():
    text = format_feedback(profiled(speedup=1.5), 500, form="profile")
    assert len(text) <= 500
    assert "the largest saving: in softmax" in text


def test_without_a_profile_the_reason_is_told():
    text = format_feedback(result(EvalStatus.OK, correctness=True, timing_source="cuda_event"), form="profile")
    assert "no profile: a GPU counts nothing" in text


def test_a_failure_is_told_as_usual_with_profiles():
    failed = result(EvalStatus.CRASH, error=EvalError(stage="load", type="T", message="m"))
    assert format_feedback(failed, form="profile") == format_feedback(failed)


@pytest.mark.parametrize("form", ["short", "full"])
def test_shapes_vary_where_a_task_is_judged_at_reduced_sizes(form):
    sizes = TrueSize(sizes=({4096: 72},), unknown="a kernel branches on a value that it has loaded")
    text = format_feedback(result(EvalStatus.OK, correctness=True, true_size=sizes), form=form)
    assert "a kernel branches on a value" in text
    assert "72" not in text
    assert "4096" not in text
    if form == "short":
        assert "Shapes vary" in text
        assert "the sizes in Model" in text
    else:
        assert '"sizes": "vary"' in text
    assert "Shapes vary" not in format_feedback(result(EvalStatus.OK, correctness=True), form=form)


@pytest.mark.parametrize("status", EvalStatus)
def test_without_feedback_all_verdicts_are_told_alike(status):
    facts = {"error": EvalError(stage="load", type="ValueError", message="secret"), "speedup": 2.0}
    told = format_feedback(result(status, **facts), form="none")
    assert told == "Try again.\nAnswer with one ```python block that defines ModelNew."
    assert len(format_feedback(result(status, **facts), 40, form="none")) == 40


def test_a_wrong_kernel_is_told_how_wrong():
    trials = Trials(passed=1, total=5, max_abs=0.5, max_rel=2.0)
    text = format_feedback(result(EvalStatus.INCORRECT, correctness=False, trials=trials))
    assert "1 of 5" in text
    assert "0.5" in text


@pytest.mark.parametrize(("form", "limit"), [("short", 800), ("full", 600)])
def test_the_verdict_and_the_useful_end_of_an_error_survive(form, limit):
    error = EvalError(stage="run", type="NameError", message="x" * 3000 + " name 'blok' is not defined")
    text = format_feedback(result(EvalStatus.RUNTIME_ERROR, error=error), limit, form=form)
    assert text.startswith("Verdict: runtime_error\n")
    assert "name 'blok' is not defined" in text


LOUD = EvalError(stage="run", type="ValueError", message="y" * 5000, traceback_tail="z\n" * 500)


@given(
    status=st.sampled_from([status for status in EvalStatus if status is not EvalStatus.INFRA_ERROR]),
    limit=st.integers(100, 1000), error=st.sampled_from([None, LOUD]), form=st.sampled_from(["short", "full"]),
    name=st.sampled_from(["ModelNew", "B" * 40 + "New", "C" * 200 + "New"]),
)  # fmt: skip
def test_the_limit_is_exact_and_the_instruction_survives(status, limit, error, form, name):
    told = result(status, error=error, speedup=1.5, time_coverage=0.5, top_kernels=(("k" * 50, 1.0),))
    text = format_feedback(told, limit, candidate_class=name, form=form)
    assert len(text) <= limit
    if len(name) < 20:
        assert text.endswith("Answer with one ```python block that defines ModelNew.")
        assert text.startswith(f"Verdict: {status.value}\n")
    if error is not None and limit > 300 and form == "full":
        assert len(text) >= limit - 1


def test_a_limit_leaves_out_no_more_than_it_must():
    told = result(EvalStatus.INCORRECT)
    whole = format_feedback(told)
    assert format_feedback(told, len(whole)) == whole
    shorter = format_feedback(told, len(whole) - 1)
    assert shorter.startswith("Verdict: ")
    assert shorter.endswith("defines ModelNew.")
    assert {len(format_feedback(result(EvalStatus.CRASH, error=LOUD), most)) - most for most in (120, 250, 400)} == {0}


@pytest.mark.parametrize("status", [EvalStatus.OK, EvalStatus.INCORRECT, EvalStatus.CRASH])
def test_the_class_of_the_task_is_named(status):
    text = format_feedback(result(status), candidate_class="BlockNew")
    assert text.endswith("defines BlockNew.")
    assert "Model" not in text
    assert ("matches Block." in text) is (status is EvalStatus.INCORRECT)


def test_a_full_report_is_json_without_secrets():
    told = result(
        EvalStatus.OK, correctness=True, speedup=2.0, kernel_ms=TIMING,
        launches=(Launch(name="k", grid=(3,), count=2),), fallback_ops={"aten::mul": 1}, seed_commit="ab" * 32,
        env={"torch": "9.9"}, queue_seconds=7.0, isolation=("seccomp",),
    )  # fmt: skip
    text = format_feedback(told, 5000, form="full")
    report = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert (report["speedup"], report["kernel_ms"]["n"]) == (2.0, 5)
    assert report["fallback_ops"] == {"aten::mul": 1}
    assert report["launches"] == [{"name": "k", "grid": [3], "count": 2}]
    assert not {"seed_commit", "env", "queue_seconds", "isolation", "task_id", "attempts", "status"} & set(report)
    assert "reward" not in text
    assert "abab" not in text


@pytest.mark.parametrize("form", ["short", "full"])
def test_what_quotes_the_candidate_is_cleaned_before_it_is_cut(form):
    error = EvalError(stage="run", type="E", message="<end>" * 100)
    told = result(EvalStatus.CRASH, error=error, top_kernels=(("<end>", 1.0),))
    for limit in (120, 200, 2000):
        text = format_feedback(told, limit, form=form, clean=lambda text: text.replace("<end>", "< end>"))
        assert "<end>" not in text
        assert len(text) <= limit


def test_no_reward_and_no_seed_reach_the_policy():
    text = format_feedback(result(EvalStatus.OK, correctness=True, speedup=2.0, seed_commit="ab" * 32))
    assert "reward" not in text.lower()
    assert "abab" not in text
