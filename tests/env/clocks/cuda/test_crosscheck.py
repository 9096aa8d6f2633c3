# SPDX-License-Identifier: Apache-2.0
"""The judge's clock against the runner's, and the floor under a time: honest calls keep theirs, others are flagged."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.cuda.clock import floor_ms, measured_roofline_ms, peak_gbs
from verl_kernel.env.clocks.cuda.rounds import JITTER_MS, NullCall, TimedCall, hidden_ms, mismatch
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.ops.reads import bytes_read

NULL = NullCall(typical=0.3, high=0.4)
times = st.floats(0.0, 1e4)
x = torch.randn(256, 64)
w = torch.randn(64, 32)
KB = 1024
H100, MOVED = "NVIDIA H100 80GB HBM3", Demand(10**9, 2 * 10**9, 0, 0)


def honest(inner, count=11):
    return [TimedCall(inner, inner + 0.3) for _ in range(count)]


@given(times, st.sampled_from([[], [TimedCall(1.0, 80.0)] * 4]))
def test_honest_events_stand(inner, hiccups):
    calls = [*honest(inner), *hiccups]
    assert mismatch(calls, NULL) is None
    assert hidden_ms(calls, NULL) == 0.0


@given(st.floats(4.0, 1e4), st.floats(0.0, 1.0))
def test_work_outside_the_events_is_charged_and_flagged(real, share):
    claims = [TimedCall(share * real, real + 0.3) for _ in range(11)]
    hidden = (1 - share) * real - 0.1
    assert hidden_ms(claims, NULL) == pytest.approx(max(0.0, hidden), abs=1e-9)
    assert (mismatch(claims, NULL) is not None) == (hidden > JITTER_MS and share * real < hidden)


@given(times, st.lists(st.tuples(times, st.booleans()), min_size=11, max_size=11))
def test_no_claim_gains_more_than_the_spread_of_null_calls(real, claims):
    calls = [TimedCall(min(claim, real) if lies else real, real + NULL.typical) for claim, lies in claims]
    charged = statistics.median(call.inner for call in calls) + hidden_ms(calls, NULL)
    assert charged >= real - (NULL.high - NULL.typical) - 1e-6


def test_events_longer_than_the_call_are_flagged():
    assert "claim" in mismatch([TimedCall(5.0, 3.0)] * 11, NULL)


def test_null_calls_are_as_high_as_their_median_and_a_ceiling():
    rare = [0.2] * 30 + [9.0] * 3  # hiccups say nothing of the others
    assert NullCall.of(rare, ceiling=10.0) == NullCall(0.2, 0.2)
    assert NullCall.of([0.2, 0.3] * 10, ceiling=10.0).high == 0.3
    assert NullCall(0.2, 0.3).and_also(0.5) == NullCall(0.7, 0.8)
    assert NullCall.of([50.0] * 7, ceiling=1.5) == NullCall(1.5, 1.5)
    assert NullCall.of([0.2, 0.3, 0.25], ceiling=1.5) == NullCall(0.25, 0.3)


@pytest.mark.parametrize("inner", [float("nan"), float("inf"), -1.0, "1", True, None])
def test_what_is_no_time_is_refused(inner):
    with pytest.raises(ValueError):
        TimedCall(inner, 1.0)


@pytest.mark.parametrize(("run", "expected"), [
    (lambda: torch.relu(x), 64 * KB),
    (lambda: torch.relu(x) + torch.sigmoid(x), 64 * KB),
    (lambda: x @ w, 72 * KB),
    (lambda: torch.relu(x[:16]), 4 * KB),
    (lambda: torch.relu(x[:, :1].expand(256, 64)), 1 * KB),
    (lambda: x[torch.tensor([1, 2])], 0),
    (lambda: torch.nn.functional.embedding(torch.tensor([3]), x), 0),
    (lambda: torch.empty_like(x).copy_(x), 64 * KB),
    (lambda: torch.zeros_like(x), 0),
    (lambda: x.view(-1)[None].transpose(0, 1), 0),
    (lambda: torch.add(x, x.view(-1).view(256, 64)), 64 * KB),
])  # fmt: skip
def test_bytes_read(run, expected):
    with torch.no_grad():
        assert bytes_read(run, [x, w, x.view(64, 256)]) == expected


@pytest.mark.parametrize(("read", "written", "peak", "l2_bytes", "ms"), [
    (4 * 10**9, 10**9, 1000.0, 0, 2.0), (4 * 10**9, 10**9, 1000.0, 10**9, 1.0), (0, 1000, 1000.0, 10**6, 0.0),
    (10**9, 10**9, None, 0, 0.0),
])  # fmt: skip
def test_floor(read, written, peak, l2_bytes, ms):
    assert floor_ms(read, written, peak, l2_bytes=l2_bytes) == pytest.approx(ms)


@pytest.mark.parametrize(("demand", "name", "tf32", "l2_bytes", "expected"), [
    (MOVED, "NVIDIA A1000", False, 0, 3.0),
    (MOVED, "NVIDIA A1000", False, 10**9, 2.0),  # less what a cache holds
    (MOVED, "NVIDIA A1000", False, 10**10, 1.0),
    (Demand(10**9, 2 * 10**9, 10**15, 10**15), "NVIDIA A1000", False, 0, 3.0),
    (Demand(8, 8, 0, 10**13), H100, False, 0, 1e16 / 989.4e12),
    (Demand(8, 8, 0, 10**13), "NVIDIA H200", False, 0, 1e16 / 989.4e12),
    (Demand(8, 8, 0, 10**13), "NVIDIA A100-SXM4-80GB", False, 0, 1e16 / 312e12),
    (Demand(8, 8, 10**13, 0), H100, False, 0, 3e16 / 989.4e12),
    (Demand(8, 8, 10**13, 0), H100, True, 0, 1e16 / 494.7e12),
])  # fmt: skip
def test_the_roofline_of_scores(demand, name, tf32, l2_bytes, expected):
    assert measured_roofline_ms(demand, name, 1000.0, l2_bytes, tf32) == pytest.approx(expected)


def test_without_a_demand_or_a_peak_there_is_no_roofline():
    assert measured_roofline_ms(Demand(0, 0, 0, 0), H100, 1000.0, 0, True) is None
    assert measured_roofline_ms(MOVED, H100, None, 0, False) is None


@pytest.mark.parametrize(("name", "driver", "peak"), [
    ("NVIDIA H100 80GB HBM3", {}, 3350.0), ("NVIDIA H100 PCIe", {}, 2039.0), ("NVIDIA H200", {}, 4800.0),
    ("NVIDIA A100-SXM4-80GB", {}, 2039.0), ("NVIDIA A100-SXM4-40GB", {}, 1555.0), ("NVIDIA L40S", {}, 864.0),
    ("Tesla V100-SXM2-16GB", {}, 900.0), ("NVIDIA GeForce RTX 4090", {}, 1008.0), ("NVIDIA A1000", {}, None),
    ("NVIDIA A1000", {"memory_clock_khz": 6_000_000, "bus_bits": 128}, 192.0),  # the driver may know better
    ("NVIDIA H100 80GB HBM3", {"memory_clock_khz": 2_619_000, "bus_bits": 5120}, 3352.32),
])  # fmt: skip
def test_peaks(name, driver, peak):
    assert peak_gbs(name, **driver) == (peak and pytest.approx(peak))
