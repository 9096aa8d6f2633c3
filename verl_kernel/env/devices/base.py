# SPDX-License-Identifier: Apache-2.0
"""What a device must offer the gym. The judge and the runner talk to this interface only.

Methods with a body do what is right where programs run on the host's memory; a device with memory of its own
overrides them.
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
    """Where programs run, how their kernels are counted and how launches are suppressed."""

    name: str
    """`cpu` or `cuda`."""
    timing_source: str
    """`simulated` or `cuda_event`: what a result says of its times. Code asks the three properties below instead."""
    seals_traces: bool = False
    """Whether speedups rest on the runner's own count of what it ran: then the count is sealed, and checked."""
    compiles_itself: bool = True
    """Whether launches need a compiler for this machine, so that one that cannot be compiled fails here."""
    is_counted: bool = False
    """Whether times are computed from counts; else they are measured, with noise, on the whole program."""
    has_executor: bool = False
    """Whether kernels run in an executing process of the judge's, and not in the runner itself."""
    exit_s: float = 5.0
    """Seconds of its own time that a runner may take for its end."""

    def zygote_env(self) -> dict[str, str]:
        """Environment variables a process needs before it imports triton for this device."""
        ...

    def isolation(self) -> IsolationProfile:
        """What a runner may do that this process will fork; asked in the zygote."""
        return IsolationProfile()

    def setup(self) -> None:
        """Prepare the calling thread for running programs; repeated calls are free.

        A process whose environment holds `zygote_env()` is prepared for Triton kernels too; without it only
        torch is (enough for a reference).

        Raises:
            EnvironmentNotReady: the process cannot run kernels for this device.
        """
        ...

    def adopt(self, options: GymOptions) -> None:
        """Take up a judge's share of the device, after `setup` and before anything else is asked of it.

        Raises:
            EnvironmentNotReady: the device cannot be shared as the options want it.
        """
        return None

    def preload(self) -> None:
        """Prepare a zygote: `setup`, and load what a first forward would load."""
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
        """A tensor of these values on the device; `tensor` itself where it is there."""
        return tensor

    def place(self, model: Any) -> Any:
        """The model with its parameters and buffers on the device."""
        return model

    def inputs_here(self) -> AbstractContextManager[Any]:
        """Where this is entered, tensors without a device of their own are made on this one."""
        return nullcontext()

    def confine(self, shared: torch.Tensor, given: Sequence[torch.Tensor]) -> None:
        """Limit launches, in the memory shared with the judge, to the tensors that the program was given."""
        return None

    def synchronize(self) -> None:
        """Wait until everything launched has ended; raises what it raised."""
        return None

    def poison(self, like: Sequence[torch.Tensor]) -> None:
        """Overwrite free memory that allocations of these sizes would return, so that no stale result is found."""
        return None

    def begin(self) -> None:
        """Another evaluation begins."""
        return None

    def shared(self) -> AbstractContextManager[Any]:
        """Holds off other judges' clocks, not their other work, while this judge uses the device.

        Inside it a clock may have the device alone. On leaving it, memory that nothing uses is free for others.
        """
        return nullcontext()

    @property
    def waited_s(self) -> float:
        """Seconds that this evaluation has waited for other judges."""
        return 0.0

    def seen(self) -> dict[str, Any]:
        """What was seen of others while the clock ran, for `EvalResult.env`."""
        return {}

    def misfit(self, needed_bytes: int, options: GymOptions) -> str | None:
        """Why no runner could hold a task's weights, inputs and outputs, which take `needed_bytes`, or None."""
        return None

    def grant(self, memory_mb: int) -> None:
        """Check that the device has the memory that a runner is granted.

        Raises:
            InfraError: others use the device's memory.
        """
        return None

    @property
    def cache_bytes(self) -> int:
        """Bytes that the references which a judge keeps may take."""
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _CACHE_SHARE

    def facts(self) -> dict[str, Any]:
        """Provenance for `EvalResult.env`."""
        return {}

    def record(self) -> AbstractContextManager[list[TraceEvent]]:
        """Collect the events of everything that runs inside, in order."""
        ...

    def suppress_launches(
        self, kept: Sequence[str] = (), only: Sequence[int] | None = None
    ) -> AbstractContextManager[None]:
        """Leave out what the Triton launches inside store.

        Args:
            kept: kinds of stores that happen all the same (`moves`, `constant`); without any, the launches inside are
                no-ops that are not recorded. A device that does not see stores leaves them all out.
            only: numbers of the launches of the forward that are concerned, counted from 0; all if None.
        """
        ...

    def begin_description(self, ruled_out: Sequence[str]) -> None:
        """From now on describe launches, for a compiler; only a device that does not compile them itself can.

        Args:
            ruled_out: variants that an autotuner passes over, as it would on a GPU that they do not fit.
        """
        return None

    def describe_launches(self) -> dict[str, Any]:
        """Each launch since then that needs a compiled kernel of its own (`compilation.description.Description`)."""
        return {"functions": [], "launches": [], "tuned": []}

    def connect(self, link: Channel, arena: SharedMemory) -> None:
        """Take up the link to the process that executes kernels natively, and the memory shared with it."""
        return None

    def watch_allocations(self) -> AbstractContextManager[Any]:
        """Poison and note which memory is allocated without values inside, where an executing process looks for it."""
        return nullcontext()

    @property
    def spent_ns(self) -> int:
        """Processor time of the launches and ops recorded so far; 0 where the device itself is timed."""
        return 0

    def is_crash(self, exc: BaseException) -> bool:
        """Whether `exc` stands for what kills a process on a GPU (a store outside the launch's tensors)."""
        ...

    def is_compile_error(self, exc: BaseException) -> bool:
        """Whether `exc` says that Triton refused a kernel (as opposed to host code that failed)."""
        ...
