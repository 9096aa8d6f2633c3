# SPDX-License-Identifier: Apache-2.0
"""The simulated clock: a roofline per kernel, the same on every machine."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.clocks.simulated import SimulatedClock
from verl_kernel.env.devices.cpu.nominal import PROFILES, GpuProfile, event_ms, time_ms
from verl_kernel.env.tamper.trace_checks import own_work
from verl_kernel.env.trace import TraceEvent, dump_events, load_events

H100 = PROFILES["h100"]
counts = st.integers(0, 10**13)
events = st.builds(
    lambda moved, vector, tensor: TraceEvent("op", "x", (), moved, vector + tensor, tensor), counts, counts, counts
)


def test_memory_bound_kernel():
    assert event_ms(TraceEvent("op", "x", bytes=3_350_000_000), H100) == pytest.approx(0.004 + 1.0, rel=1e-12)


def test_compute_bound_kernels():
    profile = GpuProfile("toy", bandwidth_gbs=1.0, tflops=2.0, half_tflops=20.0, launch_overhead_us=0.0)
    assert event_ms(TraceEvent("op", "x", flops=2 * 10**9), profile) == pytest.approx(1.0)
    assert event_ms(TraceEvent("op", "x", flops=20 * 10**9, half_flops=20 * 10**9), profile) == pytest.approx(1.0)
    assert event_ms(TraceEvent("op", "x", flops=22 * 10**9, half_flops=20 * 10**9), profile) == pytest.approx(2.0)


def test_memory_and_arithmetic_overlap():
    profile = GpuProfile("toy", bandwidth_gbs=1.0, tflops=2.0, half_tflops=20.0, launch_overhead_us=0.0)
    assert event_ms(TraceEvent("op", "x", bytes=3 * 10**6, flops=4 * 10**9), profile) == pytest.approx(3.0)
    assert event_ms(TraceEvent("op", "x", bytes=3 * 10**6, flops=10 * 10**9), profile) == pytest.approx(5.0)


def session_of(traces, reference):
    work = lambda trace: own_work(trace, "kernel.py", traces[-1], (), False)  # noqa: E731
    return SimpleNamespace(comparable=(reference, traces), source="kernel.py", work=work)


def test_an_op_without_a_price_leaves_times_unknown():
    known, unknown = TraceEvent("op", "aten::add", bytes=8), TraceEvent("op", "aten::_fft_r2c", priced=False)
    ours = SimulatedClock("h100").measure(session_of([[known], [known, unknown]], [known]))
    assert ours.kernel_ms is None and ours.speedup is None and ours.reference_ms.n == 1
    assert ours.unpriced == ("aten::_fft_r2c",)
    theirs = SimulatedClock("h100").measure(session_of([[known]], [unknown]))
    assert theirs.reference_ms is None and theirs.speedup is None and theirs.kernel_ms.n == 1
    both = SimulatedClock("h100").measure(session_of([[known]], [known]))
    assert both.speedup == 1.0 and both.unpriced == ()


@pytest.mark.parametrize("sizes", [[7], [5, 2], [9, 1, 4], [3, 8, 1, 6], [2, 9, 4, 7, 5], [6, 1, 5, 2, 4, 3]])
def test_the_profile_is_that_of_the_median_trial_the_faster_one_of_two(sizes):
    traces = [[TraceEvent("op", f"size {size}", bytes=size * 10**9)] for size in sizes]
    session = session_of(traces, traces[0])
    measured = SimulatedClock("h100").measure(session)
    assert measured.profile.fallback_ops == {f"size {sorted(sizes)[(len(sizes) - 1) // 2]}": 1}
    assert measured.kernel_ms.n == len(sizes) and measured.reference_ms.median == time_ms(traces[0], H100)


@given(st.lists(events, max_size=20), st.randoms(use_true_random=False))
def test_order_does_not_change_the_last_digit(trace, shuffler):
    shuffled = list(trace)
    shuffler.shuffle(shuffled)
    assert time_ms(trace, H100) == time_ms(shuffled, H100)


@given(st.lists(events, min_size=1, max_size=20))
def test_more_work_never_takes_less_time(trace):
    whole = time_ms(trace, H100)
    assert whole >= time_ms(trace[1:], H100) + H100.launch_overhead_us / 1e3 * (1 - 1e-9)


def test_a_fused_chain_beats_eager_by_the_number_of_its_ops():
    x, y = torch.randn(2, 64, 1024)
    with torch.no_grad(), resolve_device("cpu").record() as eager:
        torch.relu(x + y) * 2.0
    fused = [TraceEvent("launch", "fused", (64, 1, 1), bytes=3 * 4 * x.numel(), flops=3 * x.numel())]
    for profile in PROFILES.values():
        assert 2.5 < time_ms(eager, profile) / time_ms(fused, profile) < 3.2


@given(st.lists(events, max_size=5))
def test_events_survive_json(trace):
    assert load_events(dump_events(trace)) == trace


GOOD = TraceEvent("launch", "k", (1, 2, 3), 4, 5, source="f").to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"name": 3},
        {"grid": [1, 2, 3, 4]},
        {"grid": [True]},
        {"grid": "12"},
        {"bytes": -1},
        {"bytes": 1.5},
        {"bytes": 2**63},
        {"flops": None},
        {"half_flops": 6},
        {"failed": 0},
        {"stored": 8},
        {"stored": 8, "computed": 9},
        {"stored": -1, "computed": -1},
        {"stored": True, "computed": True},
        {"stored": None, "computed": 0},
        {"priced": 1},
        {"source": None},
        {"extra": 1},
    ],
)
def test_forged_events_are_refused(change):
    with pytest.raises(ValueError):
        load_events([{**GOOD, **change}])


@pytest.mark.parametrize("value", [None, {}, [1], [[]], [{}], "launch"])
def test_what_is_no_trace_is_refused(value):
    with pytest.raises(ValueError):
        load_events(value)


def test_the_clock_repeats_itself():
    trace = [TraceEvent("op", "x", bytes=random.Random(1).randrange(10**9)) for _ in range(100)]
    assert len({time_ms(trace, H100) for _ in range(5)}) == 1
