# SPDX-License-Identifier: Apache-2.0
"""Curves over turns and tokens against brute force, and the figure made of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.bench.curves import FIGURE, Curves, curves, plot_curves
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt, PlannedTask, RunPlan
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.scoring import score

QUICK = Bootstrap(resamples=50)


def answer(task: str, sample: int, turn: int, speedup: float | None, tokens: int | None = 10) -> Attempt:
    """One that is right where it has a speedup."""
    return Attempt(
        task=task, sample=sample, turn=turn, status="incorrect" if speedup is None else "ok",
        correct=speedup is not None, speedup=speedup, sure_speedup=speedup, tokens=tokens,
    )  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Attempt], RunPlan]:
    asked = RunPlan(tuple(PlannedTask(f"t{n}") for n in range(draw(st.integers(1, 3)))), draw(st.integers(1, 2)), 4)
    speedup = st.sampled_from([None, 0.5, 1.2, 2.0])
    attempts = [
        answer(task.task, sample, turn, draw(speedup), draw(st.integers(1, 9)))
        for task in asked.tasks
        for sample in range(asked.samples)
        for turn in range(1, draw(st.integers(0, 4)) + 1)
    ]
    return attempts, asked


@pytest.mark.slow
@given(runs())
def test_over_turns_the_points_are_the_scores_of_each_turn(run):
    attempts, asked = run
    found, scores = curves("a", attempts, asked, bootstrap=QUICK), score(attempts, asked, QUICK)
    assert [point.at for point in found.by_turn] == [1, 2, 3, 4]
    for point, views in zip(found.by_turn, scores.by_turn, strict=True):
        assert point.last == views.last_turn.values[FIGURE]
        assert point.best == views.best_of_history.values[FIGURE]
    if attempts:
        assert found.mean_tokens == pytest.approx([views.tokens for views in scores.by_turn])


@given(runs(), st.integers(1, 40))
def test_an_answer_counts_once_its_sample_has_paid(run, budget):
    attempts, asked = run
    (point,) = curves("a", attempts, asked, budgets=[budget], bootstrap=QUICK).by_tokens
    last, best = [], []
    for task in asked.tasks:
        for sample in range(asked.samples):
            spent, fast = 0, [False]
            for one in attempts:
                if (one.task, one.sample) == (task.task, sample):
                    spent += one.tokens
                    if spent <= budget:
                        fast.append((one.speedup or 0.0) > 1.2)
            last.append(fast[-1])
            best.append(any(fast))
    assert point.last.value == pytest.approx(sum(last) / len(last))
    assert point.best.value == pytest.approx(sum(best) / len(best))


@given(runs())
def test_the_dearest_budget_is_the_last_turn(run):
    attempts, asked = run
    found = curves("a", attempts, asked, bootstrap=QUICK)
    if attempts:
        end, last = found.by_tokens[-1], found.by_turn[-1]
        assert (end.last, end.best) == (last.last, last.best)
        assert end.at == max(
            sum(one.tokens for one in attempts if (one.task, one.sample) == (task.task, sample))
            for task in asked.tasks
            for sample in range(asked.samples)
        )
    else:
        assert found.by_tokens == ()


def test_a_worse_last_answer_lowers_one_curve_and_not_the_other():
    attempts = [answer("t", 0, turn, speedup) for turn, speedup in enumerate([None, 2.0, 0.9], 1)]
    found = curves("a", attempts, RunPlan.of(attempts), budgets=[9, 10, 20, 30])
    assert [point.last.value for point in found.by_turn] == [0, 1, 0]
    assert [point.best.value for point in found.by_turn] == [0, 1, 1]
    assert [point.last.value for point in found.by_tokens] == [0, 0, 1, 0]
    assert [point.best.value for point in found.by_tokens] == [0, 0, 1, 1]
    assert found.mean_tokens == (10, 20, 30)


def test_without_tokens_there_is_no_curve_over_them():
    attempts = [answer("t", 0, 1, 2.0), answer("t", 0, 2, 2.0, tokens=None)]
    found = curves("a", attempts, RunPlan.of(attempts))
    assert found.by_tokens == ()
    assert found.mean_tokens is None
    assert len(found.by_turn) == 2


def test_an_answer_that_was_not_asked_for_is_refused():
    with pytest.raises(DataError, match="task t, sample 0, turn 2 was not asked for"):
        curves("a", [answer("t", 0, 2, 2.0)], RunPlan((PlannedTask("t"),), 1, 1))


@pytest.mark.slow
def test_curves_survive_json_and_equal_ones_give_equal_figures(tmp_path):
    attempts = [answer(task, 0, turn, 1.0 + turn / 4) for task in "ab" for turn in (1, 2, 3)]
    found = curves("of last", attempts, RunPlan.of(attempts))
    again = Curves.model_validate_json(found.model_dump_json())
    assert again == found
    for name, run in (("one", found), ("two", again)):
        plot_curves([run, run.model_copy(update={"name": "of top_w"})], tmp_path / f"{name}.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    for words in ("of last, last turn", "of top_w, best of history", "fast@1.2", "turn", "tokens of a sample"):
        assert words in text
