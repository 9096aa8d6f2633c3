# SPDX-License-Identifier: Apache-2.0
"""The interface of a clock, which turns an evaluation whose outputs were right into times and a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from verl_kernel.env.clocks.profile import Profile
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.result import Comparison, CompiledKernel, ForwardProfile, Timing
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.trace import TraceEvent

if TYPE_CHECKING:  # the reference imports devices, which import clocks
    from verl_kernel.env.clocks.forward.launches import OwnLaunch
    from verl_kernel.env.ipc.messages import Claims, Offered, Time
    from verl_kernel.env.reference.reference import Reference
    from verl_kernel.env.reference.trial import Trial
    from verl_kernel.env.tamper.trace_checks import OwnWork

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Intervals:
    """Intervals that hold predicted values with a probability of 0.9 (`machine.uncertainty`)."""

    kernel_ms: tuple[float, float]
    reference_ms: tuple[float, float]
    speedup: tuple[float, float] | None
    """None where a program takes no time."""


@dataclass(frozen=True)
class CompiledReference:
    """What a reference runs if `torch.compile` compiles it."""

    events: Sequence[TraceEvent] = ()
    """Of one forward at the task's own size."""
    blocks_per_sm: Mapping[str, int] = field(default_factory=dict)
    """Number of blocks of its kernels that an SM holds at a time, where that is known."""
    refused: str = ""
    """Why there are no events; empty if there are."""


@dataclass(frozen=True)
class Measurement:
    """Times of a candidate and its reference by one clock, and a profile of the candidate."""

    kernel_ms: Timing | None
    reference_ms: Timing | None
    """None where an op of the program has no price."""
    profile: Profile | None
    """Profile of the candidate; None if the clock could not see device kernels (unknown is never 0)."""
    refusal: tuple[HackFlag, str] | None = None
    """Flag and reason if these times cannot be true: the verdict is then `hacking`."""
    unpriced: tuple[str, ...] = ()
    """Names of the ops that have no price."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Circumstances for `EvalResult.env`: clocks, throttling, calibration."""
    times: dict[str, Comparison] = field(default_factory=dict)
    """Comparisons by protocol; only from a clock that measures."""
    sure: float | None = None
    """Lower end of the speedup's confidence interval; only from a clock that measures."""
    intervals: Intervals | None = None
    """Of what was predicted; only from a clock that counts."""
    roofline_ms: float | None = None
    """Milliseconds of the reference's work at the GPU's peak rates; None if unknown."""
    forward: ForwardProfile | None = None
    """What bounds each launch, and which change would save most; only from a clock that counts."""
    reference_mode: str | None = None
    """The mode in which the reference was timed, `eager` or `compile`; None if it was not timed."""
    needed: float = 1.0
    """Part of the reference's time that its output needs (`needed_share`); leaving out the rest earns no speedup."""

    @property
    def speedup(self) -> float | None:
        """The needed part of the reference's median over the candidate's; None if the latter is 0 or one is unknown."""
        if self.kernel_ms is None or self.reference_ms is None or self.kernel_ms.median <= 0:
            return None
        return self.needed * self.reference_ms.median / self.kernel_ms.median

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The interval of a predicted speedup; None if it was measured or is unknown."""
        if self.speedup is None or self.intervals is None or self.intervals.speedup is None:
            return None
        low, high = self.intervals.speedup
        return self.needed * low, self.needed * high

    @property
    def speedup_low(self) -> float | None:
        """Lower bound of the speedup; the speedup itself on a clock that counts."""
        return self.speedup if not self.times else None if self.sure is None else self.needed * self.sure


class Session(Protocol):
    """The evaluation in progress, as far as a clock may use it: its reference, its secret and its runner."""

    reference: Reference
    secret: bytes
    demand: Demand | None
    """Least memory traffic and work of a forward of the reference; None where sizes change."""

    @property
    def source(self) -> str:
        """The candidate's file, as its kernels report it."""
        ...

    @property
    def comparable(self) -> tuple[Sequence[TraceEvent], Sequence[Sequence[TraceEvent]]]:
        """Events of the reference's forward, and of the candidate's forwards on inputs of that size."""
        ...

    @property
    def text(self) -> str:
        """The candidate's text."""
        ...

    @property
    def kernels(self) -> Mapping[str, CompiledKernel]:
        """Compiled kernels, by the variant of their launches; empty if nothing was compiled."""
        ...

    def own_launches(self, number: int) -> list[OwnLaunch]:
        """Return the candidate's launches in a forward of `comparable`, with the executing process's account of them.

        The list is empty where the device runs kernels itself. Raises what reading an untrusted account raises.
        """
        ...

    @property
    def compiled(self) -> CompiledReference | None:
        """What the reference runs if it is compiled; None if the options do not ask for that, or time is measured."""
        ...

    @property
    def blocks_per_sm(self) -> Mapping[str, int]:
        """Number of blocks that an SM holds at a time, by kernel; unknown for kernels that are missing."""
        ...

    def work(self, trace: Sequence[TraceEvent]) -> OwnWork:
        """Return the share of each event that is the candidate's compute."""
        ...

    def draw(self, number: int) -> Trial:
        """Draw fresh inputs from the secret and compute the reference's outputs, on the judge's device."""
        ...

    def offer(self, trial: Trial) -> Offered:
        """Put a trial's inputs into shared memory, poison the outputs, and return the places of both."""
        ...

    def ask(self, request: Time, timeout_s: float) -> Claims:
        """Send one request to the runner; a failure of the runner ends the evaluation."""
        ...

    def accept(self, trial: Trial, form: Claims, values: bool) -> None:
        """End the evaluation unless an output is right: its form and, if `values`, every element in shared memory."""
        ...

    def parse(self, read: Callable[[], Parsed]) -> Parsed:
        """Read a part of a reply; ends the evaluation if no genuine runner can have written it."""
        ...


class Clock(Protocol):
    """Measures one candidate after its correctness trials, while its runner is still alive."""

    source: str
    """Name of the clock, as in `EvalResult.timing_source`."""

    def measure(self, session: Session) -> Measurement:
        """Measure times and a profile.

        Raises:
            InfraError: the device could not be locked or does not answer.
        """
        ...
