# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel compare`: what differs between two runs, or why they cannot be compared."""

import json

import pytest

from tests.bench.recorded import WRONG, timed, turn, write_run
from tests.commands.lines import invoked
from verl_kernel.figures.figures import FIGURES, REPAIRS


def compare(*args, exit_code=0, columns=200):
    return invoked("compare", *args, exit_code=exit_code, columns=columns).output


@pytest.fixture
def runs(tmp_path):
    slow = [turn(task, sample, 1, timed(1.1)) for task in "ab" for sample in (0, 1)]
    fast = [turn("a", 0, 1, timed(1.5)), turn("a", 1, 1, WRONG), turn("b", 0, 1, WRONG), turn("b", 1, 1, WRONG)]
    return write_run(tmp_path / "slow", slow), write_run(tmp_path / "fast", fast, model="other", temperature=0.5)


def test_figures_settings_and_tasks_that_changed_sides(runs):
    said = compare(*runs)
    for words in (
        *("model: toy in A, other in B", "temperature: 1.0 in A, 0.5 in B", "tasks that changed sides, last turn"),
        *("fast@1.2 (sure)", "times: simulated: a model of a GPU, no measurement", "-0.750", "0 of 2"),
    ):
        assert words in said


def test_output_that_is_no_terminal_is_not_squeezed(runs):
    said = compare(*runs, columns=None)
    assert "1.000 [1.000, 1.000]" in said
    assert max(map(len, said.splitlines())) > 80


def test_a_narrow_terminal_folds_names_and_cuts_none(runs):
    said = compare(*runs, columns=40)
    assert "…" not in said
    assert max(map(len, said.split("figure")[1].splitlines()[:20])) <= 40


def test_json_holds_all_of_it(runs):
    found = json.loads(compare(*runs, "--json", "--resamples", "200"))
    assert found["comparison"]["resamples"] == 200
    assert found["settings"]["model"] == ["toy", "other"]
    assert found["times"].startswith("simulated: ")
    views = {"last turn", "best of history"}
    figures = [(one["view"], one["figure"]) for one in found["comparison"]["differences"]]
    assert set(figures) == {(view, name) for view in views for name in FIGURES | REPAIRS}
    assert len(figures) == len(set(figures))
    correct = next(one for one in found["comparison"]["differences"] if one["figure"] == "correct")
    assert (correct["a"]["value"], correct["b"]["value"]) == (1.0, 0.25)
    assert correct["difference"]["low"] <= correct["difference"]["value"] == -0.75 <= correct["difference"]["high"]
    changed = {(one["task"], one["criterion"]) for one in found["comparison"]["changes"] if one["view"] == "last turn"}
    assert ("b", "correct") in changed
    assert ("a", "fast@1.2") in changed
    assert ("a", "correct") not in changed


def test_what_feedback_repairs_passes_a_gate_or_fails_it(tmp_path):
    """One of five second answers of `none` is right, four of `short`."""
    none, short = (
        write_run(
            tmp_path / name,
            [
                turn(task, 0, number, timed(1.1) if number == 2 and task in right else WRONG)
                for task in "abcde"
                for number in (1, 2)
            ],
            tasks=5, samples=1, turns=2,
        )
        for name, right in (("none", "a"), ("short", "abcd"))
    )  # fmt: skip
    assert "repaired" in compare(none, short, "--at-least", "repaired=0.1")
    assert "repaired: B - A is +0.600 [" in compare(none, short, "--at-least", "repaired=0.55", exit_code=1)
    assert "repaired: B - A is -0.600 [" in compare(short, none, "--at-least", "repaired=0", exit_code=1)


@pytest.mark.parametrize(
    ("goal", "sentence"),
    [
        ("repair=1", "--at-least is 'repair=1'; did you mean repaired?"),
        ("correct", "--at-least is 'correct'; "),
        ("correct=x", "'x' is no finite number, as in repaired=0.2"),
        ("correct=nan", "'nan' is no finite number"),
        ("correct=1e400", "'1e400' is no finite number"),
    ],
)
def test_a_wrong_goal_is_refused_in_a_sentence(runs, goal, sentence):
    assert sentence in compare(*runs, "--at-least", goal, exit_code=2)


@pytest.mark.parametrize("goals", [(-1, 0.5), (0.5, -1)])
def test_of_two_goals_of_a_figure_the_higher_counts(runs, goals):
    words = [word for goal in goals for word in ("--at-least", f"correct={goal}")]
    assert "not surely 0.5" in compare(*runs, *words, exit_code=1)


def test_a_goal_that_runs_cannot_show_is_missed(runs):
    assert "repaired: the runs do not show it" in compare(*runs, "--at-least", "repaired=0.2", exit_code=1)


@pytest.mark.parametrize(
    ("header", "verdict", "named"),
    [
        ({"suite": "mine", "suite_hash": "s2"}, timed(1.1), "suite cpu and"),
        ({"baseline": "compile"}, timed(1.1), "run both with the same --baseline"),
        ({}, timed(1.1, timing_source="cuda_event"), "different clocks (cuda_event, simulated)"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(runs, tmp_path, header, verdict, named):
    said = compare(runs[0], write_run(tmp_path / "odd", [turn("a", 0, 1, verdict)], **header), exit_code=2)
    assert named in said
    assert len(said.splitlines()) == 1


def test_names_of_tasks_are_no_markup(tmp_path):
    runs = [write_run(tmp_path / name, [turn("[red]", 0, 1, verdict)], tasks=1, samples=1, turns=1)
            for name, verdict in (("right", timed(2.0)), ("wrong", WRONG))]  # fmt: skip
    assert "[red]" in compare(*runs)
