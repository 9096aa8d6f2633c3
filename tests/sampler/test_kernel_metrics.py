# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.results import correct, failed, timed, turn
from verl_kernel.env.result import EvalResult, EvalStatus, Timing
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.metrics import kernel_metrics

RESULTS = st.builds(correct, st.none() | st.floats(0.1, 4), st.none() | st.floats(0, 1)) | st.sampled_from(
    [failed(status.value, correctness=None) for status in EvalStatus if status is not EvalStatus.OK]
)
TRAJECTORIES = st.lists(st.lists(RESULTS.map(turn), max_size=3), max_size=6)


def test_rates_are_over_all_samples() -> None:
    metrics = kernel_metrics(
        [
            [turn(failed("compile_error", compiled=False)), turn(correct(2.0, 0.5))],
            [turn(correct(1.2, 0.1)), turn(failed("timeout", compiled=True))],
            [turn(failed("decoy", compiled=True, decoy_kernel=True))],
        ]
    )
    assert metrics["kernel/correct_rate"] == 2 / 5
    assert metrics["kernel/compiled_rate"] == 4 / 5
    assert metrics["kernel/decoy_rate"] == 1 / 5
    assert metrics["kernel/fast@1"] == 2 / 5
    assert metrics["kernel/fast@1.2"] == metrics["kernel/fast@1.5"] == 1 / 5
    assert metrics["kernel/fast@2"] == 0
    assert metrics["kernel/speedup/mean"] == pytest.approx(1.6)
    assert metrics["kernel/speedup/max"] == 2.0
    assert metrics["kernel/time_coverage/mean"] == pytest.approx(0.3)
    assert metrics["kernel/status/timeout"] == 1 / 5


def test_an_early_end_counts_in_later_turns() -> None:
    metrics = kernel_metrics([[turn(correct(), reward=1.5), turn(correct(2.5), reward=2.0)], [turn(failed())]])
    assert metrics["kernel/turn_1/correct_rate"] == metrics["kernel/turn_2/correct_rate"] == 0.5
    assert metrics["kernel/turn_2/fast@2"] == 0.5
    assert metrics["kernel/turn_1/reward/mean"] == 0.75
    assert metrics["kernel/turn_2/reward/mean"] == 2.0
    assert "kernel/turn_3/correct_rate" not in metrics


def test_best_is_the_fastest_correct_turn() -> None:
    fast, slow = turn(correct(1.7, 0.2)), turn(correct(0.5, 0.9))
    metrics = kernel_metrics([[slow, fast, turn(failed())], [turn(failed()), turn(failed("hacking", speedup=99.0))]])
    assert metrics["kernel/best/correct_rate"] == metrics["kernel/best/fast@1.5"] == 0.5
    assert metrics["kernel/best/speedup/mean"] == 1.7
    assert metrics["kernel/best/time_coverage/mean"] == 0.2


def test_what_cannot_earn_is_not_correct_however_fast() -> None:
    decoy = correct(9.0).model_copy(update={"decoy_kernel": True})
    metrics = kernel_metrics([[turn(decoy), turn(failed("hacking", speedup=9.0, correctness=True))]])
    assert metrics["kernel/correct_rate"] == metrics["kernel/fast@1"] == 0
    assert metrics["kernel/decoy_rate"] == metrics["kernel/hacked_rate"] == 0.5
    assert metrics["kernel/hack_rate"] == 1


def test_a_sample_that_is_both_decoy_and_hack_is_one_hack() -> None:
    metrics = kernel_metrics([[turn(failed("hacking", decoy_kernel=True))], [turn(failed())]])
    assert metrics["kernel/hack_rate"] == metrics["kernel/turn_1/hack_rate"] == 0.5


def test_unknown_is_left_out_and_never_zero() -> None:
    metrics = kernel_metrics([[turn(correct(None, None))], [turn(failed())]])
    assert metrics["kernel/correct_rate"] == 0.5
    unknown = [name for name in metrics if "coverage" in name or "speedup" in name or "seconds" in name]
    assert unknown == ["kernel/coverage_unknown"]
    assert metrics["kernel/coverage_unknown"] == 0.5
    assert kernel_metrics([]) == kernel_metrics([[], []]) == {}


def test_what_is_sure_is_counted_beside_the_point() -> None:
    noisy, older = timed(1.6, 1.1), timed(3.0, None)
    metrics = kernel_metrics([[turn(noisy)], [turn(older)], [turn(correct(1.3))], [turn(failed())]])
    assert (metrics["kernel/fast@1.2"], metrics["kernel/fast@1.2_sure"]) == (0.75, 0.25)
    assert metrics["kernel/fast@1_sure"] == 0.5
    assert metrics["kernel/best/fast@2_sure"] == 0


def test_an_unknown_coverage_is_counted() -> None:
    wrong = failed(time_coverage=None)
    metrics = kernel_metrics([[turn(timed(2.0, 1.9, time_coverage=None)), turn(correct()), turn(wrong), turn(wrong)]])
    assert metrics["kernel/coverage_unknown"] == 0.25


