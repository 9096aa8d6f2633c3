# SPDX-License-Identifier: Apache-2.0
"""A judge's compiler: it compiles launches in the background and remembers the outcomes."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from importlib.metadata import version

from verl_kernel.env.compilation.description import Place, Unit
from verl_kernel.env.compilation.outcome import Outcome, Refusal
from verl_kernel.env.compilation.target import Target
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.compiling.process import CompilingProcess, Stopping
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.judge.processes.zygote import CompileZygote
from verl_kernel.env.lru import LRUCache
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.errors import InfraError

_KEPT = 4096
"""Most launches whose outcome is remembered."""
Texts = Mapping[Place, str]
Compiled = list[tuple[Unit, Outcome]]


class LaunchCompiler:
    """A compiler for one target, with the outcomes of earlier evaluations.

    Args:
        target: the GPU architecture.
        options: limits of its processes.
        zygote: the judge's, prepared for this target.
    """

    def __init__(self, target: Target, options: GymOptions, zygote: CompileZygote) -> None:
        self.target, self._options, self._zygote = target, options, zygote
        self._outcomes: LRUCache[Outcome] = LRUCache(_KEPT)
        self._threads = ThreadPoolExecutor(1, "compile")  # one job at a time: a judge has one candidate
        self._versions = (version("triton"), target.name)

    def job(self, source: str, texts: Texts, namespace: str) -> CompileJob:
        """Begin to compile launches of a candidate in the background.

        Args:
            source: the candidate's file.
            texts: of its functions, by name and line.
            namespace: whose candidate it is; outcomes are remembered for its namespace.
        """
        job = CompileJob(self, source, texts, namespace)
        job.future = self._threads.submit(job.run)
        return job

    def key(self, unit: Unit, texts: Texts, namespace: str) -> str:
        """Return a launch's name, equal in all evaluations of a namespace.

        Raises:
            LookupError: a function is not in the source.
        """
        return unit.key(texts, *self._versions, namespace)

    def remembered(self, key: str) -> Outcome | None:
        """Return the outcome of a launch in an earlier evaluation; None if it is not known."""
        return self._outcomes.get(key)

    def judged(self, key: str, outcome: Outcome, is_certain: bool) -> Outcome:
        """Return the outcome, or a refusal if no GPU can launch the kernel; remember it if it is certain."""
        if not isinstance(outcome.result, Refusal) and (reason := self.target.misfit(outcome.result)) is not None:
            outcome = Outcome(Refusal("OutOfResources", reason, 0), outcome.seconds)
        return self._outcomes.put(key, outcome) if is_certain else outcome

    def fork(self, scratch: Scratch, memory: SharedMemory) -> RunnerProcess:
        """Fork a compiling process (raises InfraError)."""
        return self._zygote.fork(scratch.path, memory, self._options)

    def close(self) -> None:
        """Wait for the current job."""
        self._threads.shutdown()


class CompileJob:
    """The launches of one evaluation, compiled in order until one is refused.

    Args:
        compiler: compiles them.
        source: the candidate's file.
        texts: of its functions, by name and line.
        namespace: whose candidate it is.
    """

    def __init__(self, compiler: LaunchCompiler, source: str, texts: Texts, namespace: str) -> None:
        self._compiler, self._source, self._texts, self._namespace = compiler, source, texts, namespace
        self._units: queue.SimpleQueue[Unit | None] = queue.SimpleQueue()
        self._stopping = Stopping()
        self._process: CompilingProcess | None = None
        self.future: Future[Compiled]

    def add(self, unit: Unit) -> None:
        """Add a launch (raises LookupError if a function is not in the source)."""
        self._compiler.key(unit, self._texts, self._namespace)  # raises here, in the evaluation's thread
        self._units.put(unit)

    def result(self) -> Compiled:
        """Wait for the outcomes of all launches; those after a refused one are left out.

        Raises:
            InfraError: the compiler failed, and the candidate is not the reason.
        """
        self._units.put(None)
        return self.future.result()

    def stop(self) -> None:
        """Cancel the compilation (idempotent)."""
        self._stopping.stop()
        self._units.put(None)
        with suppress(InfraError):
            self.future.result()

    def run(self) -> Compiled:
        """Compile launches as they are added, until the job ends."""
        outcomes: Compiled = []
        with ExitStack() as resources:
            while (unit := self._units.get()) is not None and not self._stopping.is_stopped:
                # The first refusal is the verdict; later launches are only taken from the queue.
                if not any(isinstance(outcome.result, Refusal) for _, outcome in outcomes):
                    outcomes.append((unit, self._outcome(unit, resources)))
        return outcomes

    def _outcome(self, unit: Unit, resources: ExitStack) -> Outcome:
        key = self._compiler.key(unit, self._texts, self._namespace)
        if (remembered := self._compiler.remembered(key)) is not None:
            return remembered
        if self._process is None:
            # Forked at the first launch that no earlier evaluation knows; many evaluations need none.
            self._process = CompilingProcess(self._fork(resources), target=self._compiler.target.name)
        return self._compiler.judged(key, *self._process.outcome(unit))

    def _fork(self, resources: ExitStack) -> RunnerProcess:
        scratch = resources.enter_context(closing(Scratch(self._source)))
        memory = resources.enter_context(closing(SharedMemory.create(1)))
        process = self._compiler.fork(scratch, memory)
        resources.callback(self._stopping.end)
        self._stopping.begin(process)
        return process
