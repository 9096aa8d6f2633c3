# SPDX-License-Identifier: Apache-2.0
"""What an evaluation knows of its candidate so far, and the result that is made from it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import CompiledKernel, EvalError, EvalResult, EvalStatus, MemoryFinding, Trials, TrueSize
from verl_kernel.env.tamper.hack_flags import HackFlag

STAGES = ("wait", "static", "load", "correctness", "ablation", "compile", "exit", "true_size", "clock")


class Stages:
    """Times the stages of one evaluation, not counting the seconds spent waiting for other judges."""

    def __init__(self, device: DeviceBackend) -> None:
        self._device = device
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.current = ""
        """The innermost stage that has begun and not ended."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside for the stage `name`, not for the stage around it."""
        outer, self.current, begun = self.current, name, self._now()
        try:
            yield
        finally:
            passed = self._now() - begun
            self._seconds[name] += passed
            if outer:  # stages are nested: the ablation runs within the correctness stage
                self._seconds[outer] -= passed
            self.current = outer

    def seconds(self) -> dict[str, float]:
        """Seconds by stage, in order; `wait` is the time spent waiting for other judges."""
        waited_s = self._device.waited_s
        measured = {**self._seconds, **({"wait": waited_s} if waited_s else {})}
        return {name: measured[name] for name in STAGES if name in measured}

    def _now(self) -> float:
        # Time in the queue for a device is no stage's: `wait` is reported by itself.
        return time.perf_counter() - self._device.waited_s


@dataclass
class Findings:
    """What the stages have found; fields are those of `EvalResult`, None while they are not known."""

    timing_source: str
    env: dict[str, Any]
    status: EvalStatus = EvalStatus.OK
    error: EvalError | None = None
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    ablated_where: str = ""
    """Part of a sentence: in which mode the latest ablation ran. Not a field of `EvalResult`."""
    hack_flags: tuple[HackFlag, ...] = ()
    memory_findings: tuple[MemoryFinding, ...] | None = None
    isolation: tuple[str, ...] | None = None
    seed_commit: str | None = None
    trials: Trials | None = None
    compiled_for: str | tuple[str, ...] | None = None
    compiled_kernels: tuple[CompiledKernel, ...] | None = None
    true_size: TrueSize | None = None
    reference_mode: str | None = None
    measured: Measurement = field(default_factory=lambda: Measurement(None, None, None))
    """By the clock; empty at first."""

    @property
    def has_ended(self) -> bool:
        """Whether a verdict has ended the evaluation."""
        return self.error is not None

    def settle(self, status: EvalStatus, error: EvalError, flags: tuple[HackFlag, ...]) -> None:
        """Note the verdict that ended the evaluation, and the fields that follow from it."""
        self.status, self.error = status, error
        if status in (EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR):
            self.compiled = False
        if status is not EvalStatus.REJECTED_STATIC:
            self.correctness = status is EvalStatus.DECOY  # a decoy's outputs are right
        self.hack_flags = flags or self.hack_flags

    def result(self, request: EvalRequest, task_flags: Sequence[str], seconds: Mapping[str, float]) -> EvalResult:
        """Make the result of all findings; `seconds` are those of the stages, in order."""
        measured, profile = self.measured, self.measured.profile
        return EvalResult(
            task_id=request.task.task_id,
            task_hash=request.task.text_hash,
            kernel=request.kernel,
            task_flags=tuple(dict.fromkeys(task_flags)),
            status=self.status,
            error=self.error,
            compiled=self.compiled,
            correctness=self.correctness,
            decoy_kernel=self.decoy_kernel,
            hack_flags=tuple(flag.value for flag in self.hack_flags),
            compiled_for=self.compiled_for,
            compiled_kernels=self.compiled_kernels,
            memory_findings=self.memory_findings,
            isolation=self.isolation,
            seed_commit=self.seed_commit,
            trials=self.trials,
            true_size=self.true_size,
            timing_source=self.timing_source,
            reference_mode=self.reference_mode,
            kernel_ms=measured.kernel_ms,
            reference_ms=measured.reference_ms,
            speedup=measured.speedup,
            kernel_interval_ms=None if measured.intervals is None else measured.intervals.kernel_ms,
            reference_interval_ms=None if measured.intervals is None else measured.intervals.reference_ms,
            speedup_interval=measured.speedup_interval,
            roofline_ms=measured.roofline_ms,
            speedup_low=measured.speedup_low,
            times=measured.times,
            unpriced_ops=measured.unpriced,
            time_coverage=None if profile is None else profile.time_coverage,
            number_coverage=None if profile is None else profile.number_coverage,
            num_custom_kernels=None if profile is None else profile.num_custom_kernels,
            num_total_kernels=None if profile is None else profile.num_total_kernels,
            launches=None if profile is None else profile.launches,
            fallback_ops=None if profile is None else profile.fallback_ops,
            top_kernels=None if profile is None else profile.top_kernels,
            profile=measured.forward,
            env=self.env,
            stage_seconds=dict(seconds),
        )
