# SPDX-License-Identifier: Apache-2.0
"""The table of backends: a device, the clock that times programs on it, and the runner's part of that clock."""

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
    """Makes the judge's clock; call it after the device has adopted the options."""
    timed_calls: Callable[[SharedMemory, Put], TimedCalls] | None = None
    """Makes the runner's part that answers the clock's requests; None if the clock sends no requests."""


def _cpu() -> Backend:
    from verl_kernel.env.clocks.simulated import SimulatedClock
    from verl_kernel.env.devices.cpu.device import CpuDevice

    return Backend(
        CpuDevice(), lambda options: SimulatedClock(options.gpu_profile, options.float32, options.reference_mode)
    )


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
"""Backends by the name of their device (`kernelgym.device`)."""


def resolve_backend(name: str, probe: bool = True) -> Backend:
    """Return the backend for `auto` (CUDA if there is a GPU, else CPU), `cpu` or `cuda`.

    Args:
        name: one of these words.
        probe: check that there is a GPU for `cuda`; a zygote must not, since the check may create a CUDA context.

    Raises:
        ConfigError: another name.
        EnvironmentNotReady: `name` is `cuda` and there is no GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif name == "cuda" and probe and not torch.cuda.is_available():
        raise EnvironmentNotReady("device cuda needs a GPU and torch finds none here: use device cpu (simulated times)")
    if name not in BACKENDS:
        raise ConfigError(f"device is {name!r}; it must be one of auto, {', '.join(BACKENDS)}")
    return BACKENDS[name]()


def resolve_device(name: str, probe: bool = True) -> DeviceBackend:
    """Return the device of `resolve_backend`, with the same errors."""
    return resolve_backend(name, probe).device


def refuse_simulating(options: GymOptions, device: DeviceBackend) -> None:
    """Refuse to simulate times on a CPU if judges ask for GPUs and `auto` has found none.

    Raises:
        EnvironmentNotReady: that is the case.
    """
    if options.device == "auto" and options.gpus_per_judge > 0 and device.is_counted:
        raise EnvironmentNotReady(
            f"device auto finds no GPU here though kernelgym.gpus_per_judge is {options.gpus_per_judge:g}, and would "
            "run kernels on a CPU and simulate their times: give judges a GPU, or set kernelgym.gpus_per_judge to 0"
        )
