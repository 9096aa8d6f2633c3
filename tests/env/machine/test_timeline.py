# SPDX-License-Identifier: Apache-2.0
"""Host and device work side by side: the time is that of whoever is later."""

from itertools import pairwise

import pytest

from verl_kernel.env.machine.constants import constant
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import event_ms, time_ms, timeline
from verl_kernel.env.trace import Step, TraceEvent

H100 = Machine.of("h100")
SMALL = TraceEvent("op", "small", steps=(Step(),))
LARGE = TraceEvent("op", "large", steps=(Step(3 * 10**9),))


def test_nothing_takes_no_time():
    assert time_ms([], H100) == 0.0


def test_the_host_has_a_start():
    assert time_ms([SMALL] * 9, H100) == pytest.approx(9 * event_ms(SMALL, H100))


def test_many_small_ops_wait_for_the_host():
    ends = [time_ms([SMALL] * count, H100) for count in range(40, 44)]
    assert ends[0] == pytest.approx(40 * 10e-3 - constant("head_start_us") / 1e3 + event_ms(SMALL, H100))
    assert [later - earlier for earlier, later in pairwise(ends)] == pytest.approx([10e-3] * 3)


def test_a_large_kernel_hides_what_the_host_does_meanwhile():
    whole = time_ms([LARGE, *[SMALL] * 20], H100)
    assert whole == pytest.approx(event_ms(LARGE, H100) + 20 * event_ms(SMALL, H100))
    assert time_ms([*[SMALL] * 20, LARGE], H100) > whole


def test_a_compiled_kernel_is_known_by_its_name():
    launch = TraceEvent("launch", "k", (2112, 1, 1), steps=(Step(blocks=2112, block_ns=10_000),))
    alone, tight = time_ms([launch], H100), time_ms([launch], H100, {"k": 1})
    assert tight == pytest.approx(16 * alone)
    assert time_ms([launch], H100, {"other": 1}) == alone


def test_turns_say_how_long_the_device_waited():
    turns = timeline([SMALL] * 44, H100)
    assert turns[-1].end == time_ms([SMALL] * 44, H100)
    assert turns[0].idle == 0.0
    assert turns[-1].idle == pytest.approx(10e-3 - event_ms(SMALL, H100))
    assert all(later.begin == pytest.approx(earlier.end + later.idle) for earlier, later in pairwise(turns))
