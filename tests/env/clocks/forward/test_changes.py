# SPDX-License-Identifier: Apache-2.0
"""What a profile says of launches, and which changes it prices, on forwards written by hand."""

from dataclasses import replace

import pytest

from verl_kernel.env.clocks.forward.bounds import Filling, bound_of
from verl_kernel.env.clocks.forward.changes import priced_changes
from verl_kernel.env.clocks.forward.figures import Setting, no_tensor_cores, tensor_traffic
from verl_kernel.env.clocks.forward.fusing import fusions
from verl_kernel.env.clocks.forward.launches import Flow, explanations, join
from verl_kernel.env.clocks.forward.profile import forward_profile
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import Turn, event_ms, time_ms, timeline
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.trace import Step, TraceEvent

MEGABYTE, FILE, H100 = 1 << 20, "candidate.py", MachineModel.of("h100")
BOUNDS = {
    "device memory": Step(10**9, l2_bytes=10**9), "L2": Step(10**6, l2_bytes=10**10),
    "tensor cores": Step(10**6, flops=10**12, unit="half"), "arithmetic": Step(10**6, instructions=10**12),
    "latency": Step(10**6, blocks=1, block_ns=10**6), "launch": Step(1000),
}  # fmt: skip
DOT = "def first(a, b):\n    tl.dot(a, b)"
PRODUCT = Demand(read=1, written=1, flops=10**9, half_flops=0)
ELSEWHERE = "def first(a, b):\n    tl.sum(a * b)\ndef other(a, b):\n    tl.dot(a, b)"
IN_A_PART = "def part(a):\n    return tl.dot(a, a)\ndef first(a, b):\n    part(a)"


def moved(touched):
    return sum(read + written for _, read, written in touched)


def launch(name, touched, **step):
    """A launch of 1056 blocks that touches (number, read, written) bytes of tensors."""
    size = moved(touched)
    known = Step(**{"bytes": size, "l2_bytes": size, "blocks": 1056, "in_flight": 1 << 14, "block_ns": 1000} | step)
    return TraceEvent(
        "launch", name, (1056, 1, 1), steps=(known,), source=FILE, host_us=20, touched=tuple(touched), variant=name
    )


def op(name, touched, **step):
    return TraceEvent("op", name, steps=(Step(**{"bytes": moved(touched), **step}),), touched=tuple(touched))


def work(event, again=1, **explained):
    """The account of a launch whose blocks request each byte so many times; tensor n is the argument `t<n>`."""
    areas = {
        f"t{number}": [max(read, written), read, again * read, written, again * written]
        for number, read, written in event.touched
    }
    told = {
        "names": {f"t{number}": place for place, (number, _, _) in enumerate(event.touched)}, "lines": [],
        "busy": {"issue": 4, "integer": 2, "special": 0, "shared": 0, "double": 0}, "multiplied": [0, 0],
        "coalesced": [], "unspilled": [], "once": {}, **explained,
    }  # fmt: skip
    operations = {"half": 0, "tf32": 0, "fma": 0, "narrow": 0, "wide": 0, "issue": 4, "integer": 2, "special": 0}
    return {
        "variant": event.variant, "explained": told,
        "reads": [(place, read, 0, read) for place, (_, read, _) in enumerate(event.touched) if read],
        "writes": [(place, written, 0, written) for place, (_, _, written) in enumerate(event.touched) if written],
        "tally": {"kernel": event.name, "grid": [*event.grid], "operations": operations, "areas": areas, "types": {}},
    }  # fmt: skip


def joined(events, works):
    return join(events, works, FILE, explanations([works]))


X, H, OUT = (0, 64 * MEGABYTE, 0), 64 * MEGABYTE, (2, 0, 64 * MEGABYTE)
FIRST, SECOND = launch("first", [X, (1, 0, H)]), launch("second", [(1, H, 0), OUT])
SETTING = Setting(H100, None, "")


def fused(events, works=None):
    launches = joined(events, works or [work(event) for event in events if event.kind == "launch"])
    return [one for one in fusions(events, launches, Flow.of(events))]


def changes_of(events, works, setting=SETTING):
    launches = joined(events, works)
    kinds = list({launch.key: launch for launch in launches}.values())
    return priced_changes(events, launches, kinds, Flow.of(events), setting)


THIRD, READS_BOTH = launch("third", [(1, H, 0), (3, 0, H)]), launch("second", [(1, H, 0), X, OUT])
BUSY = [launch("a", [X, (1, 0, H)], flops=9), launch("b", [(1, H, 0), OUT], flops=9)]


@pytest.mark.parametrize(("events", "wanted"), [
    ([FIRST, SECOND], [("first", "second", [2 * H])]),  # a tensor that is handed over stays on the chip
    ([FIRST, SECOND, THIRD], [("first", "second", [3 * H, 2 * H]), ("first", "third", [2 * H, 2 * H])]),  # read later
    ([FIRST, READS_BOTH], [("first", "second", [2 * H])]),  # what both read is read once
    ([op("aten::mul", [X, (1, 0, H)]), SECOND], [("second", "aten::mul", [2 * H])]),
    ([op("aten::sum", [X, (1, 0, H)], access="reduction"), SECOND], []),
    (BUSY, []),
    ([FIRST, launch("other", [(5, H, 0), OUT])], []),  # another tensor
])  # fmt: skip
def test_what_a_launch_could_do_for_another(events, wanted):
    found = fused(events)
    moved = [[event.steps[0].bytes for event in one.events] for one in found]
    assert [(one.launch.event.name, one.other) for one in found] == [(name, other) for name, other, _ in wanted]
    assert moved == [sizes for *_, sizes in wanted]
    assert all(event.kind == "launch" for one in found for event in one.events)
    assert fused([FIRST, SECOND], [work(FIRST), work(SECOND, again=4)]) == []  # every block needs all of it


