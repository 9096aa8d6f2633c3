# SPDX-License-Identifier: Apache-2.0
"""Half-widths from residuals, and how often intervals hold."""

from math import exp
from pathlib import Path

import pytest

from benchmarks.clock.intervals import coverage, half_widths, quantile
from benchmarks.clock.references import Prediction, Published
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.machine.uncertainty import HALF_WIDTHS
from verl_kernel.env.trace import Step, TraceEvent

H100 = Machine.of("h100")
EVENTS = {
    "memory": [TraceEvent("op", "a", steps=(Step(10**9),))],
    "mixed memory": [TraceEvent("op", "b", steps=(Step(10**9, access="mixed"),))],
}


def program(error, name="memory", level="level1"):
    ours = time_ms(EVENTS[name], H100)
    return Prediction(Published(level, Path("1_a.py"), 1.0), EVENTS[name], ours, ours * exp(error))


def test_a_quantile_needs_nine_errors():
    assert quantile([0.1] * 8) is None
    assert quantile([0.1 * n for n in range(1, 10)]) == pytest.approx(0.9)
    assert quantile([0.1 * n for n in range(1, 20)]) == pytest.approx(1.8)


def test_a_small_class_has_the_width_of_all_programs():
    found = [program(0.1 * (-1) ** n) for n in range(20)]
    assert half_widths([*found, program(0.05, "mixed memory")], H100)["mixed memory"] == (1, pytest.approx(0.1))
    assert half_widths([*found, program(0.3, "mixed memory")], H100)["mixed memory"] == (1, pytest.approx(0.3))


@pytest.mark.parametrize(("outside", "bar"), [(0, "missed"), (1, "met"), (3, "missed")])
def test_intervals_hold_as_many_as_they_say(outside, bar):
    beyond = HALF_WIDTHS["memory"] + 0.01
    table = coverage([program(beyond)] * outside + [program(0.0)] * (10 - outside), H100)
    assert [*table.columns[-1].cells] == [bar]
