# SPDX-License-Identifier: Apache-2.0
"""Every figure, in every view and group, with its interval, agrees with plain loops."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.recorded import turn as bench_turn
from tests.figures import naive
from tests.reward.results import correct, failed, timed
from tests.reward.results import turn as turn_of
from verl_kernel.bench.scores import attempt
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt, PlannedTask, RunPlan, attempt_of, best, roofline_share, sol_score
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.figures import FIGURES
from verl_kernel.figures.record import Scores
from verl_kernel.figures.scoring import best_of_k, pass_at_k, score
from verl_kernel.rollout.trajectory import summarise
from verl_kernel.sampler.metrics import kernel_metrics

pytestmark = pytest.mark.slow

FEW = Bootstrap(resamples=20, confidence=0.8, seed=3)
ONE = Attempt("a", 0, 1, "ok", correct=True)
NOISY, SURE = timed(3.0, 1.1), timed(2.0, 1.9)
TIMES = st.floats(1e-4, 1e4)


def near(value):
    return None if value is None else pytest.approx(value, abs=1e-12)


def assert_estimate(estimate, value, tasks):
    """The estimate is `value(tasks)`, a task may come more than once, and has the interval of their resamples."""
    assert estimate.value == near(value(tasks))
    low, high = naive.interval(tasks, value, FEW.resamples, FEW.seed, FEW.confidence)
    assert (estimate.low, estimate.high) == (near(low), near(high))


def histories(attempts, asked, tasks, until):
    """Of each sample that was asked for, its answers until a turn."""
    for task, sample in itertools.product(tasks, range(asked.samples)):
        found = [one for one in attempts if (one.task, one.sample) == (task, sample) and one.turn <= until]
        yield task, sorted(found, key=lambda one: one.turn)


def failure(task):
    return Attempt(task, 0, 1, "missing", correct=False)


def last(attempts, asked, tasks, until):
    return [found[-1] if found else failure(task) for task, found in histories(attempts, asked, tasks, until)]


def every(attempts, asked, tasks, turns):
    missing = [failure(task) for task, found in histories(attempts, asked, tasks, asked.turns) if not found]
    answers = [one for task in tasks for one in attempts if one.task == task and one.turn in turns]
    return answers + missing * (1 in turns)


def check(figures, answers_of, tasks):
    """Figures of a view against loops over `answers_of(tasks)`."""
    answers = answers_of(tasks)
    assert figures.lost == sum(one.status == "infra_error" for one in answers)
    assert figures.answers == len(answers) - figures.lost
    assert figures.missing == sum(one.status == "missing" for one in answers)
    assert [name for name in figures.values if name != "repaired"] == list(FIGURES)
    for name, estimate in figures.values.items():
        assert_estimate(estimate, lambda some, name=name: naive.figure(name, answers_of(some)), tasks)


@settings(max_examples=25, deadline=None)
@given(naive.runs())
def test_all_figures_of_last_and_all_answers(run):
    attempts, asked = run
    scores, tasks = score(attempts, asked, FEW), [one.task for one in asked.tasks]
    turns = range(1, asked.turns + 1)
    check(scores.overall.last_turn, lambda some: last(attempts, asked, some, asked.turns), tasks)
    check(scores.overall.all_answers, lambda some: every(attempts, asked, some, turns), tasks)
    for turn, views in zip(turns, scores.by_turn, strict=True):
        check(views.last_turn, lambda some, turn=turn: last(attempts, asked, some, turn), tasks)
        check(views.all_answers, lambda some, turn=turn: every(attempts, asked, some, [turn]), tasks)


def rank_by_hand(one):
    return one.sure_speedup or 0.0, one.speedup or 0.0, one.compiled


@settings(max_examples=60, deadline=None)
@given(naive.runs())
def test_the_best_of_history_is_the_highest_of_its_turns(run):
    attempts, asked = run
    scores, tasks = score(attempts, asked, FEW), [one.task for one in asked.tasks]
    for turn, views in enumerate(scores.by_turn, 1):
        found = [history for _, history in histories(attempts, asked, tasks, turn)]
        judged = [[one for one in history if not one.lost] for history in found]
        counted = [history for history, all_of_it in zip(judged, found, strict=True) if history or not all_of_it]
        figures = views.best_of_history
        assert (figures.lost, figures.answers) == (len(found) - len(counted), len(counted))
        if not counted:
            assert figures.values["correct"].value is None
            continue
        correct = [[one for one in history if one.correct] for history in counted]
        chosen = [max(some, key=rank_by_hand, default=None) for some in correct]
        speedups = [0.0 if one is None else one.speedup or 0.0 for one in chosen]
        expected = {
            "correct": [bool(some) for some in correct],
            "fast@1.2": [speedup > 1.2 for speedup in speedups],
            "fast@1.5": [speedup > 1.5 for speedup in speedups],
            "fast@1 (sure)": [one is not None and naive.lower_end(one) > 1.0 for one in chosen],
        }
        for name, holds in expected.items():
            assert figures.values[name].value == near(sum(holds) / len(counted)), name
        assert figures.values["speedup (all)"].value == near(naive.geometric([speed or 1.0 for speed in speedups]))


@settings(max_examples=20, deadline=None)
@given(naive.runs(most_tasks=6))
def test_groups_are_scored_like_runs_of_their_own(run):
    attempts, asked = run
    scores = score(attempts, asked, FEW)
    for groups, key in ((scores.by_level, "level"), (scores.by_family, "family")):
        values = {getattr(one, key) for one in asked.tasks}
        assert set(groups) == ({str(value or "unknown") for value in values} if values != {None} else set())
        for name, views in groups.items():
            some = tuple(one for one in asked.tasks if str(getattr(one, key) or "unknown") == name)
            names = {one.task for one in some}
            part = RunPlan(some, asked.samples, asked.turns)
            assert views == score([one for one in attempts if one.task in names], part, FEW).overall


@settings(max_examples=25, deadline=None)
@given(naive.runs())
def test_verls_acc_counts_what_is_lost_as_wrong(run):
    attempts, asked = run
    tasks = [one.task for one in asked.tasks]
    found = score(attempts, asked, FEW).verl_acc
    assert_estimate(
        found, lambda some: naive.mean([float(one.correct) for one in last(attempts, asked, some, asked.turns)]), tasks
    )


@settings(max_examples=20, deadline=None)
@given(naive.runs(), st.randoms())
def test_scores_survive_json_and_do_not_depend_on_the_order(run, random):
    attempts, asked = run
    scores = score(attempts, asked, FEW)
    assert Scores.model_validate_json(scores.model_dump_json()) == scores
    shuffled = list(attempts)
    random.shuffle(shuffled)
    again, views = score(shuffled, asked, FEW), {"overall", "by_turn", "by_level", "by_family"}
    assert again.model_dump(exclude=views) == scores.model_dump(exclude=views)
    assert again.overall.last_turn == scores.overall.last_turn


def test_lost_answers_leave_rates_and_missing_ones_fail():
    tasks = (PlannedTask("a"), PlannedTask("b"))
    attempts = [
        Attempt("a", 0, 1, "ok", correct=True, compiled=True, speedup=2.0, sure_speedup=1.5),
        Attempt("a", 1, 1, "infra_error", correct=False),
        Attempt("b", 0, 1, "hacking", correct=False, compiled=True),
    ]
    scores = score(attempts, RunPlan(tasks, samples=2))
    figures = scores.overall.last_turn
    assert (scores.answers, scores.lost, scores.missing, scores.ended_early) == (3, 1, 1, 0)
    assert (figures.answers, figures.lost, figures.missing) == (3, 1, 1)
    values = {name: estimate.value for name, estimate in figures.values.items()}
    assert (values["correct"], values["hacking"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert (values["fast@1.5"], values["fast@2"]) == (pytest.approx(1 / 3), 0.0)
    assert (values["fast@1.5 (sure)"], values["fast@1.2 (sure)"]) == (0.0, pytest.approx(1 / 3))
    assert values["speedup (correct)"] == pytest.approx(2.0)
    assert values["speedup (all)"] == pytest.approx(2.0 ** (1 / 3))
    assert scores.verl_acc.value == 0.25


def test_tokens_are_those_of_all_turns_until_then():
    attempts = [Attempt("a", 0, turn, "ok", correct=True, tokens=10 * turn) for turn in (1, 2)]
    attempts += [Attempt("a", 1, 1, "ok", correct=True, tokens=4)]
    scores = score(attempts, RunPlan((PlannedTask("a"),), samples=2, turns=2))
    assert [views.tokens for views in scores.by_turn] == [7.0, 17.0]
    assert scores.ended_early == 1
    unknown = [*attempts[:2], Attempt("a", 1, 1, "ok", correct=True)]
    assert score(unknown, RunPlan((PlannedTask("a"),), samples=2, turns=2)).overall.tokens is None


def test_a_run_without_tasks_has_no_figures():
    scores = score([], RunPlan((), 4, 2), FEW)
    assert scores.overall.last_turn.values["correct"].value is None
    assert scores.verl_acc.value is None


@pytest.mark.parametrize(("attempts", "tasks", "named"), [
    ([ONE, ONE], ("a",), "twice"), ([ONE], ("b",), "task a, sample 0, turn 1 was not asked for"),
    ([Attempt("a", 2, 1, "ok", True)], ("a",), "sample 2"), ([Attempt("a", 0, 3, "ok", True)], ("a",), "turn 3"),
    ([ONE], ("a", "a"), "same name"),
])  # fmt: skip
def test_answers_to_something_else_are_refused(attempts, tasks, named):
    with pytest.raises(DataError, match=named):
        score(attempts, RunPlan(tuple(map(PlannedTask, tasks)), samples=2, turns=2))


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_what_enumerating_subsets_gives(passed, data):
    k = data.draw(st.integers(1, len(passed)))
    subsets = list(itertools.combinations(passed, k))
    assert pass_at_k(len(passed), sum(passed), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("samples", "passed", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 2), (3, -1, 2)])
def test_a_pass_at_k_that_is_not_defined_is_refused(samples, passed, k):
    with pytest.raises(ValueError):
        pass_at_k(samples, passed, k)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.data())
def test_the_best_of_k_is_what_enumerating_gives(values, data):
    k = data.draw(st.integers(1, len(values)))
    choices = list(itertools.combinations(values, k))
    assert best_of_k(values, k) == pytest.approx(sum(map(max, choices)) / len(choices))


@given(st.lists(st.booleans(), min_size=1, max_size=2000), st.data())
def test_the_best_of_zeros_and_ones_is_pass_at_k(passed, data):
    k = data.draw(st.integers(1, len(passed)))
    assert best_of_k(passed, k) == pytest.approx(pass_at_k(len(passed), sum(passed), k))


@pytest.mark.parametrize("k", [0, 3])
def test_a_best_of_too_many_is_refused(k):
    with pytest.raises(ValueError, match="is not defined"):
        best_of_k([0.0, 1.0], k)


def enumerated(tasks, samples, criterion, k):
    """Mean over tasks, each by enumerating subsets of its judged samples; tasks with fewer than k are left out."""
    values = []
    for task in tasks:
        judged = [one for one in samples if one.task == task and not one.lost]
        if len(judged) >= k:
            subsets = list(itertools.combinations([naive.figure(criterion, [one]) for one in judged], k))
            values.append(sum(map(any, subsets)) / len(subsets))
    return naive.mean(values)


@settings(max_examples=20, deadline=None)
@given(naive.runs())
def test_every_pass_at_k_with_its_interval(run):
    attempts, asked = run
    tasks = [one.task for one in asked.tasks]
    answers = last(attempts, asked, tasks, asked.turns)
    found = [one for one in score(attempts, asked, FEW).passes if one.view == "last turn"]
    assert {one.k for one in found} == set(range(1, asked.samples + 1))
    for one in found:
        assert_estimate(one.estimate, lambda some, one=one: enumerated(some, answers, one.criterion, one.k), tasks)


def test_a_task_with_too_few_samples_is_left_out():
    tasks = (PlannedTask("a"), PlannedTask("b"))
    attempts = [Attempt(task, sample, 1, "ok", correct=True) for task in "ab" for sample in (0, 1)]
    attempts[-1] = Attempt("b", 1, 1, "infra_error", correct=False)
    found = {(one.k, one.criterion, one.view): one for one in score(attempts, RunPlan(tasks, 2)).passes}
    assert (found[1, "correct", "last turn"].tasks, found[2, "correct", "last turn"].tasks) == (2, 1)


def test_ks_are_powers_of_two_and_the_number_of_samples():
    attempts = [Attempt("a", sample, 1, "ok", correct=True) for sample in range(6)]
    assert {one.k for one in score(attempts, RunPlan.of(attempts)).passes} == {1, 2, 4, 6}


def best_speedups(results):
    """What the bench, a validation and the sampler say of the best answer's speedup."""
    turns = [turn_of(result) for result in results]
    attempts = [attempt(bench_turn("t", 0, n, one.model_dump(exclude={"task_id"}))) for n, one in enumerate(results, 1)]
    scores = score(attempts, RunPlan.of(attempts))
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
    turns = [turn_of(correct(p))]
    assert not attempt_of(correct(p)).is_fast(p)
    assert not attempt_of(correct(p)).is_surely_fast(p)
    metrics = kernel_metrics([turns])
    assert metrics[f"kernel/fast@{p:g}"] == metrics[f"kernel/fast@{p:g}_sure"] == 0.0


