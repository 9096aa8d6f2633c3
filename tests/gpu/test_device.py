# SPDX-License-Identifier: Apache-2.0
"""The parts of the CUDA device, one by one."""

import importlib.util

import pytest
import torch

from tests.env.processes import printed
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.clocks.cuda.clock import peak_gbs
from verl_kernel.env.clocks.cuda.timed_calls import device_kernels
from verl_kernel.env.devices.cuda.stopwatch import TimedForward

from .programs import HEADER


@pytest.fixture(scope="module")
def device():
    device = resolve_device("cuda")
    device.setup()
    return device


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The module of kernels, from a file as Triton wants it."""
    path = tmp_path_factory.mktemp("kernels") / "gpu_kernels.py"
    path.write_text(HEADER)
    spec = importlib.util.spec_from_file_location("gpu_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_zygote_has_no_context_and_its_child_can_make_one():
    printed(
        "-c",
        "import os, torch\n"
        "from verl_kernel.env.backends import resolve_device\n"
        "device = resolve_device('cuda', probe=False)\n"
        "device.preload()\n"
        "assert not torch.cuda.is_initialized()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    device.enter(4096)\n"
        "    assert torch.ones(4, device='cuda').sum().item() == 4\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n",
        **resolve_device("cuda").zygote_env(),
    )


def test_auto_is_cuda_here():
    assert resolve_device("auto").timing_source == "cuda_event"


def test_facts(device):
    facts = device.facts()
    assert facts["gpu_name"]
    assert facts["gpu_uuid"].startswith("GPU-")
    assert "." in facts["capability"]


def test_the_driver_knows_the_gpu_by_this_uuid(device):
    assert device.facts()["driver"] is not None


def test_the_peak_bandwidth_is_known(device):
    properties = torch.cuda.get_device_properties(0)
    clock, bits = (getattr(properties, key, 0) for key in ("memory_clock_rate", "memory_bus_width"))
    assert 100 < peak_gbs(properties.name, clock, bits) < 20000


def test_strides_survive_the_way_to_the_device(device):
    tensor = torch.arange(12.0).view(3, 4).t()
    there = device.to_device(tensor)
    assert there.is_cuda
    assert there.stride() == tensor.stride()
    assert torch.equal(there.cpu(), tensor)
    assert device.to_device(there) is there


def test_poisoned_blocks_come_back(device):
    like = torch.empty(3 << 20, device="cuda")
    device.poison([like])
    assert torch.empty(3 << 20, device="cuda").isnan().all()


def median(clock, call, count=31):
    return sorted(clock(call)[1] for _ in range(count))[count // 2]


@pytest.mark.parametrize("protocol", ["device", "latency"])
def test_the_stopwatch_orders_work(device, protocol):
    clock = getattr(device.stopwatch, protocol)
    x = torch.randn(8192, 4096, device="cuda")  # 256 MB moved, some 60 microseconds at least
    once, thrice = median(clock, lambda: x + 1), median(clock, lambda: [x + 1 for _ in range(3)])
    assert 2.0 < thrice / once < 4.0
    assert median(clock, lambda: None) < once


def test_device_time_hides_the_hosts_work_and_latency_does_not(device):
    watch = device.stopwatch
    x = torch.randn(1 << 12, device="cuda")

    def chain():
        y = x
        for _ in range(10):
            y = y + 1
        return y

    assert median(watch.device, chain) < 0.8 * median(watch.latency, chain)


@pytest.mark.parametrize("protocol", ["device", "latency"])
def test_the_stopwatch_sees_other_streams(device, protocol):
    clock, side = getattr(device.stopwatch, protocol), torch.cuda.Stream()
    x = torch.randn(4096, 4096, device="cuda")

    def elsewhere():
        with torch.cuda.stream(side):
            return [x @ x for _ in range(5)]

    clock(elsewhere)
    assert clock(elsewhere)[1] > 0.7 * clock(lambda: [x @ x for _ in range(5)])[1]


def test_a_chilled_cache_is_cold(device):
    watch = device.stopwatch
    x = torch.randn(watch.l2_bytes // 8, device="cuda")  # half of the cache

    def warm(call):
        call()
        (_,), milliseconds = watch.many("kernelgym", [TimedForward(call)])
        return None, milliseconds

    assert median(watch.latency, x.sum) > median(warm, x.sum)


def test_launches_and_ops_are_recorded(device, kernels):
    x = torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    with torch.no_grad(), device.record() as events:
        kernels.scaled[(1,)](x, out, 1000, 2.0, BLOCK=1024)
        torch.relu(out)
    assert [(event.kind, event.name) for event in events] == [("launch", "scaled"), ("op", "aten::relu")]
    assert events[0].grid == (1, 1, 1)
    assert events[0].source == kernels.__file__
    assert torch.allclose(out, 2 * x)


def test_a_suppressed_launch_leaves_poison(device, kernels):
    x = torch.randn(1000, device="cuda")
    with torch.no_grad(), device.suppress_launches():
        out = torch.empty_like(x)
        kernels.scaled[(1,)](x, out, 1000, 2.0, BLOCK=1024)
    assert out.isnan().all()


def test_the_profiler_sees_the_hooks_name_and_the_counts(device, kernels):
    x = torch.randn(1 << 20, device="cuda")
    out = torch.empty_like(x)
    kernels.scaled[(1024,)](x, out, x.numel(), 2.0, BLOCK=1024)
    with device_kernels():
        pass
    with device_kernels() as seen:
        for _ in range(3):
            kernels.scaled[(1024,)](x, out, x.numel(), 2.0, BLOCK=1024)
        out.copy_(x)
        torch.cuda.synchronize()
    assert seen["scaled"][0] == 3
    assert seen["scaled"][1] > 0
    assert sum(count for count, _ in seen.values()) == 4
    assert any("memcpy" in name.lower() for name in seen)
