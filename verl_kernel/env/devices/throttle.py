# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU is being slowed down at the moment, cheap enough to ask after every round of a clock.

Slowed means: heat or a power brake holds the clocks down, for a while and by a lot (NVML: "by a factor of 2 or
more"). A power cap (`sw_power_cap`) is not meant: under heavy load it is the normal state of a data-centre GPU, takes
a few per cent, and would never end. nvbench draws the line likewise, at clocks below three quarters of the peak.
"""

from __future__ import annotations

import importlib
from typing import Any

from verl_kernel.env.devices.gpu_facts import reason_names

SLOWING = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})


class Throttle:
    """Asks NVML about the GPU with this UUID; without the package `nvidia-ml-py` everything is unknown."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # no package, no driver, no permission: all mean unknown
            return

    def reasons(self) -> list[str] | None:
        """Names of the reasons that slow it down now, none of them if empty; None where that is unknown."""
        if self._handle is None:
            return None
        try:
            mask = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except self._nvml.NVMLError:
            return None
        return sorted(SLOWING.intersection(reason_names(mask)))