def test_times_that_nothing_measured_confirms_are_counted() -> None:
    ms = Timing(median=1.0, p20=1.0, p80=1.0, mean=1.0, n=1)
    sources = ("simulated", "simulated_unvalidated", "simulated_unvalidated", "cuda_event")
    metrics = kernel_metrics([[turn(correct(timing_source=source, kernel_ms=ms))] for source in sources])
    assert (metrics["kernel/simulated_clock"], metrics["kernel/unvalidated_clock"]) == (0.75, 0.5)


@given(TRAJECTORIES)
def test_on_a_simulated_clock_the_point_is_sure(trajectories: list[list[TurnRecord]]) -> None:
    metrics = kernel_metrics(trajectories)
    sure = {name: value for name, value in metrics.items() if name.endswith("_sure")}
    assert all(value == metrics[name.removesuffix("_sure")] for name, value in sure.items())
    assert bool(sure) == bool(metrics)


def test_what_was_not_judged_lowers_rates_and_has_no_reward() -> None:
    lost = turn(failed("infra_error", correctness=None))
    metrics = kernel_metrics([[turn(correct(2.0), reward=3.0), lost], [turn(correct(), reward=1.0)], [lost]])
    assert metrics["kernel/infra_error_rate"] == metrics["kernel/status/infra_error"] == 0.5
    assert (
        metrics["kernel/turn_1/infra_error_rate"] == metrics["kernel/turn_2/infra_error_rate"] == pytest.approx(1 / 3)
    )
    assert metrics["kernel/turn_1/correct_rate"] == pytest.approx(2 / 3)
    assert metrics["kernel/correct_rate"] == 0.5
    assert metrics["kernel/turn_1/reward/mean"] == 2
    assert "kernel/turn_2/reward/mean" not in metrics


def test_seconds_of_judging_and_waiting() -> None:
    first = turn(correct(stage_seconds={"load": 0.5, "run": 1.5}, queue_seconds=0.25))
    metrics = kernel_metrics([[first], [turn(correct(stage_seconds={"load": 1.0}, queue_seconds=0.75))]])
    assert metrics["kernel/eval_seconds/mean"] == 1.5
    assert metrics["kernel/eval_seconds/max"] == 2.0
    assert metrics["timing_s/kernel_eval"] == 3.0
    assert metrics["kernel/queue_seconds/max"] == 0.75


@given(TRAJECTORIES)
def test_any_batch_gives_finite_numbers(trajectories: list[list[TurnRecord]]) -> None:
    metrics = kernel_metrics(trajectories)
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    shares = {name: v for name, v in metrics.items() if name.endswith("_rate") or "fast@" in name or "/status/" in name}
    assert all(0 <= value <= 1 for value in shares.values())
    if metrics:
        assert sum(value for name, value in metrics.items() if "/status/" in name) == pytest.approx(1)
        assert metrics["kernel/fast@2"] <= metrics["kernel/fast@1"] <= metrics["kernel/correct_rate"]
        assert metrics["kernel/best/correct_rate"] >= metrics["kernel/turn_1/correct_rate"]


def judged(result: EvalResult, task: str, novel: bool | None, *, has_code: bool = True) -> TurnRecord:
    facts = {"code": "x = 1" if has_code else None, "novel": novel, "novel_bytes": novel}
    return turn(result.model_copy(update={"task_id": task})).model_copy(update=facts)


NOVEL = st.lists(st.lists(st.builds(judged, RESULTS, st.sampled_from("ab"), st.booleans()), max_size=3), max_size=6)


def share(values: list[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def novel_best(turns: list[TurnRecord]) -> list[bool]:
    """For each task, whether its fastest right program is novel; unknown speedups come last, and the earliest first."""
    found = []
    for task in ("a", "b"):
        own = [one for one in turns if one.result.rewarded and one.result.task_id == task]
        if own:
            fastest = max((one.result.speedup or 0.0) for one in own)
            found.append(next(bool(one.novel) for one in own if (one.result.speedup or 0.0) == fastest))
    return found


@given(NOVEL)
def test_novelty_is_counted_over_programs(trajectories: list[list[TurnRecord]]) -> None:
    metrics = kernel_metrics(trajectories)
    turns = [one for own in trajectories for one in own]
    assert metrics.get("kernel/novel") == share([bool(one.novel) for one in turns])
    assert metrics.get("kernel/novel_bytes") == share([bool(one.novel_bytes) for one in turns])
    assert metrics.get("kernel/novel_correct") == share([bool(one.novel) for one in turns if one.result.rewarded])
    assert metrics.get("kernel/novel_best") == share(novel_best(turns))


def test_an_answer_without_a_program_is_not_counted_as_one() -> None:
    turns = [judged(failed(), "a", False, has_code=False), judged(correct(), "a", True)]
    assert kernel_metrics([turns])["kernel/novel"] == 1.0


@given(TRAJECTORIES)
def test_without_a_cold_start_there_is_no_metric_of_novelty(trajectories: list[list[TurnRecord]]) -> None:
    assert not [name for name in kernel_metrics(trajectories) if "novel" in name]
