# SPDX-License-Identifier: Apache-2.0
"""What a profile says of launches, and which changes it prices, on forwards written by hand."""

from dataclasses import replace

import pytest

from tests.env.clocks.forward.launched import MEGABYTE, joined, launch, op, work
from verl_kernel.env.clocks.forward.bounds import Filling, bound_of
from verl_kernel.env.clocks.forward.changes import priced_changes
from verl_kernel.env.clocks.forward.figures import Setting, no_tensor_cores, tensor_traffic
from verl_kernel.env.clocks.forward.fusing import fusions
from verl_kernel.env.clocks.forward.launches import Flow
from verl_kernel.env.clocks.forward.profile import forward_profile
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import Turn, event_ms, time_ms, timeline
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.trace import Step, TraceEvent

H100 = Machine.of("h100")
X, H, OUT = (0, 64 * MEGABYTE, 0), 64 * MEGABYTE, (2, 0, 64 * MEGABYTE)
FIRST, SECOND = launch("first", [X, (1, 0, H)]), launch("second", [(1, H, 0), OUT])
SETTING = Setting(H100, None, "")


def fused(events, works):
    return [one for one in fusions(events, joined(events, works), Flow.of(events))]


def changes_of(events, works, setting=SETTING):
    launches = joined(events, works)
    kinds = list({launch.key: launch for launch in launches}.values())
    return priced_changes(events, launches, kinds, Flow.of(events), setting)


def test_a_tensor_that_is_handed_over_stays_on_the_chip():
    (found,) = fused([FIRST, SECOND], [work(FIRST), work(SECOND)])
    (event,) = found.events
    assert event.steps[0].bytes == 2 * H
    assert (found.launch.event.name, found.other) == ("first", "second")


def test_a_tensor_that_is_read_later_is_still_written():
    third = launch("third", [(1, H, 0), (3, 0, H)])
    found = fused([FIRST, SECOND, third], [work(FIRST), work(SECOND), work(third)])
    assert [one.other for one in found] == ["second", "third"]
    assert found[0].events[0].steps[0].bytes == 3 * H
    assert found[1].events[-1].steps[0].bytes == 2 * H


def test_what_both_read_is_read_once():
    second = launch("second", [(1, H, 0), X, OUT])
    (found,) = fused([FIRST, second], [work(FIRST), work(second)])
    assert found.events[0].steps[0].bytes == 2 * H


def test_an_op_of_torch_can_be_done_in_the_launch():
    (found,) = fused([op("aten::mul", [X, (1, 0, H)]), SECOND], [work(SECOND)])
    assert found.events[0].kind == "launch"
    assert found.launch.event.name == "second"


@pytest.mark.parametrize(
    ("events", "works"),
    [
        ([FIRST, SECOND], [work(FIRST), work(SECOND, again=4)]),  # every block needs all of it
        ([op("aten::sum", [X, (1, 0, H)], access="reduction"), SECOND], [work(SECOND)]),
        ([launch("a", [X, (1, 0, H)], flops=9), launch("b", [(1, H, 0), OUT], flops=9)], None),
        ([FIRST, launch("other", [(5, H, 0), OUT])], None),  # another tensor
    ],
)
def test_launches_that_hand_nothing_over_are_not_fused(events, works):
    works = works or [work(event) for event in events]
    assert fused(events, works) == []


def test_a_change_is_priced_by_the_clock_that_timed_the_forward():
    less = replace(FIRST.steps[0], bytes=H, l2_bytes=H)
    events, works = [FIRST, SECOND], [work(FIRST, again=2, once={"t0": [less.to_json()]}), work(SECOND, again=2)]
    changes = changes_of(events, works)
    found = next(change for change in changes if change.kind == "once")
    assert (found.kernel, found.subject) == ("first", "t0")
    assert found.ms == time_ms([replace(FIRST, steps=(less,)), SECOND], H100)


def test_launches_that_do_the_same_are_changed_together():
    less = replace(FIRST.steps[0], bytes=H, l2_bytes=H)
    events, works = [FIRST] * 3, [work(FIRST, again=2, once={"t0": [less.to_json()]})] * 3
    changes = changes_of(events, works)
    (found,) = (change for change in changes if change.kind == "once")
    assert found.ms == time_ms([replace(FIRST, steps=(less,))] * 3, H100)


def test_the_largest_saving_comes_first_without_small_ones():
    large, small = (replace(FIRST.steps[0], bytes=size, l2_bytes=size) for size in (H, 2 * H - 1000))
    told = work(FIRST, again=2, once={"t0": [small.to_json()], "t1": [large.to_json()]})
    changes = changes_of([FIRST], [told])
    assert [(change.kind, change.subject) for change in changes] == [("once", "t1")]


def test_a_grid_that_leaves_the_gpu_idle_is_filled():
    few = launch("few", [X, (1, 0, H)], blocks=8)
    changes = changes_of([few], [work(few, again=2)])
    assert changes[0].kind == "fill"
    assert changes[0].ms < 0.2 * time_ms([few], H100)


def test_too_little_work_is_not_divided():
    tiny = launch("tiny", [(0, 4096, 0), (1, 0, 4096)], blocks=8, in_flight=64)
    changes = changes_of([tiny], [work(tiny)])
    assert "fill" not in {change.kind for change in changes}


