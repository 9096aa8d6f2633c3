# SPDX-License-Identifier: Apache-2.0
"""Axes, curves over the steps of a run, and drawings."""

import pytest

from verl_kernel.reporting.charts import around, of_shares, round_marks
from verl_kernel.reporting.page import PANELS, run_charts
from verl_kernel.reporting.plots import draw_line, drawing


@pytest.mark.parametrize(("low", "high", "whole", "marks"), [
    (0, 1296, True, [0, 500, 1000]), (1, 32, True, [10, 20, 30]), (0, 3, True, [0, 1, 2, 3]), (0, 1, True, [0, 1]),
    (0, 0.9, False, [0, 0.5]), (5, 5, True, [5]),
])  # fmt: skip
def test_marks_are_round_numbers_between_the_ends(low, high, whole, marks):
    assert round_marks(low, high, whole=whole) == pytest.approx(marks)


@pytest.mark.parametrize("values", [[], [0.0], [2.7, 4.5], [-0.3, 0.1], [3e-8, 1e-8], [1e6]])
def test_an_axis_begins_at_zero_or_below_and_holds_all_values(values):
    marks = around(values)
    assert 2 <= len(marks) <= 7
    assert marks == sorted(marks)
    assert marks[0] <= min([0.0, *values])
    assert marks[-1] >= max([0.0, *values]) * (1 - 1e-9)
    assert any(abs(mark) < 1e-12 for mark in marks)


@pytest.mark.parametrize(("highest", "top"), [(0.0, 0.05), (0.05, 0.05), (0.3, 0.4), (0.41, 0.6), (1.0, 1.0)])
def test_shares_end_at_the_next_round_share(highest, top):
    marks = of_shares([0.0, highest])
    assert (marks[0], marks[-1]) == (0, top)
    assert len(marks) == 5


def names(chart):
    return [line.name for line in chart.lines]


def test_every_panel_shows_what_was_logged_under_plain_names():
    rewards = {"critic/score/mean": 0.5, "kernel/turn_1/reward/mean": 0.2, "kernel/turn_2/reward/mean": 0.3}
    known = {**rewards, "actor/entropy": None}
    charts = run_charts([{"step": 1, **known}, {"step": 2}], [{"step": 0, "held_out/reward": 0.1}])
    found = {chart.title: chart for chart in charts}
    assert list(found) == ["Reward"]
    assert names(found["Reward"]) == ["trajectory", "turn 1", "turn 2", "validation"]
    assert [line.meaning for line in found["Reward"].lines] == [*rewards, "held_out/reward"]
    assert [mark.text for mark in found["Reward"].x_marks] == ["0", "1"]


def test_no_line_joins_the_validations():
    steps = [{"step": n, "kernel/correct_rate": n / 10} for n in (1, 2, 3)]
    (correct,) = run_charts(steps, [{"step": n, "held_out/acc": n / 10} for n in (0, 3)])
    line, dots = correct.lines
    assert line.path
    assert (dots.path, len(dots.dots)) == ("", 2)
    assert correct.back_to_front[-1] is dots
    assert dots.dots[1].y == line.dots[2].y


def test_a_lower_bound_is_drawn_where_it_is_another_line():
    both = {"kernel/fast@1.2": 0.5, "kernel/fast@1.2_sure": 0.5}
    (same,) = run_charts([{"step": 1, **both}], [])
    assert names(same) == ["all turns"]
    (other,) = run_charts([{"step": 1, **both}, {"step": 2, **both, "kernel/fast@1.2_sure": 0.4}], [])
    assert names(other) == ["all turns", "all turns, surely"]


def test_a_line_that_would_hide_an_equal_one_is_dashed():
    steps = [{"step": n, "kernel/hack_rate": 0.1, "kernel/decoy_rate": 0.1, "kernel/hacked_rate": 0.0} for n in (1, 2)]
    (found,) = run_charts(steps, [])
    kinds = [(line.name, line.kind) for line in found.lines]
    assert kinds == [("either", "line"), ("decoys", "dashed"), ("hacks", "line")]


def test_sources_are_named_where_there_are_several():
    (found,) = run_charts([], [{"step": 0, "a/acc": 0.5, "b/acc": 0.25}])
    assert names(found) == ["validation, last turn (a)", "validation, last turn (b)"]


def test_tiny_values_begin_at_zero():
    key = "training/rollout_probs_diff_mean"
    (found,) = run_charts([{"step": n, key: 3e-8} for n in (1, 2)], [])
    assert found.y_marks[0].text == "0"
    assert found.y_marks[-1].text in ("3e-08", "4e-08")
    assert sum(panel.title == found.title for panel in PANELS) == 1


def drawn(path, high=(2.0, 3.0)):
    with drawing(path, figsize=(3, 2)) as (_, axis):
        draw_line(axis, [1, 2], [1.0, 2.0], ([0.0, 1.0], list(high)), colour="C0", label="a line")
        axis.legend()
    return path.read_text()


def test_equal_data_give_equal_files(tmp_path):
    one = drawn(tmp_path / "one.svg")
    assert "a line" in one
    assert one == drawn(tmp_path / "two.svg")
    assert one != drawn(tmp_path / "three.svg", high=(2.5, 3.0))


def test_an_error_leaves_neither_a_file_nor_an_open_figure(tmp_path):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    with pytest.raises(ZeroDivisionError), drawing(tmp_path / "one.svg"):
        raise ZeroDivisionError
    assert not (tmp_path / "one.svg").exists()
    assert pyplot.get_fignums() == before
