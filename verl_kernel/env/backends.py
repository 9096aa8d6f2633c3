# SPDX-License-Identifier: Apache-2.0
"""The table of back ends: a device, the clock that times programs on it, and the runner's part of that clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from verl_kernel.env.clocks.base import Clock
from verl_kernel.env.clocks.cuda.timed_calls import Put, TimedCalls
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError, EnvironmentNotReady


@dataclass(frozen=True)
class Backend:
    """A device with its clock."""

    device: DeviceBackend
    clock: Callable[[GymOptions], Clock]
    """Makes the judge's clock, once the device has adopted the options."""
    timed_calls: Callable[[SharedMemory, Put], TimedCalls] | None = None
    """Makes the part of a runner that answers the clock's requests; None for a clock that sends none."""


def _cpu() -> Backend:
    from verl_kernel.env.clocks.simulated import SimulatedClock
    from verl_kernel.env.devices.cpu.device import CpuDevice

    return Backend(CpuDevice(), lambda options: SimulatedClock(options.gpu_profile, options.float32))


def _cuda() -> Backend:
    from verl_kernel.env.clocks.cuda.clock import cuda_clock
    from verl_kernel.env.devices.cuda.device import CudaDevice

    device = CudaDevice()
    return Backend(
        device,
        lambda options: cuda_clock(device, options),
        lambda memory, put: TimedCalls(device, memory, put, device.stopwatch),
    )


BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "cuda": _cuda}
"""By the name of their device, `kernelgym.device`."""


def resolve_backend(name: str, probe: bool = True) -> Backend:
    """The backend for `auto` (CUDA where there is a GPU), `cpu` or `cuda`.

    Args:
        name: which.
        probe: refuse `cuda` where there is none; a zygote must not ask, for the question may make a CUDA context.

    Raises:
        ConfigError: another name.
        EnvironmentNotReady: `cuda` was asked for and there is no GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif name == "cuda" and probe and not torch.cuda.is_available():
        raise EnvironmentNotReady("device cuda needs a GPU and torch finds none here: use device cpu (simulated times)")
    if name not in BACKENDS:
        raise ConfigError(f"device is {name!r}; it must be one of auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]()


def resolve_device(name: str, probe: bool = True) -> DeviceBackend:
    """The device of `resolve_backend`."""
    return resolve_backend(name, probe).device


def refuse_simulating(options: GymOptions, device: DeviceBackend) -> None:
    """Where judges ask for GPUs, `auto` never means a CPU.

    Raises:
        EnvironmentNotReady: it would.
    """
    if options.device == "auto" and options.gpus_per_judge > 0 and device.is_counted:
        raise EnvironmentNotReady(
            f"device auto finds no GPU here though kernelgym.gpus_per_judge is {options.gpus_per_judge:g}, and would "
            "run kernels on a CPU and simulate their times: give judges a GPU, or set kernelgym.gpus_per_judge to 0"
        )
