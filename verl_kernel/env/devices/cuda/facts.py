# SPDX-License-Identifier: Apache-2.0
"""What the driver says about a GPU: identity, clocks, what holds them down, and who computes. Unknown is None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verl_kernel.env.devices.cuda.nvml import Nvml

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's clock event reasons (called throttle reasons before driver 535)."""
_QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "driver": lambda nvml, gpu: nvml.nvmlSystemGetDriverVersion(),
    "sm_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "memory_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "throttle_reasons": lambda nvml, gpu: reason_names(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
}


def gpu_state(uuid: str) -> dict[str, Any]:
    """Driver, clocks in MHz, reasons that hold them down, temperature and power of the GPU with this UUID."""
    nvml = Nvml(uuid)
    return {name: nvml.ask(question) for name, question in _QUESTIONS.items()}


def compute_processes(uuid: str) -> set[int] | None:
    """Process ids, as the driver numbers them, of all that computes on the GPU with this UUID; None is unknown."""
    return Nvml(uuid).ask(_processes)


def reason_names(mask: int) -> list[str]:
    """Names of the bits of a mask of clock event reasons."""
    return [name for bit, name in REASONS.items() if mask & bit]


def _processes(nvml: Any, gpu: Any) -> set[int]:
    return {int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
