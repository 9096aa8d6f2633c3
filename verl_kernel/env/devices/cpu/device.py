# SPDX-License-Identifier: Apache-2.0
"""The CPU device: Triton kernels are compiled for a GPU, and `verl_kernel.env.emulator` executes them in a process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from verl_kernel.env.devices import CPU_VARIABLES
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.devices.cpu import cuda_shim
from verl_kernel.env.devices.op_recorder import OpRecorder
from verl_kernel.env.devices.poison import ABLATED, PoisonedAllocations
from verl_kernel.env.gpus import gpu_named
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.options import GymOptions
from verl_kernel.env.seeding import seed_everything
from verl_kernel.env.tamper import tripwire
from verl_kernel.env.tamper.seals import SealedEvents
from verl_kernel.env.trace import TraceEvent


class CpuDevice(DeviceBackend):
    """The CPU backend."""

    name = "cpu"
    timing_source = "simulated"
    seals_traces = is_counted = True
    compiles_itself = False
    has_emulator = True

    def zygote_env(self) -> dict[str, str]:
        """Return the environment variables of a process that launches kernels."""
        return dict(CPU_VARIABLES)

    def setup(self) -> None:
        """Let `cuda` mean the CPU; in a process that launches kernels, also redirect launches to the emulator."""
        cuda_shim.install()
        if not _launches():
            return
        torch.set_num_threads(1)  # threads do not survive the fork of a runner
        from verl_kernel.env.devices.cpu import driver, launches, tuning

        driver.install(tuning.simulated_ms)
        tuning.install()
        launches.install()
        tripwire.install()

    def adopt(self, options: GymOptions) -> None:
        """Name the clock that simulates the GPU of the options."""
        self.timing_source = gpu_named(options.gpu_profile).timing_source

    def preload(self) -> None:
        """Prepare a zygote; it runs no kernels, because it has no executing process."""
        self.setup()
        from verl_kernel.env.devices.warmup import WarmUpProgram  # imports triton

        seed_everything(0)  # NumPy imports its generator when it is first used
        with torch.no_grad(), self.record(), self.suppress_launches():
            WarmUpProgram()(torch.randn(16))

    def confine(self, shared: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """Store the memory ranges that launches may touch."""
        from verl_kernel.env.devices.cpu.launch_state import STATE

        STATE.granted.confine(shared, tensors)

    @contextmanager
    def record(self) -> Iterator[list[TraceEvent]]:
        """Collect the events of the torch ops and launches in the context."""
        from verl_kernel.env.devices.cpu.launch_state import STATE

        STATE.begin_forward()
        events = SealedEvents()
        outer, STATE.events = STATE.events, events
        tripwire.WIRE.events = events
        recorder = OpRecorder(events)
        try:
            with recorder:
                yield events
        finally:
            STATE.events = tripwire.WIRE.events = outer
            STATE.spent_ns += recorder.spent_ns

    def connect(self, link: Channel, arena: SharedMemory) -> None:
        """Store the link to the executing process."""
        from verl_kernel.env.devices.cpu.execution_link import Link
        from verl_kernel.env.devices.cpu.launch_state import STATE

        STATE.link = Link(link, arena)

    @contextmanager
    def watch_allocations(self) -> Iterator[None]:
        """Poison and record memory allocated without values, for the executing process."""
        from verl_kernel.env.devices.cpu.unwritten_memory import ALLOCATIONS

        with PoisonedAllocations(), ALLOCATIONS.watched():
            yield

    def begin_description(self, ruled_out: Sequence[str]) -> None:
        """Start to record launches."""
        from verl_kernel.env.devices.cpu.launches import DESCRIPTIONS

        DESCRIPTIONS.is_on, DESCRIPTIONS.ruled_out = True, frozenset(ruled_out)

    def describe_launches(self) -> dict[str, Any]:
        """Return descriptions of the program's launches."""
        from verl_kernel.env.devices.cpu.launches import DESCRIPTIONS

        return DESCRIPTIONS.all().to_json()

    @property
    def spent_ns(self) -> int:
        """Processor time of the launches and ops recorded so far."""
        from verl_kernel.env.devices.cpu.launch_state import STATE

        return STATE.spent_ns

    @contextmanager
    def suppress_launches(self, kept: Sequence[Any] = (), only: Sequence[int] | None = None) -> Iterator[None]:
        """Suppress stores; memory allocated meanwhile holds poison."""
        from verl_kernel.env.devices.cpu.launch_state import STATE

        with STATE.keeping(kept, only), PoisonedAllocations(ABLATED):
            yield

    def is_crash(self, exc: BaseException) -> bool:
        """Return False: the executing process reports crashes to the judge."""
        return False

    def is_compile_error(self, exc: BaseException) -> bool:
        """Whether `exc` says that a launch could not be given to Triton's compiler."""
        from triton.errors import TritonError

        from verl_kernel.env.devices.cpu.kernel_source import NotTriton

        return isinstance(exc, TritonError | NotTriton)


def _launches() -> bool:
    return all(os.environ.get(name) == value for name, value in CPU_VARIABLES.items())
