# SPDX-License-Identifier: Apache-2.0
"""pass@k is the share of subsets of k samples of which one passes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.figures import naive
from verl_kernel.figures.attempts import Asked, AskedTask, Attempt
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.scoring import best_of_k, pass_at_k, score

FEW = Bootstrap(resamples=15, confidence=0.9, seed=1)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_it_is_what_enumerating_subsets_gives(passed, data):
    k = data.draw(st.integers(1, len(passed)))
    subsets = list(itertools.combinations(passed, k))
    assert pass_at_k(len(passed), sum(passed), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("samples", "passed", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 2), (3, -1, 2)])
def test_what_is_not_defined_is_refused(samples, passed, k):
    with pytest.raises(ValueError):
        pass_at_k(samples, passed, k)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.data())
def test_the_best_of_k_is_what_enumerating_gives(values, data):
    k = data.draw(st.integers(1, len(values)))
    choices = list(itertools.combinations(values, k))
    assert best_of_k(values, k) == pytest.approx(sum(map(max, choices)) / len(choices))


@given(st.lists(st.booleans(), min_size=1, max_size=2000), st.data())
def test_of_zeros_and_ones_it_is_pass_at_k(passed, data):
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
def test_every_criterion_with_its_interval(run):
    attempts, asked = run
    tasks = [one.task for one in asked.tasks]
    last = {(one.task, one.sample): one for one in sorted(attempts, key=lambda one: one.turn)}
    places = itertools.product(tasks, range(asked.samples))
    answers = [last.get(place, Attempt(*place, 1, "missing", correct=False)) for place in places]
    found = [one for one in score(attempts, asked, FEW).passes if one.view == "last turn"]
    assert {one.k for one in found} == set(range(1, asked.samples + 1))
    for one in found:
        value = lambda some, one=one: enumerated(some, answers, one.criterion, one.k)  # noqa: E731
        expected = value(tasks)
        assert one.estimate.value == (None if expected is None else pytest.approx(expected, abs=1e-12))
        low, high = naive.interval(tasks, value, FEW.resamples, FEW.seed, FEW.confidence)
        assert one.estimate.low == (None if low is None else pytest.approx(low, abs=1e-12))
        assert one.estimate.high == (None if high is None else pytest.approx(high, abs=1e-12))


def test_a_task_with_too_few_samples_is_left_out():
    tasks = (AskedTask("a"), AskedTask("b"))
    attempts = [Attempt(task, sample, 1, "ok", correct=True) for task in "ab" for sample in (0, 1)]
    attempts[-1] = Attempt("b", 1, 1, "infra_error", correct=False)
    found = {(one.k, one.criterion, one.view): one for one in score(attempts, Asked(tasks, 2)).passes}
    assert found[1, "correct", "last turn"].tasks == 2
    assert found[2, "correct", "last turn"].tasks == 1


def test_ks_are_powers_of_two_and_the_number_of_samples():
    attempts = [Attempt("a", sample, 1, "ok", correct=True) for sample in range(6)]
    assert {one.k for one in score(attempts, Asked.of(attempts)).passes} == {1, 2, 4, 6}
