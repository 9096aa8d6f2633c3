# SPDX-License-Identifier: Apache-2.0
"""The simulated clock: times from traces, the same on every machine."""

import json
import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.clocks.base import CompiledReference
from verl_kernel.env.clocks.simulated import SimulatedClock
from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.tamper.trace_checks import own_work
from verl_kernel.env.trace import Step, TraceEvent, dump_events, load_events

H100 = MachineModel.of("h100")
counts = st.integers(0, 10**13)
events = st.builds(
    lambda moved, vector, tensor: TraceEvent("op", "x", (), moved, vector + tensor, tensor), counts, counts, counts
)
KNOWN, UNKNOWN = TraceEvent("op", "aten::add", bytes=8), TraceEvent("op", "aten::_fft_r2c", priced=False)
FAST, SLOW = TraceEvent("op", "aten::add", bytes=10**9), TraceEvent("op", "aten::add", bytes=10**10)
STEP = Step(7, "scan", 3, 2, "tf32", blocks=5, l2_bytes=9, rereads=((5, 6),), returns=((7, 8),), serial=2)
EVENT = TraceEvent(
    "launch", "k", (1, 2, 3), 4, 5, source="f", steps=(STEP, Step()), recent=((8, 9),), touched=((0, 8, 0),)
)
GOOD = EVENT.to_json()


def session_of(traces, reference, blocks_per_sm=None, compiled=None):
    work = partial(own_work, file="kernel.py", latest=traces[-1], ineffective=(), moves_count=False)
    return SimpleNamespace(
        comparable=(reference, traces), source="kernel.py", work=work, blocks_per_sm=blocks_per_sm or {}, demand=None,
        text="", kernels={}, own_launches=lambda number: [], compiled=compiled,
    )  # fmt: skip


@pytest.mark.parametrize(("traces", "reference", "kernel_times", "reference_times", "speedup", "unpriced"), [
    ([[KNOWN], [KNOWN, UNKNOWN]], [KNOWN], None, 1, None, ("aten::_fft_r2c",)),
    ([[KNOWN]], [UNKNOWN], 1, None, None, ("aten::_fft_r2c",)),
    ([[KNOWN]], [KNOWN], 1, 1, 1.0, ()),
])  # fmt: skip
def test_an_op_without_a_price_leaves_times_open(traces, reference, kernel_times, reference_times, speedup, unpriced):
    found = SimulatedClock("h100").measure(session_of(traces, reference))
    assert getattr(found.kernel_ms, "n", None) == kernel_times
    assert getattr(found.reference_ms, "n", None) == reference_times
    assert (found.speedup, found.unpriced) == (speedup, unpriced)


@pytest.mark.parametrize("sizes", [[7], [5, 2], [9, 1, 4], [3, 8, 1, 6], [2, 9, 4, 7, 5], [6, 1, 5, 2, 4, 3]])
def test_the_profile_is_that_of_the_median_trial(sizes):
    traces = [[TraceEvent("op", f"size {size}", bytes=size * 10**9)] for size in sizes]
    measured = SimulatedClock("h100").measure(session_of(traces, traces[0]))
    assert measured.profile.fallback_ops == {f"size {sorted(sizes)[(len(sizes) - 1) // 2]}": 1}
    assert measured.kernel_ms.n == len(sizes)
    assert measured.reference_ms.median == time_ms(traces[0], H100)


@pytest.mark.parametrize(("mode", "eager", "compiled", "chosen"), [
    ("eager", SLOW, None, SLOW), ("compile", SLOW, FAST, FAST), ("compile", FAST, SLOW, SLOW),
    ("best", SLOW, FAST, FAST), ("best", FAST, SLOW, FAST), ("best", UNKNOWN, SLOW, SLOW),
    ("best", SLOW, UNKNOWN, SLOW),
])  # fmt: skip
def test_the_mode_of_the_reference(mode, eager, compiled, chosen):
    known = compiled and CompiledReference([compiled])
    measured = SimulatedClock("h100", reference_mode=mode).measure(session_of([[SLOW]], [eager], compiled=known))
    assert measured.reference_mode == ("compile" if chosen is compiled else "eager")
    assert measured.reference_ms.median == time_ms([chosen], H100)
    assert measured.facts == {}


@pytest.mark.parametrize(("compiled", "facts"), [
    (CompiledReference([FAST]), {}), (CompiledReference(refused="no reason"), {"reference_not_compiled": "no reason"}),
])  # fmt: skip
def test_of_equal_ways_and_without_another_it_is_timed_as_it_is(compiled, facts):
    measured = SimulatedClock("h100", reference_mode="best").measure(session_of([[SLOW]], [FAST], compiled=compiled))
    assert measured.reference_mode == "eager"
    assert measured.facts == facts


