# SPDX-License-Identifier: Apache-2.0
"""The interface of a device, the only one that the judge and the runner use.

Methods with a body are right for a device that uses the host's memory; a device with separate memory overrides them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.trace import TraceEvent

_CACHE_SHARE = 16


class DeviceBackend(Protocol):
    """A device: runs programs, counts their kernels and suppresses launches."""

    name: str
    """`cpu` or `cuda`."""
    timing_source: str
    """The source of times named in a result, known after `adopt`. Code reads the properties below instead."""
    seals_traces: bool = False
    """Whether speedups depend on the runner's count of what it ran; then the count is sealed and checked."""
    compiles_itself: bool = True
    """Whether launches are compiled in this process, so that a kernel that cannot be compiled fails here."""
    is_counted: bool = False
    """Whether times are computed from counts; otherwise they are measured, with noise, on the whole program."""
    has_emulator: bool = False
    """Whether kernels run in an executing process that the judge starts, and not in the runner itself."""
    exit_s: float = 5.0
    """Seconds that a runner may take to exit."""

    def zygote_env(self) -> dict[str, str]:
        """Return the environment variables that a process needs before it imports triton for this device."""
        ...

    def isolation(self) -> IsolationProfile:
        """Return what the runners that this process forks may do; called in the zygote."""
        return IsolationProfile()

    def setup(self) -> None:
        """Prepare the calling thread for running programs; repeated calls are free.

        A process whose environment holds `zygote_env()` is prepared for torch and Triton kernels; any other process
        only for torch, which suffices for a reference.

        Raises:
            EnvironmentNotReady: the process cannot run kernels for this device.
        """
        ...

    def adopt(self, options: GymOptions) -> None:
        """Take a judge's share of the device, after `setup` and before any other call.

        Raises:
            EnvironmentNotReady: the device cannot be shared as the options require.
        """
        return None

    def preload(self) -> None:
        """Prepare a zygote: run `setup`, and load the modules that a first forward would load."""
        from verl_kernel.env.devices.warmup import WarmUpProgram
        from verl_kernel.env.seeding import seed_everything

        self.setup()
        seed_everything(0)  # NumPy imports its generator when it is first used
        with torch.no_grad():
            program = WarmUpProgram()
            with self.record():
                program(torch.randn(16))
            with self.suppress_launches():
                program(torch.randn(16))

    def enter(self, memory_mb: int) -> None:
        """Prepare a runner: after its fork, inside its jail, before its candidate.

        Raises:
            EnvironmentNotReady: the device does not serve this process.
        """
        return None

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of these values on the device; `tensor` itself if it is there already."""
        return tensor

    def place(self, model: Any) -> Any:
        """Return the model with its parameters and buffers on the device."""
        return model

    def inputs_here(self) -> AbstractContextManager[Any]:
        """Return a context in which tensors are created on this device by default."""
        return nullcontext()

    def confine(self, shared: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """Restrict launches in the memory shared with the judge to the tensors that the program was given."""
        return None

    def synchronize(self) -> None:
        """Wait until all launches have ended; raises an error that one of them caused."""
        return None

    def poison(self, like: Sequence[torch.Tensor]) -> None:
        """Overwrite the free memory that allocations of these sizes would return, so that no stale result survives."""
        return None

    def begin(self) -> None:
        """Prepare for a new evaluation."""
        return None

    def shared(self) -> AbstractContextManager[Any]:
        """Block other judges' clocks, but not their other work, while this judge uses the device.

        In the context a clock may take the device exclusively. At its end, unused memory is free for other judges.
        """
        return nullcontext()

    @property
    def is_divided(self) -> bool:
        """Whether other judges may use its memory now, so that this one could have more alone."""
        return False

    def whole(self) -> AbstractContextManager[Any]:
        """Use a divided device alone, with all of its memory."""
        return nullcontext()

    def granted(self, needed_bytes: int, options: GymOptions) -> GymOptions:
        """Return the options with the memory that a runner gets, for a task that needs `needed_bytes`.

        Raises:
            torch.OutOfMemoryError: the device is divided, and the task should have it alone.
        """
        return options

    @property
    def waited_s(self) -> float:
        """Seconds for which this evaluation has waited for other judges."""
        return 0.0

    def seen(self) -> dict[str, Any]:
        """Return observations of other processes while the clock ran, for `EvalResult.env`."""
        return {}

    def misfit(self, needed_bytes: int, options: GymOptions) -> str | None:
        """Return why no runner can hold `needed_bytes` of a task's weights, inputs and outputs; None if one can."""
        return None

    def grant(self, memory_mb: int) -> None:
        """Check that the device has the memory granted to a runner.

        Raises:
            InfraError: other processes use the device's memory.
        """
        return None

    @property
    def cache_bytes(self) -> int:
        """Bytes that the references cached by a judge may take."""
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _CACHE_SHARE

    def facts(self) -> dict[str, Any]:
        """Return facts about the device for `EvalResult.env`."""
        return {}

    def record(self) -> AbstractContextManager[list[TraceEvent]]:
        """Collect the events of all ops and launches in the context, in order."""
        ...

    def suppress_launches(
        self, kept: Sequence[str] = (), only: Sequence[int] | None = None
    ) -> AbstractContextManager[None]:
        """Suppress the stores of Triton launches in the context.

        Args:
            kept: kinds of stores that still happen (`moves`, `constant`); if empty, launches are no-ops that are not
                recorded. A device that cannot tell stores apart suppresses all of them.
            only: numbers of the launches whose stores are suppressed, counted from 0 in a forward; all if None.
        """
        ...

    def begin_description(self, ruled_out: Sequence[str]) -> None:
        """Start to describe launches for a compiler; does nothing on a device that compiles them itself.

        Args:
            ruled_out: variants that an autotuner skips, as it would on a GPU that they do not fit.
        """
        return None

    def describe_launches(self) -> dict[str, Any]:
        """Describe each distinct kernel launched since `begin_description` (`compilation.description.Description`)."""
        return {"functions": [], "launches": [], "tuned": []}

    def connect(self, link: Channel, arena: SharedMemory) -> None:
        """Store the link to the process that executes kernels natively, and the memory shared with it."""
        return None

    def watch_allocations(self) -> AbstractContextManager[Any]:
        """Poison and record memory that is allocated without values in the context, for an executing process."""
        return nullcontext()

    @property
    def spent_ns(self) -> int:
        """Processor time of the launches and ops recorded so far; 0 where the device itself is timed."""
        return 0

    def is_crash(self, exc: BaseException) -> bool:
        """Whether `exc` reports an error that would kill a GPU process (a store outside the launch's tensors)."""
        ...

    def is_compile_error(self, exc: BaseException) -> bool:
        """Whether `exc` says that Triton rejected a kernel (as opposed to host code that failed)."""
        ...
