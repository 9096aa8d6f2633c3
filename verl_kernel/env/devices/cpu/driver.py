# SPDX-License-Identifier: Apache-2.0
"""A Triton driver without a GPU, so that autotuning, `do_bench` and device queries work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from verl_kernel.env.devices.cpu.cuda_shim import CAPABILITY, INTERFACE, PROPERTIES
from verl_kernel.env.triton_driver import TritonDriver

_UTILS_PROPERTIES = {
    "multiprocessor_count": PROPERTIES["multi_processor_count"],
    "max_shared_mem": PROPERTIES["shared_memory_per_block_optin"],
    "max_num_regs": PROPERTIES["regs_per_multiprocessor"],
    "warpSize": PROPERTIES["warp_size"],
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


class NominalDriver(TritonDriver, DriverBase):  # type: ignore[misc]  # triton is untyped
    """Answers Triton's queries about the device."""

    def __init__(self, benchmarker: Callable[..., Any]) -> None:
        target = GPUTarget("cuda", 10 * CAPABILITY[0] + CAPABILITY[1], PROPERTIES["warp_size"])
        super().__init__(target, _UTILS_PROPERTIES)
        self._benchmarker = benchmarker

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return Triton's name of the type: no launcher is built that needs a C++ one."""
        return ty

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return a benchmarker that uses the simulated clock."""
        return self._benchmarker

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