def test_a_compiled_reference_has_its_own_occupancy():
    step = Step(bytes=10**9, blocks=10**5, in_flight=1024)
    launch = TraceEvent("launch", "triton_fused", (10**5, 1, 1), bytes=10**9, steps=(step,))
    session = session_of([[FAST]], [SLOW], compiled=CompiledReference([launch], {"triton_fused": 2}))
    measured = SimulatedClock("h100", reference_mode="compile").measure(session)
    assert measured.reference_ms.median == time_ms([launch], H100, {"triton_fused": 2})
    assert measured.reference_ms.median > time_ms([launch], H100)


def test_a_compiled_reference_has_wider_intervals():
    known = {"eager": None, "compile": CompiledReference([SLOW])}
    sessions = {mode: session_of([[FAST]], [SLOW], compiled=compiled) for mode, compiled in known.items()}
    found = [SimulatedClock("h100", reference_mode=mode).measure(sessions[mode]).intervals for mode in known]
    eager, compiled = ([high / low for low, high in (one.reference_ms, one.speedup)] for one in found)
    assert all(wide > narrow for wide, narrow in zip(compiled, eager, strict=True))
    assert found[0].kernel_ms == found[1].kernel_ms


@pytest.mark.parametrize(("name", "slower"), [("k", True), ("unknown", False)])
def test_a_kernel_with_few_resident_blocks_takes_longer(name, slower):
    steps = (Step(10**9, blocks=132 * 64, warps=4, in_flight=512, block_ns=1000),)
    own, other = (TraceEvent("launch", name, (132 * 64, 1, 1), bytes=10**9, steps=steps) for name in ("k", "other"))
    sessions = (session_of([[own]], [other], known) for known in ({}, {name: 1}))
    free, full = map(SimulatedClock("h100").measure, sessions)
    assert (full.kernel_ms.median > 2 * free.kernel_ms.median) is slower
    assert full.kernel_ms.median >= free.kernel_ms.median
    assert full.reference_ms == free.reference_ms


def test_a_fused_chain_beats_eager_by_the_number_of_its_ops():
    x, y = torch.randn(2, 64, 1024)
    with torch.no_grad(), resolve_device("cpu").record() as eager:
        torch.relu(x + y) * 2.0
    fused = [TraceEvent("launch", "fused", (64, 1, 1), bytes=3 * 4 * x.numel(), flops=3 * x.numel())]
    for name in GPUS:
        machine = MachineModel.of(name)
        assert 2.5 < time_ms(eager, machine) / time_ms(fused, machine) < 3.5


@example([EVENT])
@given(st.lists(events, max_size=5))
def test_events_survive_json(trace):
    found = load_events(json.loads(json.dumps(dump_events(trace))))
    assert found == trace
    assert dump_events(found) == dump_events(trace)


FORGED_STEPS = {
    "bytes": [-1, 1.5], "flops": [2**63], "instructions": [True], "access": ["fast", None],
    "unit": ["quantum", ["half"]], "warps": [0], "blocks": ["1"], "kernels": [None],
    "rereads": [None, [5], [[5]], [[5, -6]]], "returns": [None, [[5]]], "serial": [-1, 1.5], "extra": [1],
}  # fmt: skip
FORGED_EVENTS = {
    "kind": ["other"], "name": [3], "grid": [[1, 2, 3, 4], [True], "12"], "bytes": [-1, 1.5, 2**63], "flops": [None],
    "half_flops": [6], "failed": [0], "stored": [8], "priced": [1], "source": [None], "host_us": [-1],
    "steps": [None, [1], [{}], {}], "recent": [None, [1], [[1]], [[1, -1]], [[True, 1]], [[1, 2, 3]]],
    "touched": [None, [[1, 2]], [[1, 2, -3]]], "extra": [1],
}  # fmt: skip
FORGED = [
    *({"steps": [{**GOOD["steps"][0], field: value}]} for field, values in FORGED_STEPS.items() for value in values),
    *({field: value} for field, values in FORGED_EVENTS.items() for value in values),
    # More stores that compute than stores.
    *({"stored": stored, "computed": computed} for stored, computed in ((8, 9), (-1, -1), (True, True), (None, 0))),
]


@pytest.mark.parametrize("trace", [*([{**GOOD, **forged}] for forged in FORGED), None, {}, [1], [[]], [{}], "launch"])
def test_what_is_forged_or_no_trace_is_refused(trace):
    with pytest.raises(ValueError):
        load_events(trace)


def test_a_step_without_a_field_is_refused():
    steps = [{key: value for key, value in GOOD["steps"][0].items() if key != "blocks"}]
    with pytest.raises(ValueError, match="a step must be an object with the keys"):
        load_events([{**GOOD, "steps": steps}])


def test_the_clock_repeats_itself():
    trace = [TraceEvent("op", "x", bytes=random.Random(1).randrange(10**9)) for _ in range(100)]
    assert len({time_ms(trace, H100) for _ in range(5)}) == 1