def less(size):
    return replace(FIRST.steps[0], bytes=size, l2_bytes=size)


def change(kind, *arguments):
    (found,) = (one for one in changes_of(*arguments) if one.kind == kind)
    return found


@pytest.mark.parametrize("events", [[FIRST, SECOND], [FIRST] * 3], ids=["one", "alike ones together"])
def test_a_change_is_priced_by_the_clock_that_timed_the_forward(events):
    known = {FIRST: work(FIRST, again=2, once={"t0": [less(H).to_json()]}), SECOND: work(SECOND, again=2)}
    found = change("once", events, [known[event] for event in events])
    assert (found.kernel, found.subject) == ("first", "t0")
    changed = [replace(event, steps=(less(H),)) if event is FIRST else event for event in events]
    assert found.ms == time_ms(changed, H100)


def test_the_largest_saving_comes_first_without_small_ones():
    told = work(FIRST, again=2, once={"t0": [less(2 * H - 1000).to_json()], "t1": [less(H).to_json()]})
    assert [(one.kind, one.subject) for one in changes_of([FIRST], [told])] == [("once", "t1")]


def test_a_grid_that_leaves_the_gpu_idle_is_filled():
    few = launch("few", [X, (1, 0, H)], blocks=8)
    first, *_ = changes_of([few], [work(few, again=2)])
    assert first.kind == "fill"
    assert first.ms < 0.2 * time_ms([few], H100)
    tiny = launch("tiny", [(0, 4096, 0), (1, 0, 4096)], blocks=8, in_flight=64)  # too little to divide
    assert "fill" not in {one.kind for one in changes_of([tiny], [work(tiny)])}


def test_what_limits_an_sms_blocks_has_a_price():
    slow = launch("slow", [X, (1, 0, H)], in_flight=512)
    found = change("occupancy", [slow], [work(slow, again=2)], replace(SETTING, blocks_per_sm={"slow": 1}))
    assert found.ms == time_ms([slow], H100)


@pytest.mark.parametrize("bound, step", BOUNDS.items(), ids=BOUNDS)
def test_a_launch_is_bound_by_what_takes_longest(bound, step):
    event = TraceEvent("launch", "k", (132, 1, 1), steps=(step,))
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
    uneven = Filling.of(replace(event, steps=(Step(blocks=3, warps=4),)), H100, None)
    assert (uneven.sms, uneven.even_blocks) == (3, 3)


def test_roles_follow_from_who_writes_and_reads():
    roles = {(0, 0): "input", (0, 1): "intermediate", (0, 2): "input", (1, 1): "intermediate", (1, 2): "output"}
    assert {place: Flow.of([FIRST, SECOND]).role(*place) for place in roles} == roles
    assert Flow.of([FIRST, SECOND]).role(0, None) == "input"


def test_the_least_is_what_lanes_asked_for():
    lines = [{"line": 3, "kind": "load", "area": 0, "asked": H // 8, "sectors": 9, "needed": 9}]
    (one,) = joined([FIRST], [work(FIRST, lines=lines)])
    traffic = {one.name: one for one in tensor_traffic(one, Flow.of([FIRST]))}
    assert (traffic["t0"].read, traffic["t0"].least) == (H, H // 8)


@pytest.mark.parametrize(("kind", "text", "machine", "reason"), [
    ("*fp64", DOT, H100, "float64"),
    ("*fp32", ELSEWHERE, H100, "no tl.dot"),
    ("*fp32", DOT, H100, '"tf32x3"'),
    ("*fp32", IN_A_PART, H100, '"tf32x3"'),
    ("*fp32", DOT, MachineModel.of("h100", "tf32"), '"tf32"'),
])  # fmt: skip
def test_why_products_run_without_tensor_cores(kind, text, machine, reason):
    told = work(FIRST, multiplied=[10**9, 0])
    told["tally"]["types"] = {"t0": kind, "t1": "*fp16"}
    (one,) = joined([FIRST], [told])
    assert reason in no_tensor_cores(one, Setting(machine, PRODUCT, text))
    assert no_tensor_cores(one, Setting(machine, replace(PRODUCT, flops=0), text)) is None
    assert no_tensor_cores(one, Setting(machine, None, text)) is None
    (little,) = joined([FIRST], [work(FIRST, multiplied=[10**8, 0])])
    assert no_tensor_cores(little, Setting(machine, PRODUCT, text)) is None


def test_what_is_no_launch_or_has_no_account_is_left_out():
    assert forward_profile([op("aten::mul", [X])], [], SETTING) is None
    assert len(joined([FIRST, SECOND], [work(FIRST), {**work(SECOND), "explained": None}])) == 1


def test_alike_launches_are_described_once():
    events = [FIRST, SECOND, SECOND]
    profile = forward_profile(events, joined(events, [work(event) for event in events]), SETTING)
    assert [(one.name, one.count) for one in profile.launches] == [("second", 2), ("first", 1)]
    assert profile.ms == time_ms(events, H100)
