# SPDX-License-Identifier: Apache-2.0
"""A Triton driver without a GPU, so that autotuning, `do_bench` and device queries work."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from verl_kernel.env.devices.cpu.cuda_shim import CAPABILITY, INTERFACE, PROPERTIES

_UTILS_PROPERTIES = {
    "multiprocessor_count": PROPERTIES["multi_processor_count"],
    "max_shared_mem": PROPERTIES["shared_memory_per_block_optin"],
    "max_num_regs": PROPERTIES["regs_per_multiprocessor"],
    "warpSize": PROPERTIES["warp_size"],
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


class NominalDriver(DriverBase):  # type: ignore[misc]  # triton is untyped
    """Answers Triton's queries about the device."""

    def __init__(self, benchmarker: Callable[..., Any]) -> None:
        self._benchmarker = benchmarker
        self.utils = SimpleNamespace(get_device_properties=lambda device=0: _UTILS_PROPERTIES)

    @classmethod
    def is_active(cls) -> bool:
        """Return False: this driver is set explicitly, never detected."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return Triton's name of the type: no launcher is built that needs a C++ one."""
        return ty

    def get_current_target(self) -> Any:
        """Return the nominal GPU."""
        return GPUTarget("cuda", 10 * CAPABILITY[0] + CAPABILITY[1], PROPERTIES["warp_size"])

    def get_active_torch_device(self) -> torch.device:
        """Return the device that programs see."""
        return torch.device("cuda", 0)

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return a benchmarker that uses the simulated clock."""
        return self._benchmarker

    def get_current_device(self) -> int:
        """Return the index of the only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is only one device."""

    def get_current_stream(self, device: int = 0) -> int:
        """Return the handle of the only stream."""
        return 0

    def get_device_interface(self) -> Any:
        """Return the object that has `Event` and `synchronize`."""
        return INTERFACE

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return an empty tensor: there is no cache to clear."""
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing: there is no cache to clear."""


def install(benchmarker: Callable[..., Any]) -> None:
    """Make this driver the active one.

    Args:
        benchmarker: returns the milliseconds of a call.
    """
    driver.set_active(NominalDriver(benchmarker))
