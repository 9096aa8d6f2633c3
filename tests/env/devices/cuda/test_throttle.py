# SPDX-License-Identifier: Apache-2.0
"""Which of a driver's reasons slow a GPU down, from a stand-in for NVML."""

import sys
from types import SimpleNamespace

import pytest

from verl_kernel.env.devices.cuda.driver import Throttle


class NVMLError(Exception):
    pass


def nvml(mask):
    def reasons(handle):
        if isinstance(mask, Exception):
            raise mask
        return mask

    return SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetCurrentClocksThrottleReasons=reasons,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0, []),
        (0x1 | 0x2 | 0x4 | 0x10, []),  # idle, chosen clocks, the power cap, sync boost
        (0x20, ["sw_thermal_slowdown"]),
        (0x4 | 0x8 | 0x40, ["hw_slowdown", "hw_thermal_slowdown"]),
        (0x80, ["hw_power_brake_slowdown"]),
        (NVMLError("no permission"), None),
    ],
)
def test_heat_and_power_brakes_count_and_a_power_cap_does_not(monkeypatch, mask, reasons):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(mask))
    assert Throttle("GPU-1").reasons() == reasons


def test_without_a_driver_nobody_knows(monkeypatch):
    def no_driver():
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError, nvmlInit=no_driver))
    assert Throttle("GPU-1").reasons() is None
