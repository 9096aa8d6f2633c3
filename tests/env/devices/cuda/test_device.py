# SPDX-License-Identifier: Apache-2.0
"""What the CUDA device does that needs no GPU; the rest is in tests/gpu."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cuda.driver import gpu_state, reason_names
from verl_kernel.env.devices.poison import PoisonedAllocations, poison_free_blocks
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.judge_process import JudgeProcess
from verl_kernel.errors import EnvironmentNotReady

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@without_gpu
def test_cuda_without_a_gpu_is_one_sentence():
    with pytest.raises(EnvironmentNotReady, match="needs a GPU.*use device cpu"):
        resolve_device("cuda")
    with pytest.raises(EnvironmentNotReady, match="needs a GPU.*use device cpu"):
        resolve_device("cuda", probe=False).setup()


@pytest.mark.slow
@without_gpu
def test_auto_means_a_gpu_where_judges_ask_for_one():
    options = GymOptions(device="auto", gpus_per_judge=0.5)
    with pytest.raises(EnvironmentNotReady, match="auto finds no GPU.*kernelgym.gpus_per_judge is 0.5"):
        Judge(options)
    process = JudgeProcess(options)
    try:
        with pytest.raises(EnvironmentNotReady, match="auto finds no GPU.*set kernelgym.gpus_per_judge to 0"):
            process.start()
    finally:
        process.close()
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
    assert "SECRET" not in environment
    assert environment["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"


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


def test_a_poisoned_allocation_holds_no_number():
    with PoisonedAllocations():
        fresh = [torch.empty(3), torch.empty_like(torch.ones(2)), torch.ones(2).new_empty(4), torch.empty((2, 0))]
        whole = torch.zeros(3) + 1
        strided = torch.empty_strided((2, 2), (4, 1))
    assert all(tensor.isnan().all() for tensor in (*fresh, strided))
    assert whole.tolist() == [1.0] * 3
    assert torch.empty(3, dtype=torch.int32).fill_(0).tolist() == [0] * 3


def test_poisoning_free_blocks_leaves_the_tensors_alone():
    tensors = [torch.ones(5), torch.ones(2, 3)[:, :1]]
    poison_free_blocks(tensors)
    assert all((tensor == 1).all() for tensor in tensors)


def test_the_state_of_a_gpu_without_one_sensor(monkeypatch):
    class NVMLError(Exception):
        pass

    def no_sensor(gpu):
        raise NVMLError("Not Supported")

    package = SimpleNamespace(
        NVMLError=NVMLError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlSystemGetDriverVersion=lambda: "570.86.15", nvmlDeviceGetClockInfo=lambda gpu, kind: (0, 1980, 2619)[kind],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu: 0x24, nvmlDeviceGetTemperature=lambda gpu, kind: 41,
        nvmlDeviceGetPowerUsage=no_sensor,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", package)
    assert gpu_state("GPU-1") == {
        "driver": "570.86.15", "sm_mhz": 1980, "memory_mhz": 2619,
        "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"], "temperature_c": 41, "power_w": None,
    }  # fmt: skip


def test_reasons_by_name():
    assert reason_names(0) == []
    assert reason_names(0x1 | 0x8) == ["gpu_idle", "hw_slowdown"]


def test_state_of_no_gpu_is_unknown():
    state = gpu_state("GPU-none")
    assert set(state) >= {"driver", "sm_mhz", "throttle_reasons"}
    assert all(value is None for value in state.values())


@pytest.mark.slow
def test_the_zygotes_preload_makes_no_context():
    """With a stand-in for the driver's C module, which only exists where there is a driver."""
    code = (
        "import torch, triton.backends.nvidia.driver as nvidia\n"
        "nvidia.CudaUtils = lambda: None\n"
        "from verl_kernel.env.backends import resolve_device\n"
        "from triton.runtime.driver import driver\n"
        "resolve_device('cuda', probe=False).preload()\n"
        "assert type(driver.active) is nvidia.CudaDriver and not torch.cuda.is_initialized()\n"
        "import os; print(len(os.listdir('/proc/self/task')))\n"
    )
    device = resolve_device("cuda", probe=False)
    environment = {**os.environ, **device.zygote_env(), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "1"
