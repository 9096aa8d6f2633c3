# SPDX-License-Identifier: Apache-2.0
"""The judge's handle on the processes that execute candidates' compiled kernels."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

from verl_kernel.env.compilation.targets import CODE_S
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.ipc.channel import ProtocolError
from verl_kernel.env.ipc.execution_messages import Begin, Report, Reported, Shows
from verl_kernel.env.ipc.messages import Claims
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.compiling.code import CodeService, CodeStore, CodeTime
from verl_kernel.env.judge.processes.own_time import RunQueue
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess
from verl_kernel.env.judge.processes.zygote import CompileZygote, ExecuteZygote
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.errors import InfraError

_START_S, _ANSWER_S = 60.0, 20.0
Fork = Callable[[str, SharedMemory, GymOptions, tuple[int, ...]], "Future[RunnerProcess]"]
"""Has an executing process forked, without waiting (`ForkServer.fork`)."""


class ExecutionDied(InfraError):
    """An executing process ended, or does not answer.

    Args:
        reason: in words.
        by_kernel: whether what it ran may have ended it: by a signal, or for want of memory.
    """

    def __init__(self, reason: str, by_kernel: bool = False) -> None:
        super().__init__(reason)
        self.by_kernel = by_kernel


class LaunchExecutor:
    """A judge's zygote for executing processes.

    Args:
        options: limits of its processes.
        compilers: forks those that make native code.
    """

    def __init__(self, options: GymOptions, compilers: CompileZygote) -> None:
        self._options, self._zygote, self._compilers = options, ExecuteZygote(), compilers
        self._beside = ThreadPoolExecutor(1)
        self.store = CodeStore(options, compilers)
        """What was made so far."""

    def launch(self) -> None:
        """Start its zygotes, and do not wait."""
        self._compilers.launch()
        self._zygote.launch()

    def start(self) -> None:
        """Wait until its zygotes serve (raises EnvironmentNotReady)."""
        self._compilers.start()
        self._zygote.start()

    def for_candidate(self) -> CandidateExecutor:
        """What executes one candidate's launches."""
        return CandidateExecutor(
            self._options, lambda *wanted: self._beside.submit(self._zygote.fork, *wanted), self.store
        )

    def close(self) -> None:
        """End the zygotes."""
        self._beside.shutdown()
        self._zygote.close()
        self._compilers.close()


class CandidateExecutor:
    """Begins the executing processes of one candidate, which have the time to make code in common."""

    def __init__(self, options: GymOptions, fork: Fork, store: CodeStore) -> None:
        self._options, self._fork, self._store, self._spent = options, fork, store, CodeTime(CODE_S)

    def begin(self, source: str) -> Execution:
        """A process for one runner of the candidate, which starts beside that.

        Args:
            source: the candidate's file.
        """
        return Execution(self._fork, self._store, source, self._options, self._spent)


def make_executor(options: GymOptions, device: DeviceBackend, compilers: CompileZygote) -> LaunchExecutor | None:
    """What runs compiled kernels; None where the device does so itself."""
    return LaunchExecutor(options, compilers) if device.has_executor else None


class Execution:
    """One runner's executing process, its link to it, and the memory in which tensors are handed over."""

    def __init__(self, fork: Fork, store: CodeStore, source: str, options: GymOptions, spent: CodeTime) -> None:
        self._spent = spent
        with ExitStack() as made:
            scratch = made.enter_context(closing(Scratch("")))
            self.arena = made.enter_context(closing(SharedMemory.sparse(options.memory_mb << 20)))
            self.link, theirs = channels.pair()
            made.enter_context(closing(self.link))
            ours, asking = channels.pair()
            self._forked = fork(scratch.path, self.arena, options, (theirs.fileno(), asking.fileno()))
            for end in (theirs, asking):
                self._forked.add_done_callback(partial(_close, end))
            made.callback(lambda: self._process.end())
            self._service = CodeService(store, ours, source, spent)
            made.callback(self._service.end)
            self._resources = made.pop_all()

    @property
    def _process(self) -> RunnerProcess:
        """It, once it is there (raises InfraError)."""
        process: RunnerProcess = self._forked.result()
        return process

    def started(self) -> None:
        """Wait until it is ready for launches (raises ExecutionDied)."""
        self._ask(None, _START_S)

    def begin(
        self, seed: int, watch: bool, shows: Shows, refuses: bool, backwards: bool, sampled: bool = False
    ) -> None:
        """A forward comes (raises ExecutionDied).

        Args:
            seed: draws the order of programs.
            watch: whether memory is checked: for races, unwritten reads and accesses beyond views.
            shows: what it shows of stores.
            refuses: whether a launch stops where they are found.
            backwards: whether the order is turned round.
            sampled: whether launches are sampled, on tensors without data.
        """
        with _deaths():
            told = Begin(begin=seed, watch=watch, shows=shows, refuses=refuses, backwards=backwards, sampled=sampled)
            self._process.tell(told)

    @property
    def failure(self) -> InfraError | None:
        """Why a launch could not be compiled, though no candidate is to blame."""
        return self._service.failure

    def serve(self, runner: RunnerProcess) -> None:
        """Let what a runner waits for, and is not its own doing, not count as its time: code, and a processor here.

        Raises:
            InfraError: there is no executing process.
        """
        runner.serve(RunQueue(str(self._process.pid)), self._spent)

    def report(self) -> Reported:
        """What it ran since the forward began (raises ExecutionDied, or `failure`)."""
        if self.failure is not None:
            raise self.failure
        reply: Any = self._ask({"report": True}, _ANSWER_S)
        try:
            return Reported(
                works=reply["works"], stopped=reply["stopped"], not_watched=reply["not_watched"], found=reply["found"]
            )
        except (LookupError, TypeError) as exc:
            raise ExecutionDied(f"an executing process sent what it never sends: {exc}") from exc

    def dismiss(self) -> None:
        """Kill it without waiting for its end: no launch comes any more."""
        self._process.kill()

    def end(self) -> None:
        """End it (idempotent)."""
        with suppress(InfraError):
            self._resources.close()

    def _ask(self, request: Report | None, budget_s: float) -> Claims:
        with _deaths():
            return self._process.ask(request, budget_s)


def _close(end: socket.socket, forked: object) -> None:
    end.close()


@contextmanager
def _deaths() -> Iterator[None]:
    """Raise ExecutionDied for all that a process may come to."""
    try:
        yield
    except RunnerDied as died:
        how = f"signal {-died.code}" if died.code < 0 else f"status {died.code}"
        # Nothing that a kernel does ends in a SIGKILL: it comes from the machine.
        by_kernel = died.code < 0 and died.code != -signal.SIGKILL
        raise ExecutionDied(f"the executing process ended with {how}", by_kernel=by_kernel) from None
    except GrantExceeded as exc:
        raise ExecutionDied(f"while its kernels were executed, {exc}", by_kernel=True) from None
    except (TimeoutError, ProtocolError) as exc:
        raise ExecutionDied(f"the executing process does not answer: {type(exc).__name__} {exc}") from None
