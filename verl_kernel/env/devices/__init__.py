# SPDX-License-Identifier: Apache-2.0
"""Devices: what differs between a GPU and Triton's interpreter."""

from __future__ import annotations

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError, EnvironmentNotReady

__all__ = ["INTERPRETER_VARIABLES", "DeviceBackend", "refuse_interpreting", "resolve_device"]

INTERPRETER_VARIABLES = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
"""What the environment must hold before a process that interprets kernels imports triton."""


def resolve_device(name: str, probe: bool = True) -> DeviceBackend:
    """The backend for `auto` (CUDA where there is a GPU), `cpu` or `cuda`.

    Args:
        name: which.
        probe: refuse `cuda` where there is none; a zygote must not ask, for the question may make a CUDA context.

    Raises:
        ConfigError: another name.
        EnvironmentNotReady: `cuda` was asked for and there is no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; it must be one of auto, cpu, cuda")
    if name == "cuda" and probe and not _has_gpu():
        raise EnvironmentNotReady(
            "device cuda needs a GPU and torch finds none here: use device cpu (Triton's interpreter)"
        )
    if name == "cuda" or (name == "auto" and _has_gpu()):
        from verl_kernel.env.devices.cuda import CudaDevice

        return CudaDevice()
    from verl_kernel.env.devices.interpreter import InterpreterDevice

    return InterpreterDevice()


def refuse_interpreting(options: GymOptions, device: DeviceBackend) -> None:
    """Where judges ask for GPUs, `auto` never means the interpreter.

    Raises:
        EnvironmentNotReady: it would.
    """
    if options.device == "auto" and options.gpus_per_judge > 0 and device.timing_source == "simulated":
        raise EnvironmentNotReady(
            f"device auto finds no GPU here though kernelgym.gpus_per_judge is {options.gpus_per_judge:g}, and would "
            "interpret kernels and simulate their times: give judges a GPU, or set kernelgym.gpus_per_judge to 0"
        )


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
