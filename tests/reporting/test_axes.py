# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.reporting.charts import around, of_shares, round_marks


@pytest.mark.parametrize(
    ("low", "high", "whole", "marks"),
    [
        (0, 1296, True, [0, 500, 1000]),
        (1, 32, True, [10, 20, 30]),
        (0, 3, True, [0, 1, 2, 3]),
        (0, 1, True, [0, 1]),
        (0, 0.9, False, [0, 0.5]),
        (5, 5, True, [5]),
    ],
)
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
    assert marks[0] == 0
    assert marks[-1] == top
    assert len(marks) == 5
