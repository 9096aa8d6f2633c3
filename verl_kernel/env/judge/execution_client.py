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
from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.ipc.channel import ProtocolError
from verl_kernel.env.ipc.execution_messages import Begin, Report, Reported, Shows
from verl_kernel.env.ipc.messages import Claims
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.compiling.code import CandidateCode, CodeService, CodeStore, CodeTime
from verl_kernel.env.judge.processes.own_time import RunQueue
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess
from verl_kernel.env.judge.processes.zygote import ExecuteZygote
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.errors import InfraError

_START_S = 60.0
"""Own time until an executing process is ready for launches."""
_ANSWER_S = 20.0
"""Own time for one message of a report, which needs no launch any more."""
Fork = Callable[[str, SharedMemory, GymOptions, tuple[int, ...]], "Future[RunnerProcess]"]
"""Forks an executing process, without waiting for it (`ForkServer.fork`)."""


class ExecutionDied(InfraError):
    """An executing process has ended, or does not answer.

    Args:
        reason: a sentence.
        by_kernel: whether a kernel may have ended it: by a signal, or by using too much memory.
    """

    def __init__(self, reason: str, by_kernel: bool = False) -> None:
        super().__init__(reason)
        self.by_kernel = by_kernel


class LaunchEmulator:
    """Begins the executing processes of a judge.

    Args:
        options: limits of its processes.
        zygote: forks them.
        store: has native code made, and keeps it.
    """

    def __init__(self, options: GymOptions, zygote: ExecuteZygote, store: CodeStore) -> None:
        self._options, self._zygote, self.store = options, zygote, store
        self._beside = ThreadPoolExecutor(1)  # forks beside the runner's own start

    def for_candidate(self, namespace: str, sizes: int = 1) -> CandidateEmulator:
        """Make the emulator of one candidate's launches, with time for the code of so many sizes."""
        code = CandidateCode(self.store, namespace, CodeTime(sizes * CODE_S))
        return CandidateEmulator(
            self._options, lambda *arguments: self._beside.submit(self._zygote.fork, *arguments), code
        )

    def close(self) -> None:
        """Wait for the current fork."""
        self._beside.shutdown()


class CandidateEmulator:
    """Begins the executing processes of one candidate, which share one time limit for making code."""

    def __init__(self, options: GymOptions, fork: Fork, code: CandidateCode) -> None:
        self._options, self._fork, self._code = options, fork, code
        self.units = code.units
        """Launches whose code was made, by their digests."""

    def begin(self, source: str) -> Execution:
        """Begin a process for one runner of the candidate; it starts at the same time as the runner.

        Args:
            source: the candidate's file.
        """
        return Execution(self._fork, self._code, source, self._options)


class Execution:
    """One runner's executing process, its link to it, and the memory in which tensors are handed over."""

    def __init__(self, fork: Fork, code: CandidateCode, source: str, options: GymOptions) -> None:
        self._code_time = code.code_time
        with ExitStack() as resources:
            scratch = resources.enter_context(closing(Scratch("")))
            self.arena = resources.enter_context(closing(SharedMemory.sparse(options.memory_mb << 20)))
            self.link, theirs = channels.pair()
            resources.enter_context(closing(self.link))
            ours, asking = channels.pair()
            self._forked = fork(scratch.path, self.arena, options, (theirs.fileno(), asking.fileno()))
            # The other ends must stay open until the fork has inherited them, and be closed here afterwards: else
            # the process's death would not be seen.
            for end in (theirs, asking):
                self._forked.add_done_callback(partial(_close, end))
            resources.callback(lambda: self._process.end())
            self._service = CodeService(code, ours, source)
            resources.callback(self._service.end)
            self._resources = resources.pop_all()

    @property
    def _process(self) -> RunnerProcess:
        """Wait until the process is forked, and return it (raises InfraError)."""
        process: RunnerProcess = self._forked.result()
        return process

    def started(self) -> None:
        """Wait until the process is ready for launches (raises ExecutionDied)."""
        self._ask(None, _START_S)

    def begin(
        self,
        *,
        seed: int,
        watch: bool,
        shows: Shows,
        refuses: bool,
        backwards: bool,
        sampled: bool = False,
        new_size: bool = False,
    ) -> None:
        """Tell the process that a forward begins (raises ExecutionDied).

        Args:
            seed: draws the order of programs.
            watch: whether to check for races, uninitialised reads and accesses outside views.
            shows: what the process reports of stores.
            refuses: whether such a finding stops the launch.
            backwards: whether the order is reversed.
            sampled: whether launches are sampled, on tensors without data.
            new_size: whether what earlier forwards showed of stores is forgotten.
        """
        with _deaths():
            message = Begin(
                begin=seed,
                new_size=new_size,
                watch=watch,
                shows=shows,
                refuses=refuses,
                backwards=backwards,
                sampled=sampled,
            )
            self._process.tell(message)

    @property
    def failure(self) -> InfraError | None:
        """Why a launch could not be compiled, if that is the gym's failure."""
        return self._service.failure

    def serve(self, runner: RunnerProcess) -> None:
        """Exclude waits from a runner's time: for native code, and for a processor for this process.

        Raises:
            InfraError: there is no executing process.
        """
        runner.serve(RunQueue(str(self._process.pid)), self._code_time)

    def report(self) -> Reported:
        """Return what the process ran since the forward began (raises ExecutionDied, or `failure`)."""
        if self.failure is not None:
            raise self.failure
        works: list[Any] = []
        try:
            while True:
                reply: Any = self._ask({"report": len(works)}, _ANSWER_S)
                # In pieces, as a message has a bound; an empty piece would never end.
                works += reply["works"]
                if not (reply["left"] and reply["works"]):
                    break
            return Reported(
                works=works, left=0, stopped=reply["stopped"], not_watched=reply["not_watched"], found=reply["found"]
            )
        except (LookupError, TypeError) as exc:
            raise ExecutionDied(f"an executing process sent what it never sends: {exc}") from exc

    def dismiss(self) -> None:
        """Kill the process without waiting for its end, once there are no more launches."""
        self._process.kill()

    def end(self) -> None:
        """End the process (idempotent)."""
        with suppress(InfraError):
            self._resources.close()

    def _ask(self, request: Report | None, budget_s: float) -> Claims:
        with _deaths():
            return self._process.ask(request, budget_s)


def _close(end: socket.socket, forked: object) -> None:
    end.close()


@contextmanager
def _deaths() -> Iterator[None]:
    """Raise ExecutionDied for every failure of a process."""
    try:
        yield
    except RunnerDied as died:
        # Its exit statuses are our own code's; a kernel can end the process by a signal only, as by a wrong access.
        how = f"signal {-died.code}" if died.code < 0 else f"status {died.code}"
        # A kernel cannot cause a SIGKILL, so the machine sent it.
        by_kernel = died.code < 0 and died.code != -signal.SIGKILL
        raise ExecutionDied(f"the executing process ended with {how}", by_kernel=by_kernel) from None
    except GrantExceeded as exc:
        raise ExecutionDied(f"while its kernels were executed, {exc}", by_kernel=True) from None
    except (TimeoutError, ProtocolError) as exc:
        raise ExecutionDied(f"the executing process does not answer: {type(exc).__name__} {exc}") from None