def test_what_limits_an_sms_blocks_has_a_price():
    slow = launch("slow", [X, (1, 0, H)], in_flight=512)
    setting = replace(SETTING, blocks_per_sm={"slow": 1})
    changes = changes_of([slow], [work(slow, again=2)], setting)
    found = next(change for change in changes if change.kind == "occupancy")
    assert found.ms == time_ms([slow], H100)


BOUNDS = {
    "device memory": Step(10**9, l2_bytes=10**9), "L2": Step(10**6, l2_bytes=10**10),
    "tensor cores": Step(10**6, flops=10**12, unit="half"), "arithmetic": Step(10**6, instructions=10**12),
    "latency": Step(10**6, blocks=1, block_ns=10**6), "launch": Step(1000),
}  # fmt: skip


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_launch_is_bound_by_what_takes_longest(bound):
    event = TraceEvent("launch", "k", (132, 1, 1), steps=(BOUNDS[bound],))
    assert bound_of(event, H100, None, Turn(0.0, 0.0, event_ms(event, H100))) == bound


def test_a_launch_that_is_issued_too_late_is_bound_by_the_host():
    events = [launch(f"k{number}", [(0, 4096, 0)]) for number in range(12)]
    turns = timeline(events, H100)
    assert bound_of(events[0], H100, None, turns[0]) == "launch"
    assert bound_of(events[-1], H100, None, turns[-1]) == "host"


def test_waves_and_occupancy_are_those_of_the_grid():
    event = TraceEvent("launch", "k", (264, 1, 1), steps=(Step(blocks=264, warps=4),))
    filling = Filling.of(event, H100, 4)
    assert (filling.sms, filling.waves) == (132, 0.5)
    assert (filling.theoretical_occupancy, filling.occupancy) == (0.25, 0.125)


def test_uneven_work_shows():
    event = TraceEvent("launch", "k", (264, 1, 1), steps=(Step(blocks=3, warps=4),))
    assert (Filling.of(event, H100, None).sms, Filling.of(event, H100, None).even_blocks) == (3, 3)


def test_roles_follow_from_who_writes_and_reads():
    flow = Flow.of([FIRST, SECOND])
    assert [flow.role(0, number) for number in (0, 1, 2)] == ["input", "intermediate", "input"]
    assert [flow.role(1, number) for number in (1, 2)] == ["intermediate", "output"]
    assert flow.role(0, None) == "input"


def test_the_least_is_what_lanes_asked_for():
    lines = [{"line": 3, "kind": "load", "area": 0, "asked": H // 8, "sectors": 9, "needed": 9}]
    (one,) = joined([FIRST], [work(FIRST, lines=lines)])
    traffic = {one.name: one for one in tensor_traffic(one, Flow.of([FIRST]))}
    assert (traffic["t0"].read, traffic["t0"].least) == (H, H // 8)


DOT = "def first(a, b):\n    tl.dot(a, b)"
PRODUCT = Demand(read=1, written=1, flops=10**9, half_flops=0)


@pytest.mark.parametrize(
    ("kind", "text", "machine", "reason"),
    [
        ("*fp64", DOT, H100, "float64"),
        ("*fp32", "def first(a, b):\n    tl.sum(a * b)\ndef other(a, b):\n    tl.dot(a, b)", H100, "no tl.dot"),
        ("*fp32", DOT, H100, '"tf32x3"'),
        ("*fp32", "def part(a):\n    return tl.dot(a, a)\ndef first(a, b):\n    part(a)", H100, '"tf32x3"'),
        ("*fp32", DOT, Machine.of("h100", "tf32"), '"tf32"'),
    ],
)
def test_why_products_run_without_tensor_cores(kind, text, machine, reason):
    told = work(FIRST, multiplied=[10**9, 0])
    told["tally"]["types"] = {"t0": kind, "t1": "*fp16"}
    (one,) = joined([FIRST], [told])
    assert reason in no_tensor_cores(one, Setting(machine, PRODUCT, text))
    assert no_tensor_cores(one, Setting(machine, replace(PRODUCT, flops=0), text)) is None
    assert no_tensor_cores(one, Setting(machine, None, text)) is None


def test_a_launch_that_does_not_multiply_needs_no_tensor_cores():
    (one,) = joined([FIRST], [work(FIRST, multiplied=[10**8, 0])])
    assert no_tensor_cores(one, Setting(H100, PRODUCT, "")) is None


def test_a_forward_without_launches_has_no_profile():
    assert forward_profile([op("aten::mul", [X])], [], SETTING) is None


def test_a_launch_that_nothing_explains_is_left_out():
    events = [FIRST, SECOND]
    assert len(joined(events, [work(FIRST), {**work(SECOND), "explained": None}])) == 1


def test_alike_launches_are_described_once():
    events = [FIRST, SECOND, SECOND]
    profile = forward_profile(events, joined(events, [work(event) for event in events]), SETTING)
    assert [(one.name, one.count) for one in profile.launches] == [("second", 2), ("first", 1)]
    assert profile.ms == time_ms(events, H100)
