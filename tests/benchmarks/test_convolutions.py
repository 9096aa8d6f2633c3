# SPDX-License-Identifier: Apache-2.0
"""What published times leave for a convolution."""

from pathlib import Path

from benchmarks.clock.convolutions import spread
from benchmarks.clock.references import Prediction, Published
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.trace import Step, TraceEvent

H100 = Machine.of("h100")
COPY = TraceEvent("op", "aten::copy_", steps=(Step(10**9),))


def convolution(size: int) -> TraceEvent:
    return TraceEvent("op", "aten::convolution", steps=(Step(size),))


def program(number: int, events: list[TraceEvent], slower: float) -> Prediction:
    ours = time_ms(events, H100)
    return Prediction(Published("level2", Path(f"{number}_a.py"), 1.0), events, ours, ours + slower)


def test_what_is_left_is_all_that_the_rest_does_not_explain():
    alike = [program(1, [convolution(10**9), COPY], 0.0), program(2, [COPY, convolution(10**9)], 1.0)]
    table = spread([*alike, program(3, [convolution(10**8)], 0.0), program(4, [COPY], 0.0)], H100)
    (names,), (predicted,), (left,) = (list(column.cells) for column in table.columns)
    assert names == "2/1, 2/2"
    ms = time_ms([convolution(10**9)], H100)
    assert predicted == f"{ms:.2f}"
    assert left == f"{ms:.2f}, {ms + 1:.2f}"
