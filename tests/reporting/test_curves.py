# SPDX-License-Identifier: Apache-2.0
from verl_kernel.reporting.page import PANELS, run_charts


def panels(steps, validations=()):
    return {chart.title: chart for chart in run_charts(steps, validations)}


def names(chart):
    return [line.name for line in chart.lines]


def test_every_panel_shows_what_was_logged_under_plain_names():
    known = {
        "critic/score/mean": 0.5,
        "kernel/turn_1/reward/mean": 0.2,
        "kernel/turn_2/reward/mean": 0.3,
        "actor/entropy": None,
    }
    found = panels([{"step": 1, **known}, {"step": 2}], [{"step": 0, "held_out/reward": 0.1}])
    assert list(found) == ["Reward"]
    assert names(found["Reward"]) == ["trajectory", "turn 1", "turn 2", "validation"]
    assert [line.meaning for line in found["Reward"].lines] == [*list(known)[:3], "held_out/reward"]
    assert [mark.text for mark in found["Reward"].x_marks] == ["0", "1"]


def test_no_line_joins_the_validations():
    steps = [{"step": n, "kernel/correct_rate": n / 10} for n in (1, 2, 3)]
    (correct,) = run_charts(steps, [{"step": n, "held_out/acc": n / 10} for n in (0, 3)])
    line, dots = correct.lines
    assert line.path
    assert dots.path == ""
    assert len(dots.dots) == 2
    assert correct.drawn[-1] is dots
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
    assert [(line.name, line.kind) for line in found.lines] == [
        ("either", "line"),
        ("decoys", "dashed"),
        ("hacks", "line"),
    ]


def test_sources_are_named_where_there_are_several():
    (found,) = run_charts([], [{"step": 0, "a/acc": 0.5, "b/acc": 0.25}])
    assert names(found) == ["validation, last turn (a)", "validation, last turn (b)"]


def test_tiny_values_begin_at_zero():
    key = "training/rollout_probs_diff_mean"
    (found,) = run_charts([{"step": n, key: 3e-8} for n in (1, 2)], [])
    assert found.y_marks[0].text == "0"
    assert found.y_marks[-1].text in ("3e-08", "4e-08")
    assert sum(panel.title == found.title for panel in PANELS) == 1
