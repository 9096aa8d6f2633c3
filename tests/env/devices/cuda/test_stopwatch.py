# SPDX-License-Identifier: Apache-2.0
"""The protocols of the stopwatch on a GPU made of arithmetic: what each counts, and work that tries not to be seen."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from tests.env.pretend.simulated_gpu import Clock, SimulatedGpu
from verl_kernel.env.devices.cuda import stopwatch as gpu_timeline
from verl_kernel.env.devices.cuda.stopwatch import WARM_UPS, Stopwatch, TimedForward, warm
from verl_kernel.errors import InfraError

KERNEL_MS, HOST_MS = 0.05, 0.08


@pytest.fixture
def gpu():
    return SimulatedGpu(Clock())


@pytest.fixture
def watch(gpu):
    return Stopwatch(gpu)


def honest(gpu, kernels=2):
    """Some host work before each of some kernels."""

    def call():
        for _ in range(kernels):
            gpu.clock.now += HOST_MS
            gpu.launch(KERNEL_MS)
        return "output"

    return call


def test_device_time_hides_the_hosts_work_and_latency_counts_it(gpu, watch):
    assert watch.device(honest(gpu)) == ("output", pytest.approx(2 * KERNEL_MS))
    assert watch.latency(honest(gpu)) == ("output", pytest.approx(2 * HOST_MS + KERNEL_MS))


def test_host_work_beyond_the_flush_counts_in_both(gpu, watch):
    long = honest(gpu, kernels=20)
    assert watch.device(long)[1] == pytest.approx(20 * HOST_MS + KERNEL_MS - 0.2)
    assert gpu.stall_ms + gpu.flush_ms - gpu.hold_ms == pytest.approx(0.2)


@pytest.mark.parametrize("hold_ms", [0.01, 0.2, 0.5, 3.0])
def test_a_short_kernel_is_short_however_slow_the_host_is(gpu, hold_ms):
    gpu.hold_ms = hold_ms
    watch = Stopwatch(gpu)
    assert watch.device(honest(gpu, kernels=1))[1] == pytest.approx(KERNEL_MS)
    gpu.done, gpu.late = [], [1.5 * hold_ms + 0.5, 0.5 * hold_ms]
    assert watch.device(honest(gpu, kernels=1))[1] == pytest.approx(KERNEL_MS)
    assert gpu.done.count("stall") == 2
    gpu.late = [99.0] * 6
    with pytest.raises(InfraError, match="too busy to time a call"):
        watch.device(honest(gpu))


def test_calls_start_cold_except_in_the_published_protocol(gpu, watch):
    for protocol, flushes in (("device", 3), ("latency", 3), ("kernelgym", 0)):
        gpu.done.clear()
        watch.many(protocol, [TimedForward(honest(gpu))] * 3)
        assert gpu.done.count("flush") == gpu.done.count("unpin") == flushes
    assert WARM_UPS == {"device": 0, "latency": 0, "kernelgym": 3}


@pytest.mark.parametrize("protocol", WARM_UPS)
def test_work_on_another_stream_cannot_begin_before_the_start(gpu, watch, protocol):
    """It would run beside the flush, which takes as long as many a kernel."""

    def elsewhere():
        gpu.launch(0.25, stream="side")
        gpu.free["default"] = max(gpu.free["default"], gpu.free["side"])  # the default stream waits for it

    assert watch.many(protocol, [TimedForward(elsewhere)])[1] == pytest.approx(0.25)


@pytest.mark.parametrize("protocol", WARM_UPS)
def test_work_on_another_stream_after_the_stop_counts(gpu, watch, protocol):
    measured = watch.many(protocol, [TimedForward(lambda: gpu.launch(0.4, stream="side"))])[1]
    assert measured == pytest.approx(0.4, abs=0.001)


def test_allowed_lateness_shrinks_with_the_number_of_calls(gpu, watch):
    def sly():
        gpu.launch(0.01)
        gpu.launch(0.045, stream="side")

    assert watch.many("latency", [TimedForward(sly)])[1] == pytest.approx(0.01)
    assert watch.many("latency", [TimedForward(sly)] * 16)[1] == pytest.approx(0.045, abs=0.001)


def test_the_wait_itself_is_nobodys_time(gpu):
    gpu.wake_ms = 0.08  # more than what may come late
    assert Stopwatch(gpu).latency(lambda: gpu.launch(0.01))[1] == pytest.approx(0.01)


def test_a_call_that_does_the_work_of_all_gains_nothing(gpu, watch):
    left = [0.16, 0.0, 0.0, 0.0]
    _, mean = watch.many("device", [TimedForward(lambda: gpu.launch(left.pop(0))) for _ in range(4)])
    assert mean == pytest.approx(0.04)


def test_preparation_and_keeping_are_not_timed(gpu, watch):
    slow = TimedForward(lambda: gpu.launch(0.02), ready=lambda: gpu.launch(5), keep=lambda _: gpu.launch(5) or "kept")
    kept, mean = watch.many("device", [slow, slow])
    assert kept == ["kept", "kept"]
    assert mean == pytest.approx(0.02)


def test_the_state_is_read_while_the_device_is_busy(gpu, watch):
    assert watch.under_load(lambda: gpu.free["default"] - gpu.clock.now) > 1.0
    assert gpu.clock.now >= gpu.free["default"]


def test_all_streams_of_torchs_pools_are_held(monkeypatch):
    pools = {0: list(range(100, 132)), -1: list(range(200, 232)), -2: list(range(300, 332))}
    taken = {priority: 5 for priority in pools}  # somebody has taken some before

    def stream(priority=0):
        priority = max(priority, min(pools))
        taken[priority] += 1
        return SimpleNamespace(cuda_stream=pools[priority][taken[priority] % 32])

    monkeypatch.setattr(torch.cuda, "Stream", stream)
    found = gpu_timeline._pool_streams()
    assert sorted(one.cuda_stream for one in found) == sorted(itertools.chain.from_iterable(pools.values()))
    timeline, held = object.__new__(gpu_timeline.GpuTimeline), []
    timeline._pool, timeline._hold = found, lambda event, one: held.append((event, one.cuda_stream))
    timeline.hold("start")
    assert len(held) == 96
    assert {event for event, _ in held} == {"start"}


def test_warming_changes_no_value():
    tensors = [torch.arange(12.0).view(3, 4).t(), torch.tensor([True, False])]
    before = [tensor.clone() for tensor in tensors]
    warm(tensors)
    assert all(map(torch.equal, tensors, before))
