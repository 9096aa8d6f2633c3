# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on a CPU: the interpreter (TRITON_INTERPRET=1) with what it lacks added.

bfloat16 arithmetic is silently wrong in the interpreter: the judge refuses such tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from verl_kernel.env.devices import INTERPRETER_VARIABLES
from verl_kernel.env.devices.base import DeviceBackend, ProgramWatch
from verl_kernel.env.devices.cpu import cuda_shim
from verl_kernel.env.devices.op_recorder import OpRecorder
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.tamper import tripwire
from verl_kernel.env.tamper.seals import SealedEvents
from verl_kernel.env.trace import TraceEvent
from verl_kernel.errors import EnvironmentNotReady

_VARIABLE = "TRITON_INTERPRET"


class InterpreterDevice(DeviceBackend):
    """The CPU backend."""

    name = "cpu"
    timing_source = "simulated"

    computes_bfloat16 = False

    def zygote_env(self) -> dict[str, str]:
        """Triton decides while it is imported whether to interpret."""
        return dict(INTERPRETER_VARIABLES)

    def setup(self) -> None:
        """Let `cuda` mean the CPU; with TRITON_INTERPRET=1 also make kernels run and count.

        Raises:
            EnvironmentNotReady: triton was imported before TRITON_INTERPRET was set.
        """
        cuda_shim.install()
        if not _interprets():
            return
        torch.set_num_threads(1)  # threads do not survive the fork of a runner
        _install_triton()

    def confine(self, shared: torch.Tensor, given: Sequence[torch.Tensor]) -> None:
        """Remember where they lie."""
        from verl_kernel.env.devices.cpu.counting import STATE

        STATE.granted.confine(shared, given)

    @contextmanager
    def record(self) -> Iterator[list[TraceEvent]]:
        """Collect the events of the torch ops and launches inside."""
        events = SealedEvents()
        if not _interprets():
            with OpRecorder(events):
                yield events
            return
        from verl_kernel.env.devices.cpu.counting import STATE
        from verl_kernel.env.devices.cpu.stores import STORES

        STORES.begin_forward()
        outer, STATE.events = STATE.events, events
        tripwire.WIRE.events = events
        recorder = OpRecorder(events, lambda: STATE.marshalling, lambda: STATE.running)
        try:
            with recorder:
                yield events
        finally:
            STATE.events = tripwire.WIRE.events = outer
            STATE.spent_ns += recorder.spent_ns

    @contextmanager
    def watch_programs(self, watch: ProgramWatch) -> Iterator[None]:
        """Tell `watch` of each program of the launches inside."""
        from verl_kernel.env.devices.cpu.counting import STATE

        STATE.watch = watch
        try:
            yield
        finally:
            STATE.watch = None

    def connect(self, link: Channel, arena: SharedMemory) -> None:
        """Remember it."""
        from verl_kernel.env.devices.cpu.native_launches import NativeLaunches

        self._native = NativeLaunches(link, arena)

    @contextmanager
    def launch_natively(self, tunes: bool) -> Iterator[None]:
        """Let the executing process run launches, instead of the interpreter."""
        from verl_kernel.env.devices.cpu.counting import STATE

        STATE.native, STATE.native_tunes = self._native.launch, tunes
        try:
            yield
        finally:
            STATE.native = None

    def check_memory(self) -> AbstractContextManager[None]:
        """Check bounds, what was written, and races."""
        from verl_kernel.env.devices.cpu.memory.watch import checking

        return checking()

    def watch_allocations(self) -> AbstractContextManager[Any]:
        """Note what torch allocates and writes."""
        from verl_kernel.env.devices.cpu.memory.allocations import AllocationWatch

        return AllocationWatch()  # type: ignore[no-untyped-call]

    def take_memory_findings(self) -> list[dict[str, object]]:
        """What the checks have found."""
        if not _interprets():
            return []
        from verl_kernel.env.devices.cpu.memory.findings import FINDINGS

        return FINDINGS.take()

    def function_watch(self) -> Callable[[], bool]:
        """Refuses host functions inside launches."""
        from verl_kernel.env.devices.cpu.launches import enter_function

        return enter_function

    def begin_description(self, ruled_out: Sequence[str]) -> None:
        """Note launches from now on."""
        from verl_kernel.env.devices.cpu.launch_variants import VARIANTS

        VARIANTS.is_on, VARIANTS.ruled_out = True, frozenset(ruled_out)

    def describe_launches(self) -> dict[str, Any]:
        """Those noted since."""
        from verl_kernel.env.devices.cpu.launch_variants import VARIANTS

        return VARIANTS.description().to_json()

    @property
    def spent_ns(self) -> int:
        """Processor time of the launches and ops recorded so far."""
        from verl_kernel.env.devices.cpu.counting import STATE

        return STATE.spent_ns

    def is_crash(self, exc: BaseException) -> bool:
        """Whether a kernel stored outside the tensors of its launch."""
        from verl_kernel.env.devices.cpu.counting import OutOfBounds

        return isinstance(exc, OutOfBounds)

    @contextmanager
    def suppress_launches(self, kept: Sequence[str] = (), only: Sequence[int] | None = None) -> Iterator[None]:
        """Leave out stores; what is allocated meanwhile holds poison."""
        from verl_kernel.env.devices.cpu.counting import STATE
        from verl_kernel.env.devices.cpu.memory.allocations import ALLOCATIONS
        from verl_kernel.env.devices.cpu.stores import keeping
        from verl_kernel.env.devices.poison import ABLATED, PoisonedAllocations

        STATE.suppressed = not kept and only is None
        ALLOCATIONS.forget()  # what is left out now, an honest program may read in a later forward
        try:
            with keeping(kept, only), PoisonedAllocations(ABLATED):
                yield
        finally:
            STATE.suppressed = False

    def is_compile_error(self, exc: BaseException) -> bool:
        """Whether a kernel's own code raised, values aside: that is what a compiler would have refused."""
        from triton.errors import TritonError

        from verl_kernel.env.devices.cpu.launches import REFUSED

        return isinstance(exc, TritonError) or getattr(exc, REFUSED, False) is True


def _interprets() -> bool:
    return os.environ.get(_VARIABLE) == "1"


def _install_triton() -> None:
    import triton

    # Else the first launch imports it while the interpreter has put built-ins in the language's place, and Python 3.10
    # knows no signature of them.
    import triton.experimental.gluon
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    if not isinstance(tl.sum, InterpretedFunction):
        raise EnvironmentNotReady(f"triton was imported before {_VARIABLE}=1 was set: set it when the process starts")
    from verl_kernel.env.devices.cpu import driver, launches, tuning
    from verl_kernel.env.devices.cpu.language import libdevice

    triton.knobs.compilation.front_end_debugging = True  # raise a kernel's own error, with its line
    driver.install(tuning.simulated_ms)
    tuning.install()
    libdevice.install()
    launches.install()
    tripwire.install()
