# SPDX-License-Identifier: Apache-2.0
"""What the driver says about a GPU: identity, clocks and why they are held down. Unknown is None.

Asked through NVML where the package `nvidia-ml-py` is installed, else through `nvidia-smi`.
"""

from __future__ import annotations

import shutil
import subprocess
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
_QUERY = "driver_version,clocks.sm,clocks.mem,clocks_throttle_reasons.active,temperature.gpu,power.draw"
_SMI_TIMEOUT_S = 10.0


def gpu_state(uuid: str) -> dict[str, Any]:
    """Driver, clocks in MHz, reasons that hold them down, temperature and power of the GPU with this UUID."""
    return Nvml(uuid).ask(_state) or _by_smi(uuid) or dict.fromkeys(_fields(*[None] * 6))


def compute_processes(uuid: str) -> set[int] | None:
    """Process ids, as the driver numbers them, of all that computes on the GPU with this UUID; None is unknown."""
    by_nvml = Nvml(uuid).ask(_processes)
    return _processes_by_smi(uuid) if by_nvml is None else by_nvml


def reason_names(mask: int) -> list[str]:
    """Names of the bits of a mask of clock event reasons."""
    return [name for bit, name in REASONS.items() if mask & bit]


def _fields(
    driver: Any, sm_mhz: Any, memory_mhz: Any, reasons: Any, temperature_c: Any, power_w: Any
) -> dict[str, Any]:
    return {
        "driver": driver, "sm_mhz": sm_mhz, "memory_mhz": memory_mhz, "throttle_reasons": reasons,
        "temperature_c": temperature_c, "power_w": power_w,
    }  # fmt: skip


def _state(nvml: Any, handle: Any) -> dict[str, Any]:
    driver = nvml.nvmlSystemGetDriverVersion()
    return _fields(
        driver.decode() if isinstance(driver, bytes) else driver,
        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        reason_names(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    )


def _processes(nvml: Any, handle: Any) -> set[int]:
    return {int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}


def _by_smi(uuid: str) -> dict[str, Any] | None:
    try:
        return parse_smi(_smi(f"--query-gpu={_QUERY}", uuid))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _processes_by_smi(uuid: str) -> set[int] | None:
    try:
        return {int(line) for line in _smi("--query-compute-apps=pid", uuid).split("\n") if line.strip()}
    except (OSError, subprocess.SubprocessError, ValueError):  # "[Not Supported]"
        return None


def _smi(query: str, uuid: str) -> str:
    if (program := shutil.which("nvidia-smi")) is None:
        raise FileNotFoundError("nvidia-smi")
    command = [program, query, "--format=csv,noheader,nounits", "-i", uuid]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True).stdout


def parse_smi(line: str) -> dict[str, Any]:
    """Read one line of nvidia-smi's table.

    Raises:
        ValueError: it has another number of columns.
    """
    driver, sm, memory, mask, temperature, power = (text.strip() for text in line.strip().split(","))
    reasons = reason_names(int(mask, 16)) if mask.startswith("0x") else None
    return _fields(driver or None, _number(sm), _number(memory), reasons, _number(temperature), _number(power))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None