def test_a_prediction_that_reaches_p_is_not_sure():
    close = correct(1.4).model_copy(update={"speedup_interval": (1.1, 1.7)})
    metrics = kernel_metrics([[turn_of(close)]])
    assert (metrics["kernel/fast@1_sure"], metrics["kernel/fast@1.2_sure"]) == (1.0, 0.0)


def test_a_speedup_within_noise_is_not_sure():
    assert kernel_metrics([[turn_of(timed(1.01, 1.0))]])["kernel/fast@1_sure"] == 0.0


@pytest.mark.parametrize(("kernel", "score"), [(3.0, 0.5), (1.0, 1.0), (2.0, 2 / 3), (5.0, 1 / 3), (0.5, 1.0)])
def test_sol_is_the_papers_score(kernel, score):
    assert sol_score(kernel, reference_ms=3.0, roofline_ms=1.0) == pytest.approx(score)


@given(TIMES, TIMES, TIMES)
def test_roofline_and_sol_are_shares_and_fall_with_time(kernel, reference, roofline):
    score, share = sol_score(kernel, reference, roofline), roofline_share(kernel, roofline)
    assert 0 < share <= 1
    assert (score is None) == (reference <= roofline)
    if score is not None:
        assert 0 < score <= 1
        assert sol_score(2 * kernel, reference, roofline) <= score
    assert roofline_share(2 * kernel, roofline) <= share


def test_right_answers_that_other_sizes_refute_are_counted():
    answers = [replace(ONE, sample=number, any_size=known) for number, known in enumerate((True, False, True, None))]
    assert score(answers, RunPlan.of(answers)).overall.last_turn.values["any size"].value == near(2 / 3)
