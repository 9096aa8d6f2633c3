# SPDX-License-Identifier: Apache-2.0
"""What the CUDA device does that needs no GPU; the rest is in tests/gpu."""

from contextlib import closing

import pytest
import torch

from tests.env.processes import printed
from verl_kernel.env import GymOptions, Judge, JudgeProcess, resolve_device
from verl_kernel.env.devices.cuda.driver import Throttle, gpu_state
from verl_kernel.env.devices.poison import poison_free_blocks
from verl_kernel.errors import EnvironmentNotReady

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
THROTTLED = {
    0: [],
    0x1 | 0x2 | 0x4 | 0x10: [],  # idle, chosen clocks, the power cap, sync boost
    0x20: ["sw_thermal_slowdown"],
    0x4 | 0x8 | 0x40: ["hw_slowdown", "hw_thermal_slowdown"],
    0x80: ["hw_power_brake_slowdown"],
}


@without_gpu
def test_cuda_without_a_gpu_is_one_sentence():
    for start in (lambda: resolve_device("cuda"), resolve_device("cuda", probe=False).setup):
        with pytest.raises(EnvironmentNotReady, match="needs a GPU.*use device cpu"):
            start()


@pytest.mark.slow
@without_gpu
def test_auto_means_a_gpu_where_judges_ask_for_one():
    options = GymOptions(device="auto", gpus_per_judge=0.5)
    with pytest.raises(EnvironmentNotReady, match="auto finds no GPU.*kernelgym.gpus_per_judge is 0.5"):
        Judge(options)
    refused = pytest.raises(EnvironmentNotReady, match="auto finds no GPU.*set kernelgym.gpus_per_judge to 0")
    with closing(JudgeProcess(options)) as process, refused:
        process.start()
    Judge(GymOptions(device="auto")).close()
    Judge(GymOptions(device="cpu", gpus_per_judge=0.5)).close()  # said in so many words


def test_an_interpreting_process_cannot_serve_cuda(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(EnvironmentNotReady, match="unset TRITON_INTERPRET"):
        resolve_device("cuda", probe=False).setup()


def test_runners_see_the_gpu_their_judge_sees(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
    monkeypatch.setenv("SECRET", "x")
    environment = resolve_device("cuda", probe=False).zygote_env()
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert environment["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert "SECRET" not in environment


def test_the_host_device_moves_nothing():
    device, tensor = resolve_device("cpu"), torch.ones(3)
    assert device.to_device(tensor) is tensor
    assert device.place(model := torch.nn.Linear(2, 2)) is model
    assert device.enter(1) is None
    assert device.poison([tensor]) is None
    assert device.facts() == {}
    assert not device.is_crash(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with device.shared(), device.inputs_here():
        assert not torch.rand(1).is_meta


def test_poisoning_free_blocks_leaves_the_tensors_alone():
    tensors = [torch.ones(5), torch.ones(2, 3)[:, :1]]
    poison_free_blocks(tensors)
    assert all((tensor == 1).all() for tensor in tensors)


def refuses(*asked):
    raise LookupError("Not Supported")


def test_the_state_of_a_gpu_without_one_sensor(nvml):
    nvml(
        NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, nvmlSystemGetDriverVersion=lambda: "570.86.15",
        nvmlDeviceGetClockInfo=lambda gpu, kind: (0, 1980, 2619)[kind], nvmlDeviceGetPowerUsage=refuses,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu: 0x2D, nvmlDeviceGetTemperature=lambda gpu, kind: 41,
    )  # fmt: skip
    assert gpu_state("GPU-1") == {
        "driver": "570.86.15", "sm_mhz": 1980, "memory_mhz": 2619, "temperature_c": 41, "power_w": None,
        "throttle_reasons": ["gpu_idle", "sw_power_cap", "hw_slowdown", "sw_thermal_slowdown"],
    }  # fmt: skip


@pytest.mark.parametrize("mask", THROTTLED)
def test_heat_and_power_brakes_count_and_a_power_cap_does_not(nvml, mask):
    nvml(nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu: mask)
    assert Throttle("GPU-1").reasons() == THROTTLED[mask]


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCurrentClocksThrottleReasons"])
def test_without_a_driver_or_a_permission_nobody_knows(nvml, function):
    nvml(**{function: refuses})
    assert Throttle("GPU-1").reasons() is None


def test_state_of_no_gpu_is_unknown():
    state = gpu_state("GPU-none")
    assert set(state) >= {"driver", "sm_mhz", "throttle_reasons"}
    assert set(state.values()) == {None}


@pytest.mark.slow
def test_the_zygotes_preload_makes_no_context():
    """With a stand-in for the driver's C module, which only exists where there is a driver."""
    seen = printed(
        "-c",
        "import torch, triton.backends.nvidia.driver as nvidia\n"
        "nvidia.CudaUtils = lambda: None\n"
        "from verl_kernel.env.backends import resolve_device\n"
        "from triton.runtime.driver import driver\n"
        "resolve_device('cuda', probe=False).preload()\n"
        "assert type(driver.active) is nvidia.CudaDriver and not torch.cuda.is_initialized()\n"
        "import os; print(len(os.listdir('/proc/self/task')))\n",
        **resolve_device("cuda", probe=False).zygote_env(),
    )
    assert seen.strip() == "1"
