# SPDX-License-Identifier: Apache-2.0
"""Every room says the same of the same verdicts, also where the highest speedup and the highest sure one differ."""

import pytest

from tests.bench.recorded import turn as bench_turn
from tests.reward.results import correct, failed, timed, turn
from verl_kernel.bench.scores import attempt
from verl_kernel.figures.attempts import Asked, attempt_of, best
from verl_kernel.figures.scoring import score
from verl_kernel.rollout.trajectory import summarise
from verl_kernel.sampler.metrics import kernel_metrics

NOISY, SURE = timed(3.0, 1.1), timed(2.0, 1.9)


def best_speedups(results):
    """What the bench, a validation and the sampler say of the best answer's speedup."""
    turns = [turn(result) for result in results]
    attempts = [attempt(bench_turn("t", 0, n, one.model_dump(exclude={"task_id"}))) for n, one in enumerate(results, 1)]
    scores = score(attempts, Asked.of(attempts))
    return (
        scores.overall.best_of_history.values["speedup (correct)"].value,
        summarise(turns)["best_turn_speedup"],
        kernel_metrics([turns])["kernel/best/speedup/mean"],
    )


@pytest.mark.parametrize("results", [(NOISY, SURE), (SURE, NOISY), (SURE, failed("infra_error", correctness=None))])
def test_the_best_answer_has_the_highest_sure_speedup(results):
    assert best_speedups(results) == pytest.approx((2.0, 2.0, 2.0))


def test_of_equally_sure_answers_the_faster_one_is_the_best():
    assert best([attempt_of(timed(2.0, 1.5)), attempt_of(timed(2.5, 1.5))]).speedup == 2.5


def test_without_a_right_answer_one_that_compiled_is_the_best():
    wrong = [attempt_of(failed("load_error", compiled=False)), attempt_of(failed("incorrect", compiled=True))]
    assert best(wrong).compiled


@pytest.mark.parametrize("p", [1.0, 1.2, 1.5, 2.0])
def test_an_answer_that_is_exactly_p_times_as_fast_is_not_fast(p):
    turns = [turn(correct(p))]
    assert not attempt_of(correct(p)).is_fast(p)
    assert not attempt_of(correct(p)).is_surely_fast(p)
    metrics = kernel_metrics([turns])
    assert metrics[f"kernel/fast@{p:g}"] == metrics[f"kernel/fast@{p:g}_sure"] == 0.0


def test_a_prediction_that_reaches_p_is_not_sure():
    close = correct(1.4).model_copy(update={"speedup_interval": (1.1, 1.7)})
    metrics = kernel_metrics([[turn(close)]])
    assert (metrics["kernel/fast@1_sure"], metrics["kernel/fast@1.2_sure"]) == (1.0, 0.0)


def test_a_speedup_within_noise_is_not_sure():
    assert kernel_metrics([[turn(timed(1.01, 1.0))]])["kernel/fast@1_sure"] == 0.0
