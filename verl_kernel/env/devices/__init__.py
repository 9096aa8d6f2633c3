# SPDX-License-Identifier: Apache-2.0
"""Devices: what differs between a GPU and Triton's interpreter."""

from __future__ import annotations

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.errors import ConfigError, EnvironmentNotReady

__all__ = ["DeviceBackend", "resolve_device"]


def resolve_device(name: str) -> DeviceBackend:
    """The backend for `auto`, `cpu` or `cuda`.

    Raises:
        ConfigError: another name.
        EnvironmentNotReady: `cuda` was asked for and cannot be served.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device is {name!r}; it must be one of auto, cpu, cuda")
    if name == "cuda":
        raise EnvironmentNotReady(_cuda_refusal())
    from verl_kernel.env.devices.interpreter import InterpreterDevice

    return InterpreterDevice()


def _cuda_refusal() -> str:
    import torch

    if not torch.cuda.is_available():
        return "device cuda needs a GPU and torch finds none here: use device cpu (Triton's interpreter)"
    return "device cuda is not supported by this version: use device cpu (Triton's interpreter)"
