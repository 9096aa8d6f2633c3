# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU is being slowed down at the moment, cheap enough to ask after every round of a clock.

Slowed means: heat or a power brake holds the clocks down, for a while and by a lot (NVML: "by a factor of 2 or
more"). A power cap (`sw_power_cap`) is not meant: under heavy load it is the normal state of a data-centre GPU, takes
a few per cent, and would never end. nvbench draws the line likewise, at clocks below three quarters of the peak.
"""

from __future__ import annotations

from verl_kernel.env.devices.cuda.facts import reason_names
from verl_kernel.env.devices.cuda.nvml import Nvml

SLOWING = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})


class Throttle:
    """Asks NVML about the GPU with this UUID."""

    def __init__(self, uuid: str) -> None:
        self._nvml = Nvml(uuid)

    def reasons(self) -> list[str] | None:
        """Names of the reasons that slow it down now, none of them if empty; None where that is unknown."""
        mask = self._nvml.ask(lambda nvml, handle: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
        return None if mask is None else sorted(SLOWING.intersection(reason_names(mask)))
