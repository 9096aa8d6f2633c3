# SPDX-License-Identifier: Apache-2.0
"""What a judge gives to an evaluation, and the steps that differ between kinds of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from verl_kernel.env.clocks.base import Clock, CompiledReference, Measurement
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.compiling.stage import CompileStage
from verl_kernel.env.judge.execution_client import CandidateEmulator
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.native_trials import NativeTrials
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.result import TrueSize
from verl_kernel.env.trace import TraceEvent

Done = TypeVar("Done")


@dataclass(frozen=True, kw_only=True)
class EvaluationContext:
    """What a judge gives to one evaluation."""

    options: GymOptions
    namespace: str
    """Whose candidate it is."""
    device: DeviceBackend
    zygote: Zygote
    """Forks the runners."""
    emulator: CandidateEmulator | None
    """Runs kernels for the runners; None where the device runs them itself."""
    guard: Callable[[], AbstractContextManager[object]]
    """Is entered around every call of a reference."""
    draw_secret: Callable[[], bytes]
    """Draws the evaluation's secret, once the candidate is loaded."""
    clock: Clock
    compilers: Sequence[LaunchCompiler] = ()
    """Compile the launches while the trials run, each for one target."""


@dataclass(kw_only=True)
class LoadedCandidate:
    """A candidate in its runner, and what its evaluation has found."""

    session: CandidateSession
    loading: Loading
    findings: Findings
    stages: Stages
    compiling: CompileStage | None = None
    """Compiles the launches while the trials run; None where that is not asked for."""
    vouched: Sequence[TraceEvent] | None = None
    """A forward at an earlier size at which the ablation found that the kernels matter; None at the first size."""
    is_audited: bool = False
    """Whether this is the size after the first, drawn from the secret, that has an ablation whatever it launches."""
    native: NativeTrials | None = None
    """Trials whose kernels an executing process runs; None before they begin, and where the device runs kernels."""

    def begin_trials(self, checks: str, checked_in: int = -1) -> None:
        """Begin the trials; call it before the first one.

        Args:
            checks: `kernelgym.memory_checks`.
            checked_in: number of the trial whose memory is checked; -1 for none.
        """
        if self.loading.execution is not None:  # else the device runs kernels, and nothing watches their memory
            self.native = NativeTrials(self.loading, self.findings.env, checked_in, checks)

    def watched(self, number: int, kind: Kind, forward: Callable[[], Done]) -> Done:
        """Do the forward of a trial (raises Verdict, also for what an executing process reports of it)."""
        return forward() if self.native is None else self.native.watched(self.session, number, kind, forward)


class TrialStep(Protocol):
    """How the trials are done."""

    def take(self, candidate: LoadedCandidate) -> None:
        """Do all trials (raises Verdict)."""


class TimeStep(Protocol):
    """How time is measured."""

    @property
    def true_size(self) -> TrueSize | None:
        """What a result says of the true size if the evaluation ends early; None for a task judged at its own size."""

    def while_running(self, candidate: LoadedCandidate) -> Measurement:
        """Measure what needs the candidate's runner, which is still alive (raises Verdict)."""

    def after_exit(self, candidate: LoadedCandidate, measured: Measurement) -> Measurement:
        """Complete the measurement after the runner has ended (raises Verdict)."""


@dataclass(frozen=True)
class EvaluationSteps:
    """The steps that differ between kinds of evaluations, and between the sizes of a task."""

    reference: Reference
    trials: TrialStep
    times: TimeStep | None
    """None: the evaluation ends after its trials, without clock and exit."""
    compiled: CompiledReference | None = None
    """What the reference runs if it is compiled; None where that is not asked for, or is measured."""


class ClockTimes:
    """Times at the size of the trials, all measured while the runner is alive.

    Args:
        clock: the judge's.
    """

    true_size = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def while_running(self, candidate: LoadedCandidate) -> Measurement:
        """Measure times and profile (raises Verdict)."""
        return self._clock.measure(candidate.session)

    def after_exit(self, candidate: LoadedCandidate, measured: Measurement) -> Measurement:
        """Return the measurement unchanged."""
        return measured
