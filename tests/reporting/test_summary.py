# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.reporting.summary import Change, before_and_after, first_and_last, window


def steps(rewards, correct):
    pairs = enumerate(zip(rewards, correct, strict=True), start=1)
    return [{"step": n, "critic/score/mean": r, "kernel/correct_rate": c} for n, (r, c) in pairs]


def cells(changes):
    return {change.name: change.cells[1:] for change in changes}


def test_five_steps_at_either_end_are_compared():
    run = steps([1.0] * 5 + [9.0] * 3 + [2.0] * 5, [0.25] * 5 + [0.0] * 3 + [0.75] * 5)
    assert cells(first_and_last(run)) == {
        "reward": ["1.000", "2.000", "x 2.00"],
        "correct rate": ["0.250", "0.750", "+0.500"],
    }


def test_a_short_run_is_compared_by_halves_that_do_not_overlap():
    run = steps([1.0, 5.0, 3.0], [0.5, 0.0, 0.25])
    assert window(run) == 1
    assert cells(first_and_last(run))["reward"] == ["1.000", "3.000", "x 3.00"]
    assert first_and_last(run[:1]) == first_and_last([]) == []


def test_a_metric_that_was_logged_at_one_end_only_has_no_change():
    run = [{"step": 1, "kernel/fast@1.2": None}, {"step": 2, "kernel/fast@1.2": 0.5}]
    assert cells(first_and_last(run)) == {"fast@1.2": ["-", "0.500", "-"]}


@pytest.mark.parametrize("before", [0.0, -1.0])
def test_a_factor_needs_something_to_multiply(before):
    assert Change("reward", before, 2.0, is_factor=True).cells[-1] == "-"


def test_held_out_tasks_before_and_after():
    validations = [{"step": n, "held_out/acc": n / 10, "held_out/best_turn_acc": 0.5} for n in (0, 3, 6)]
    assert cells(before_and_after(validations)) == {
        "correct rate, last turn": ["0.000", "0.600", "+0.600"],
        "correct rate, best turn": ["0.500", "0.500", "+0.000"],
    }


def test_one_validation_has_no_after_and_none_has_no_figure():
    assert cells(before_and_after([{"step": 0, "held_out/acc": 0.5}])) == {
        "correct rate, last turn": ["0.500", "-", "-"]
    }
    assert before_and_after([]) == []


def test_data_sources_are_told_apart():
    first = {"step": 0, "a/acc": 0.5, "b/x/acc": 0.25}
    assert list(cells(before_and_after([first, {"step": 5, "a/acc": 1.0}]))) == [
        "a: correct rate, last turn",
        "b/x: correct rate, last turn",
    ]
