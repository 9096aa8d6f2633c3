# SPDX-License-Identifier: Apache-2.0
"""What a device must offer the gym. The judge and the runner talk to this interface only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from verl_kernel.env.trace import TraceEvent


class DeviceBackend(Protocol):
    """Where programs run, how their kernels are counted and how launches are suppressed."""

    name: str
    """`cpu` or `cuda`."""
    timing_source: str
    """`simulated` or `cuda_event`."""

    def zygote_env(self) -> dict[str, str]:
        """Environment variables a process needs before it imports triton for this device."""
        ...

    def setup(self) -> None:
        """Prepare the calling thread for running programs; repeated calls are free.

        A process whose environment holds `zygote_env()` is prepared for Triton kernels too; without it only
        torch is (enough for a reference).

        Raises:
            EnvironmentNotReady: the process cannot run kernels for this device.
        """
        ...

    def record(self) -> AbstractContextManager[list[TraceEvent]]:
        """Collect the events of everything that runs inside, in order."""
        ...

    def suppress_launches(self) -> AbstractContextManager[None]:
        """Turn the Triton launches inside into no-ops that are not recorded."""
        ...

    @property
    def spent_ns(self) -> int:
        """Processor time of the launches and ops recorded so far; 0 where the device itself is timed."""
        ...

    def is_crash(self, exc: BaseException) -> bool:
        """Whether `exc` stands for what kills a process on a GPU (a store outside the launch's tensors)."""
        ...

    def is_compile_error(self, exc: BaseException) -> bool:
        """Whether `exc` says that Triton refused a kernel (as opposed to host code that failed)."""
        ...
