# SPDX-License-Identifier: Apache-2.0
import pytest
from rich.console import Console

from tests.reporting.runs import step, validation, write_lines
from verl_kernel.errors import DataError
from verl_kernel.reporting.steps import read_steps, read_validations, series, steps_table


def test_steps_are_read_in_order(tmp_path):
    path = write_lines(
        tmp_path / "metrics.jsonl", validation(0, acc=1.0), step(1, **{"critic/score/mean": 0.5}), step(2)
    )
    assert [s["step"] for s in read_steps(path)] == [1, 2]


def test_a_step_logged_twice_counts_once_as_it_was_logged_last(tmp_path):
    path = write_lines(tmp_path / "metrics.jsonl", step(1, x=1.0), step(2, x=2.0), step(2, x=3.0))
    assert series(read_steps(path), "x") == [(1, 1.0), (2, 3.0)]


def test_validations_are_read_from_both_records(tmp_path):
    last = step(2, **validation(2, acc=0.5, best_turn_acc=0.75)["data"], **{"val-aux/num_turns/mean": 4.0})
    path = write_lines(tmp_path / "metrics.jsonl", validation(0, acc=0.25), step(1), last)
    assert read_validations(path) == [
        {"step": 0, "held_out/acc": 0.25},
        {"step": 2, "held_out/acc": 0.5, "held_out/best_turn_acc": 0.75},
    ]


def test_only_the_mean_over_all_samples_is_a_figure(tmp_path):
    data = {"val-core/a/b/acc/mean@4": 0.5, "val-core/a/b/acc/best@4/mean": 0.9, "val-aux/a/b/acc/std@4": 0.1}
    path = write_lines(tmp_path / "metrics.jsonl", {"step": 0, "data": data})
    assert read_validations(path) == [{"step": 0, "a/b/acc": 0.5}]


def test_the_novel_share_of_the_correct_is_told_by_data_source(tmp_path):
    new = validation(0, "new", acc=0.5, novel_acc=0.125, best_turn_acc=0.8, best_turn_novel_acc=0.4)["data"]
    wrong = validation(0, "wrong", acc=0.0, novel_acc=0.0)["data"]
    path = write_lines(tmp_path / "metrics.jsonl", {"step": 0, "data": new | wrong})
    (found,) = read_validations(path)
    assert found["new/novel_correct"] == 0.25
    assert found["new/best_turn_novel_correct"] == 0.5
    assert "wrong/novel_correct" not in found


def test_unfinished_and_foreign_lines_are_left_out(tmp_path):
    path = write_lines(tmp_path / "metrics.jsonl", step(1), "[]", "3", '{"step": 5}', "", '{"step": 2, "da')
    assert [s["step"] for s in read_steps(path)] == [1]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="metrics.jsonl does not exist"):
        read_steps(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "text", True, [1]])
def test_what_is_no_number_is_shown_as_a_dash(value, tmp_path):
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    console.print(steps_table([{"step": 1, "critic/score/mean": 0.25, "kernel/correct_rate": value}], "run"))
    row = console.export_text().splitlines()[4]
    assert "0.250" in row
    assert row.count(" - ") == 7
    assert series([{"step": 1, "x": value}], "x") == []
