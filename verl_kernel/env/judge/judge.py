# SPDX-License-Identifier: Apache-2.0
"""The trusted side of an evaluation: it holds references and secrets, compares outputs and gives verdicts.

A judge owns one zygote and judges one candidate at a time. References run in the judge's process. If references may
hang, give the judge a process of its own (`verl_kernel.env.pool`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from random import Random
from types import TracebackType

import torch

from verl_kernel.env.backends import refuse_simulating, resolve_backend
from verl_kernel.env.clocks.base import CompiledReference
from verl_kernel.env.clocks.simulated import unpriced, with_noise
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.judge.compiled_references import make_compiled_references
from verl_kernel.env.judge.compiling.code import CodeStore
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.evaluation import CandidateEvaluation
from verl_kernel.env.judge.execution_client import LaunchEmulator
from verl_kernel.env.judge.judge_processes import JudgeProcesses
from verl_kernel.env.judge.processes.own_time import OwnTime
from verl_kernel.env.judge.processes.server_process import ForkedZygote
from verl_kernel.env.judge.sizes.reduced_times import ReducedTimes
from verl_kernel.env.judge.sizes.size_choice import SizeChoice
from verl_kernel.env.judge.steps import ClockTimes, EvaluationContext, EvaluationSteps
from verl_kernel.env.judge.trials.correctness import CorrectnessTrials
from verl_kernel.env.judge.trials.plan import TrialChoice
from verl_kernel.env.judge.trials.survey import Outcome, survey
from verl_kernel.env.judge.verdict_store import VerdictStore
from verl_kernel.env.lru import LRUCache
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.defects.findings import Audit
from verl_kernel.env.reference.defects.search import find_defects
from verl_kernel.env.reference.disk_cache import ReferenceCache
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.env.size_verdicts import at_sizes, joined
from verl_kernel.env.task import Task, slow_reference
from verl_kernel.env.true_size.shrinking import Shrunk
from verl_kernel.errors import ConfigError, InfraError, TaskError

_REFERENCES = 64
"""Most references that a judge holds at a time, as far as their weights fit into the device's cache."""
COMPILED_SHARES = {"off": 0.0, "sample": 0.25, "all": 1.0}
"""Share of training's candidates whose launches are compiled, by `kernelgym.compile`."""
_COPIES = 2
"""Copies that are kept of a reference's weights: one in the model, one to reset the model."""


