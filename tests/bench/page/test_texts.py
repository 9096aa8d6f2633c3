# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.bench.page.texts import UNKNOWN, VERDICTS, estimate, factor, milliseconds, percent
from verl_kernel.env import EvalStatus
from verl_kernel.figures.record import Estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00401, "4.01 µs"), (0.9994, "999 µs"), (0.9996, "1 ms"), (12.345, "12.3 ms"), (999.6, "1 s"), (0.0, "0 µs")],
)
def test_a_time_has_the_unit_that_suits_it(value, text):
    assert milliseconds(value) == text


@pytest.mark.parametrize("text", [factor, percent, milliseconds])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_unknown_is_a_dash(text, value):
    assert text(value) == UNKNOWN


def test_an_estimate_shows_its_interval():
    assert estimate(Estimate(value=0.5, low=0.25, high=0.754), is_factor=False) == ("50%", "25 to 75")
    assert estimate(Estimate(value=1.5, low=1.25, high=2.0), is_factor=True) == ("1.50x", "1.25 to 2.00")
    assert estimate(Estimate(value=None), is_factor=False) == (UNKNOWN, "")


def test_every_status_has_a_colour_and_words():
    assert set(EvalStatus) < set(VERDICTS)
