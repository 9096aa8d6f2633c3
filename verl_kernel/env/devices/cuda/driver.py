# SPDX-License-Identifier: Apache-2.0
"""Queries the driver about a GPU: facts, clocks, whether it is slowed down, which processes are on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

# NVML, the driver's library of facts about a GPU.


Answer = TypeVar("Answer")


class Nvml:
    """Answers queries about the GPU with this UUID; a query that NVML cannot answer gives None."""

    def __init__(self, uuid: str) -> None:
        import pynvml  # imported here, because the CPU device does not need it

        self._nvml, self._gpu = pynvml, None
        with suppress(pynvml.NVMLError):  # no driver, no permission, no such GPU
            pynvml.nvmlInit()
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def ask(self, question: Callable[[Any, Any], Answer]) -> Answer | None:
        """Return `question(pynvml, handle of the GPU)`, or None where that fails."""
        if self._gpu is None:
            return None
        try:
            return question(self._nvml, self._gpu)
        except (self._nvml.NVMLError, AttributeError):  # no permission, no such sensor, a missing function
            return None


# The driver's facts about a GPU: identity, clocks, reasons that lower them, and processes. Unknown facts are None.


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
    """Return driver, clocks in MHz, reasons that lower them, temperature and power of the GPU with this UUID."""
    nvml = Nvml(uuid)
    return {name: nvml.ask(question) for name, question in _QUESTIONS.items()}


def compute_processes(uuid: str) -> set[int] | None:
    """Return the driver's ids of the processes that compute on the GPU with this UUID; None if unknown."""
    return Nvml(uuid).ask(_processes)


def reason_names(mask: int) -> list[str]:
    """Return the names of the bits in a mask of clock event reasons."""
    return [name for bit, name in REASONS.items() if mask & bit]


def _processes(nvml: Any, gpu: Any) -> set[int]:
    return {int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}


# Whether a GPU is slowed down at the moment; the query is cheap enough to follow every round of a clock.
#
# Slowed down means that heat or a power brake lowers the clocks for a while and by much (NVML: "by a factor of 2 or
# more"). A power cap (`sw_power_cap`) does not count: under heavy load it is the normal state of a data-centre GPU,
# costs a few per cent, and would never end. nvbench uses a similar limit: clocks below three quarters of the peak.


SLOWING = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})


class Throttle:
    """Asks NVML whether the GPU with this UUID is slowed down."""

    def __init__(self, uuid: str) -> None:
        self._nvml = Nvml(uuid)

    def reasons(self) -> list[str] | None:
        """Return the names of the reasons that slow it down now; empty if not slowed down, None if unknown."""
        mask = self._nvml.ask(lambda nvml, handle: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
        return None if mask is None else sorted(SLOWING.intersection(reason_names(mask)))


_OURS = (b"verl_kernel.env.pool.judge_worker", b"verl_kernel.env.runner.zygote")
"""Modules as which judges and zygotes are started; a runner is a copy of its zygote."""


def count_foreign(pids: Collection[int] | None) -> int | None:
    """Count the processes that are neither a judge of this machine nor a descendant of one.

    Args:
        pids: the driver's ids of the processes on a GPU; None where it does not tell them.

    Returns:
        None if unknown. The driver's process ids may belong to another namespace than a container's: they are trusted
        only if this process, which uses the GPU, is among them.
    """
    if pids is None or os.getpid() not in pids:
        return None
    return sum(not _is_ours(pid) for pid in pids)


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[:2]
        except OSError:
            return not _is_alive(pid)
        if state in (b"Z", b"X") or not set(words).isdisjoint(_OURS):
            return True
        pid = int(parent)
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:  # it has ended since the query
        return False
    except PermissionError:
        return True
    return True
