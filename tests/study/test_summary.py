# SPDX-License-Identifier: Apache-2.0
import math
import statistics

import pytest

from recipes.cpu_study.figure import plot
from recipes.cpu_study.summary import curve, ends, interval, last_turn, table


def rows(arm: str, seed: int, values: list[float]) -> list[dict]:
    return [
        {"arm": arm, "seed": seed, "step": step, "kernel/correct_rate": value, "kernel/hack_rate": 0.375,
         "kernel/turn_1/reward/mean": 1.0, "kernel/turn_2/reward/mean": 2.0}
        for step, value in enumerate(values, 1)
    ]  # fmt: skip


ROWS = [*rows("a", 0, [0.1] * 5 + [0.5] * 5), *rows("a", 1, [0.2] * 5 + [0.9] * 5), *rows("b", 0, [0.3] * 10)]


def test_an_interval_is_students():
    found = interval([1.0, 2.0, 6.0])
    assert found.mean == 3.0
    assert found.half == pytest.approx(4.30265 * statistics.stdev([1.0, 2.0, 6.0]) / math.sqrt(3), rel=1e-5)
    assert interval([2.0]).half is None
    with pytest.raises(ValueError, match="at least one"):
        interval([])


def test_the_last_turn_is_the_highest_that_metrics_name():
    assert last_turn(ROWS[0]) == 2
    assert last_turn({"kernel/turn_10/correct_rate": 0.1, "kernel/turn_9/x": 1}) == 10
    assert last_turn({"kernel/turns/mean": 2.0}) == 0


def test_ends_average_five_steps_of_each_seed():
    first, last, gain = ends(ROWS, "a", "correct")
    assert (first.mean, last.mean, gain.mean) == pytest.approx((0.15, 0.7, 0.55))
    assert gain.half == pytest.approx(12.7062 * 0.15, rel=1e-4)
    assert ends(ROWS, "c", "correct") is None
    assert ends(ROWS, "b", "time coverage") is None


def test_a_seed_has_a_run_of_each_model_that_it_started_from():
    two = [*rows("a", 0, [0.1] * 10), *({**row, "model": "m"} for row in rows("a", 0, [0.3] * 10))]
    first, _, _ = ends(two, "a", "correct")
    assert (first.count, first.mean) == (2, pytest.approx(0.2))
    assert "| Arm A | 2 |" in table(two, {"a": "Arm A"})


def test_a_curve_joins_the_seeds_of_a_step():
    assert curve(ROWS, "a", "correct")[1].mean == pytest.approx(0.15)
    assert curve(ROWS, "b", "hack rate")[3].mean == 0.375
    assert curve(ROWS, "b", "reward of a turn")[3].mean == 1.5


def test_the_table_has_a_line_per_arm():
    text = table(ROWS, {"a": "Arm A", "b": "Arm B", "c": "Arm C"})
    assert "| Arm A | 2 | 1.50 → 1.50 ± 0.00 | 0.15 → 0.70 ± " in text
    assert "| Arm B | 1 | 1.50 → 1.50 | 0.30 → 0.30 | - |" in text
    assert "| Arm C | 0 | - |" in text


def test_the_figure_is_drawn(tmp_path):
    plot(ROWS, {"a": "Arm A", "b": "Arm B"}, tmp_path / "study.png", "simulated time")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