class Judge:
    """Judges candidates against references.

    Args:
        options: how to judge.
        seed: makes verdicts reproducible, except wall-clock fields; without it every evaluation draws a fresh secret.
        guard: context manager entered around every call of a reference, for a caller that can end a hung process.
        forked: the first zygote of runners, if the caller has forked one.
        processes: another judge's, of the same device, which ends them; without them the judge starts its own.

    Raises:
        EnvironmentNotReady: the device or a required mechanism of isolation is missing, or the device is too small.
        ConfigError: `references` is `jailed`, which takes a pool; `processes` do not compile for a target of the
            options; `reference_cache` or `verdict_cache` cannot be written; `verdict_cache` or `timing_noise` is set
            where times are measured; or `trial_choice` cannot be read.
    """

    def __init__(
        self,
        options: GymOptions,
        seed: int | None = None,
        guard: Callable[[], AbstractContextManager[object]] = nullcontext,
        forked: ForkedZygote | None = None,
        processes: JudgeProcesses | None = None,
    ) -> None:
        if options.references == "jailed":
            raise ConfigError(
                "kernelgym.references is 'jailed', but references run in this process: judge by a pool "
                "(`LocalPool`), or set it to trusted"
            )
        self._options, self._seed, self._guard = options, seed, guard
        backend = resolve_backend(options.device)
        self._device = backend.device
        refuse_simulating(options, self._device)
        self._refuse_noise()
        self._verdicts = self._make_verdict_store()
        self._device.setup()
        self._device.adopt(options)
        self._clock = backend.clock(options)
        self._choice = TrialChoice.read(options.trial_choice)
        self.processes = processes or JudgeProcesses(self._device, options.targets, forked)
        self._owns_processes = processes is None
        self._compilers = _make_compilers(options, self._device, self.processes)
        self._emulator = _make_emulator(options, self._device, self.processes)
        self._sizes = SizeChoice(options, self._device, seed, guard, self.processes.runners.prepare)
        self._references: LRUCache[Reference | TaskError] = LRUCache(_REFERENCES, self._device.cache_bytes)
        folder = options.reference_cache
        self._store = None if folder is None else ReferenceCache(folder, self._device.name)
        self._compiled = make_compiled_references(
            options,
            self._device,
            self.processes.runners,
            self._emulator,
            compilers=self._compilers,
            store=self._store,
            guard=guard,
        )

    @property
    def model(self) -> str:
        """Name of the GPU that times refer to: the real one, or the one that the clock simulates."""
        return str(self._device.facts().get("gpu_name") or f"{self._options.gpu_profile}, {self._device.timing_source}")

    def evaluate(self, task: Task, source: str, kernel: str = "") -> EvalResult:
        """Judge one candidate, as `judge` does, for a caller without training steps or a queue."""
        return self.judge(EvalRequest(task, source, kernel))

    def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate, at each size of its task.

        Raises:
            TaskError: the reference cannot serve.
            InfraError: the evaluator failed; the candidate was not judged.
            EnvironmentNotReady: a mechanism of `require_isolation` is not in force.
        """
        requests = at_sizes(request)
        results = [*map(self._with_noise, requests, self.each_size(requests))]
        return joined(request.task, results) if request.task.workloads else results[0]

    def _with_noise(self, request: EvalRequest, result: EvalResult) -> EvalResult:
        if not self._options.timing_noise or request.validate:  # noise is for the times of a training
            return result
        return with_noise(result, self._options.timing_noise, Random(b"timing noise" + self._secret(request)()))

    def each_size(self, requests: Sequence[EvalRequest]) -> list[EvalResult]:
        """Return the results at the sizes of a task; a refusal before any trial is the only one."""
        if self._verdicts is None:
            return self._run(requests)
        is_compiled = bool(self._compilers) and self._compiles(requests[0])
        stored = [result for one in requests if (result := self._verdicts.load(one, is_compiled)) is not None]
        if len(stored) == len(requests):
            return stored
        results = self._run(requests)
        for one, result in zip(requests, results, strict=False):
            self._verdicts.save(one, is_compiled, result)
        return results

    def _run(self, requests: Sequence[EvalRequest]) -> list[EvalResult]:
        with self._served(requests[0]):
            try:
                return self._run_served(requests)
            except torch.OutOfMemoryError:
                if not self._device.is_divided:
                    raise
            with self._device.whole():
                return self._run_served(requests)

    def _run_served(self, requests: Sequence[EvalRequest]) -> list[EvalResult]:
        # A task at reduced sizes needs runners of its own, which do nothing before their first forward.
        is_apart = any(self._sizes.of(one.task) for one in requests)
        parts = [[one] for one in requests] if is_apart else [requests]
        return [result for part in parts for result in self._evaluation(part).run()]

    def _evaluation(self, requests: Sequence[EvalRequest]) -> CandidateEvaluation:
        first = requests[0]
        compilers = self._compilers if self._compiles(first) else []
        context = self._context(first.task, self._secret(first), compilers, len(requests))
        sizes = [self._steps(context, one) for one in requests]
        needed_bytes = max(size.reference.runner_bytes for size in sizes)
        context = replace(context, options=self._device.granted(needed_bytes, self._options))
        return CandidateEvaluation(context, requests, sizes)

    def _steps(self, context: EvaluationContext, request: EvalRequest) -> EvaluationSteps:
        shrunk = self._sizes.of(request.task)
        references = [self._reference(task) for task in _tasks(request.task, shrunk)]
        trials = CorrectnessTrials(self._options, self._choice.of(request))
        times = ClockTimes(self._clock) if shrunk is None else ReducedTimes(context, references, shrunk, request)
        return EvaluationSteps(references[0], trials, times, self.compiled(request.task, references[0].is_sized))

    def survey(self, task: Task, source: str, kinds: Sequence[Kind], secret: bytes) -> list[Outcome]:
        """Return how each of many trials ends; a failed one does not stop the next. Not a verdict (`trials.survey`).

        Args:
            task: what the candidate must compute.
            source: the candidate's text.
            kinds: of the trials.
            secret: inputs are drawn from it; candidates with the same secret see the same inputs.

        Raises:
            TaskError: as `judge` does; also `InfraError` and `EnvironmentNotReady`.
        """
        request = EvalRequest(task, source)
        with self._served(request):
            shrunk = self._sizes.of(task)
            reference = self._reference(task if shrunk is None else shrunk.copies[0].task)
            return survey(self._context(task, lambda: secret), reference, request, kinds)

    def compiled(self, task: Task, is_sized: bool = False) -> CompiledReference | None:
        """Return what a task's reference runs through `torch.compile`, counted once for a simulated clock.

        Args:
            task: the task.
            is_sized: whether its sizes differ between draws.

        Returns:
            None if `reference_mode` is `eager`, or times are measured.

        Raises:
            TaskError: `reference_mode` is `compile`, and the reference cannot be compiled; also `InfraError`.
        """
        return None if self._compiled is None else self._compiled.of(task, is_sized)

    def audit(self, task: Task) -> Audit:
        """Return the defects of a task at its first size, with evidence; a large one is run at reduced sizes.

        Raises:
            TaskError: the reference cannot serve; also `InfraError` and `EnvironmentNotReady`.
        """
        named = task
        if task.workloads:
            task = task.at_size(task.workloads[0])
        with self._served(EvalRequest(task, "")):
            shrunk = self._sizes.of(task)
            copy = None if shrunk is None else shrunk.copies[0]
            reference = self._reference(task if copy is None else copy.task)
            events = reference.events if shrunk is None else shrunk.true.events
            machine = MachineModel.of(self._options.gpu_profile, self._options.float32)
            reference_ms = None if unpriced(events) else time_ms(events, machine)
            with self._device.shared():
                defects = find_defects(reference, reference_ms, self._guard)
        return Audit(
            task_id=named.task_id,
            task_hash=named.text_hash,
            sizes={} if copy is None else dict(copy.sizes),
            reference_ms=reference_ms,
            findings=tuple(defects),
        )

    def _context(
        self,
        task: Task,
        draw_secret: Callable[[], bytes],
        compilers: Sequence[LaunchCompiler] = (),
        sizes: int = 1,
    ) -> EvaluationContext:
        return EvaluationContext(
            options=self._options,
            namespace=task.namespace,
            device=self._device,
            zygote=self.processes.runners,
            emulator=None if self._emulator is None else self._emulator.for_candidate(task.namespace, sizes),
            guard=self._guard,
            draw_secret=draw_secret,
            clock=self._clock,
            compilers=compilers,
        )

    @contextmanager
    def _served(self, request: EvalRequest) -> Iterator[None]:
        if not self._references:
            self.warm_up()
        self._device.begin()
        try:
            yield
        except torch.OutOfMemoryError as exc:
            self._references.clear()  # they hold the memory that is missing
            raise InfraError(
                f"a judge has no memory left on its GPU for reference {request.task.task_id} "
                f"({str(exc).strip()[:200]}): lower kernelgym.memory_mb = {self._options.memory_mb}, which is kept for "
                "runners, or leave the task out"
            ) from None

    def warm_up(self) -> None:
        """Start the processes and load what recording needs, so that the first evaluation need not."""
        # Both at once: the processes start while this one imports what the first recorded op needs.
        self.processes.launch()
        with torch.no_grad(), self._device.record():
            torch.nn.functional.relu(torch.ones(1) + 1)
        self.processes.start()

    def rest(self) -> None:
        """Restart processes that have died, and end the compiler of references; call it while the judge is idle."""
        if self._compiled is not None:
            self._compiled.inductor.close()
        self.processes.launch()

    def close(self) -> None:
        """End the processes, unless they were given."""
        if self._compiled is not None:
            self._compiled.inductor.close()
        if self._owns_processes:
            self.processes.close()
        for helper in (*self._compilers, self._emulator):
            if helper is not None:
                helper.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _reference(self, task: Task) -> Reference:
        reference = self._references.get(task.cache_key)
        if reference is None:
            reference = self._prepare(task)
            size = 0 if isinstance(reference, TaskError) else _COPIES * reference.weight_bytes
            # An unusable task is remembered too: each of its candidates would prepare it again.
            self._references.put(task.cache_key, reference, size)
        if isinstance(reference, TaskError):
            raise reference
        return reference

    def _prepare(self, task: Task) -> Reference | TaskError:
        stored = None if self._store is None else self._store.load(task)
        try:
            with self._device.shared(), self._guard(), closing(OwnTime(os.getpid())) as own_time:
                reference = Reference(task, self._device, stored)
                used_s = own_time.used_s()
        except TaskError as exc:
            return exc
        # Asked after the end as well: the guard looks only now and then, and a caller may give none.
        if used_s > self._options.reference_timeout_s:
            return slow_reference(task, self._options.reference_timeout_s)
        if reason := self._device.misfit(reference.runner_bytes, self._options):
            return TaskError(f"reference {task.task_id} cannot serve as a task: {reason}")
        if self._store is not None and stored is None:
            self._store.save(task, reference.preparation)
        return reference

    def _refuse_noise(self) -> None:
        if self._options.timing_noise and not self._device.is_counted:
            raise ConfigError(
                f"kernelgym.timing_noise is {self._options.timing_noise}, but times are measured here, and a measured "
                "time has noise of its own: leave it 0"
            )

    def _make_verdict_store(self) -> VerdictStore | None:
        folder = self._options.verdict_cache
        if folder is None:
            return None
        if not self._device.is_counted:
            raise ConfigError(
                f"kernelgym.verdict_cache is {folder!r}, but times are measured here, and a measured time is never "
                "read from a file: leave it null"
            )
        return VerdictStore(folder, self._options)

    def _compiles(self, request: EvalRequest) -> bool:
        """Whether a candidate's launches are compiled: drawn from the secret, so that a candidate cannot know it."""
        share = 1.0 if request.validate else COMPILED_SHARES[self._options.compile]
        number = hashlib.sha256(b"compile" + self._secret(request)()).digest()[0]
        return number < 256 * share

    def _secret(self, request: EvalRequest) -> Callable[[], bytes]:
        """Return a function that draws the evaluation's secret; it is called once the candidate is loaded."""
        if self._seed is None:
            return lambda: os.urandom(32)
        # Of the task and the text as well: candidates of one judge do not share inputs.
        text = f"{self._seed}\0{request.task.fingerprint}\0{request.source}".encode("utf-8", "surrogatepass")
        return lambda: hashlib.sha256(text).digest()


def _make_compilers(options: GymOptions, device: DeviceBackend, processes: JudgeProcesses) -> list[LaunchCompiler]:
    """Make a compiler for each target of the options; none for a device that compiles kernels itself."""
    names = () if device.compiles_itself else options.targets
    processes.refuse_others(names)
    return [LaunchCompiler(TARGETS[name], options, processes.compiling) for name in names]


def _make_emulator(options: GymOptions, device: DeviceBackend, processes: JudgeProcesses) -> LaunchEmulator | None:
    """Make what runs compiled kernels; None if the device runs them itself."""
    if not device.has_emulator:
        return None
    return LaunchEmulator(options, processes.executing, CodeStore(options, processes.compiling, processes.code))


def _tasks(task: Task, shrunk: Shrunk | None) -> list[Task]:
    """Return the tasks that a candidate is judged by: the requested one, or its reduced copies."""
    return [task] if shrunk is None else [copy.task for copy in shrunk.copies]
