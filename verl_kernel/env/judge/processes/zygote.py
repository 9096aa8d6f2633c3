# SPDX-License-Identifier: Apache-2.0
"""The judge's handle on its zygote, the process that forks runners."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, cast

import torch

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices import CPU_VARIABLES
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, Message, ProtocolError
from verl_kernel.env.ipc.messages import Fork, Forked, ForkRequest, Prepare, Ready, Reap, Reaped
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.judge.processes.server_process import ForkedZygote, ServerProcess
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox import libc
from verl_kernel.env.tamper.seals import SealReader
from verl_kernel.errors import EnvironmentNotReady, InfraError

# A judge's first zygote is forked from the judge's process, before the judge holds any secret.
#
# Both need torch. A second import costs 150 MB of private memory and a second of processor time; after a fork both
# share it. The fork comes before options, seed and tasks arrive, so the zygote knows no secret. A zygote that dies
# later is replaced by a newly started process (`ForkServer`), as the judge then has secrets.


def fork_zygote(name: str, serve: Callable[[int, str], None]) -> ForkedZygote | None:
    """Fork a zygote for the device `name`; None for a GPU, whose driver does not survive a fork.

    Call it before anything imports triton.

    Args:
        name: of the device.
        serve: is called in the zygote with its end of a socket and the name of its device
            (`verl_kernel.env.runner.zygote.serve`).
    """
    if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
        return None
    preload()
    # Frozen objects are not visited by the collector, so judge and zygote go on sharing their pages.
    gc.collect()
    gc.freeze()
    libc.collapse()  # in the judge: the zygote would make copies of shared pages
    return fork_server(lambda fd: serve(fd, "cpu"), CPU_VARIABLES)


def preload() -> None:
    """Load what runners on a CPU need, in a process that runs no kernels itself."""
    os.environ.update(CPU_VARIABLES)
    resolve_device("cpu").preload()
    for variable in CPU_VARIABLES:
        del os.environ[variable]


def fork_server(serve: Callable[[int], None], variables: Mapping[str, str]) -> ForkedZygote:
    """Fork a process from this one that forks others.

    Args:
        serve: is called in it with its end of a socket.
        variables: further environment variables of it.
    """
    ours, theirs = channels.pair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the zygote
    pid = os.fork()
    if pid == 0:
        fork_loop.end_after(partial(_serve_judge, theirs, errors, serve, variables))
    theirs.close()
    return ForkedZygote(pid, ours, errors)


def _serve_judge(
    sock: socket.socket, errors: IO[bytes], serve: Callable[[int], None], variables: Mapping[str, str]
) -> None:
    os.setsid()
    os.environ.update(variables)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd, source in ((0, nothing), (1, nothing), (2, errors.fileno())):
        os.dup2(source, fd)
    keep = sock.detach()
    # No descriptor of the judge may survive: not its sockets, not its files.
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
    serve(keep)


_START_S = 300.0
"""Longest start of a process that forks others, on a busy machine too."""
_ANSWER_S = 120.0
"""Longest time for an answer: a fork, or the collection of a process."""
_EXIT_S = 5.0
"""Seconds of own time that the exit of a compiling or executing process may take."""
COMPILER_VARIABLES = {"TRITON_DEFAULT_FP_FUSION": "1"}
"""Triton's default; without the variable Triton prints a warning."""


class ForkServer:
    """A process that forks jailed processes; it is started at the first fork, and again after its death.

    Args:
        program: its module.
        argument: of its command line, besides its end of a socket.
        variables: returns further environment variables for its start.
        exit_s: seconds of own time that the exit of a forked process may take.
        forked: a running process, if there is one.

    Raises:
        InfraError: it does not start or does not answer.
        EnvironmentNotReady: it cannot serve on this machine.
    """

    def __init__(
        self,
        program: str,
        argument: str,
        variables: Callable[[], Mapping[str, str]],
        exit_s: float,
        forked: ForkedZygote | None = None,
    ) -> None:
        self._program, self._argument, self._variables = program, argument, variables
        self._exit_s = exit_s
        self._process = None if forked is None else ServerProcess(forked, Channel(forked.sock), forked.errors)
        self._is_ready = self._is_prepared = False
        self._owed = 0
        self._lock = threading.RLock()
        """Several threads may fork processes."""

    @property
    def pid(self) -> int | None:
        """Process id; None while it is not running."""
        return None if self._process is None else self._process.child.pid

    @property
    def is_running(self) -> bool:
        """Whether it has been launched and has not ended."""
        return self._process is not None and self._process.child.poll() is None

    def start(self) -> None:
        """Launch it if it is not running, and wait until it is ready (a few seconds)."""
        with self._lock:
            self.launch()
            if not self._is_ready:
                ready = cast(Ready, self._answer(_START_S))
                if "unfit" in ready:
                    self.close()
                    raise EnvironmentNotReady(ready["unfit"])
                self._is_ready = True

    def launch(self) -> None:
        """Launch it unless it is running, without waiting."""
        with self._lock:
            if not self.is_running:
                self.close()
                self._process = ServerProcess.start(self._program, self._argument, variables=self._variables())
                self._is_ready, self._is_prepared, self._owed = False, False, 0

    def prepare(self) -> None:
        """Let it load what forwards without data need, without waiting."""
        if not self._is_prepared:
            self.start()
            self._send({"prepare": True})
            # Its answer is read with the next one, so that the judge need not wait for it.
            self._is_prepared, self._owed = True, 1

    def fork(
        self,
        scratch: str,
        memory: SharedMemory,
        options: GymOptions,
        further: tuple[int, ...] = (),
        arena_bytes: int = 0,
    ) -> RunnerProcess:
        """Fork a jailed process, which then waits for its first request.

        Args:
            scratch: its directory.
            memory: shared with the judge.
            options: its limits.
            further: descriptors. A runner gets its link to the executing process and their arena; an executing
                process gets that link and a socket to ask for code.
            arena_bytes: size of the arena; 0 without one.
        """
        self.start()
        ours, theirs = channels.pair()
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        seals_read, seals_write = os.pipe2(os.O_CLOEXEC)
        request = ForkRequest(
            scratch=scratch,
            memory_bytes=memory.size,
            arena_bytes=arena_bytes,
            memory_mb=options.memory_mb,
            float32=options.float32,
        )
        try:
            with self._lock:
                self._send({"fork": request}, (theirs.fileno(), memory.fd, write_end, seals_write, *further))
                pid = cast(Forked, self._answer())["pid"]
            pidfd, seals = os.pidfd_open(pid), SealReader(seals_read)
            return RunnerProcess(
                reap=self.reap,
                exit_s=self._exit_s,
                pid=pid,
                pidfd=pidfd,
                channel=Channel(ours),
                output_fd=read_end,
                seals=seals,
                options=options,
                scratch=scratch,
                memory_bytes=memory.size,
                arena_fd=os.dup(further[1]) if arena_bytes else -1,
            )
        except (InfraError, OSError) as exc:  # the other ends are closed below; these would leak
            ours.close()
            os.close(read_end)
            os.close(seals_read)
            raise InfraError(f"no runner could be started: {exc}") from exc
        finally:
            theirs.close()
            os.close(write_end)
            os.close(seals_write)

    def reap(self, pid: int) -> tuple[int, int]:
        """Return a dead runner's exit status, or minus its signal, and its memory growth in MB."""
        with self._lock:
            self._send({"reap": pid})
            reaped = cast(Reaped, self._answer())
        return reaped["status"], reaped["grown_mb"]

    def close(self) -> None:
        """Kill it (its runners die with it)."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    @property
    def _channel(self) -> Channel:
        if self._process is None:
            raise InfraError("the zygote is not running")
        return self._process.channel

    def _send(self, message: Fork | Prepare | Reap, fds: tuple[int, ...] = ()) -> None:
        try:
            self._channel.send(message, fds)
        except ChannelClosed as exc:
            raise self._failed(exc) from exc

    def _answer(self, timeout_s: float = _ANSWER_S) -> Message:
        try:
            while self._owed:
                self._channel.recv(timeout_s)
                self._owed -= 1
            return self._channel.recv(timeout_s)
        except (ChannelClosed, ProtocolError, TimeoutError) as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: Exception) -> InfraError:
        last_words = "" if self._process is None else self._process.last_words()
        self.close()
        return InfraError(f"the zygote does not answer: {last_words or exc}")


class Zygote(ForkServer):
    """The judge's zygote, which forks runners.

    Args:
        device: of its runners.
        forked: a running process, if there is one.

    Raises:
        InfraError: it does not start or does not answer.
    """

    def __init__(self, device: DeviceBackend, forked: ForkedZygote | None = None) -> None:
        program = "verl_kernel.env.runner.zygote"
        super().__init__(program, device.name, lambda: device.zygote_env(), device.exit_s, forked)


class CompileZygote(ForkServer):
    """The process that forks compiling processes (`verl_kernel.env.compilation.zygote`), for any of the targets."""

    def __init__(self, targets: Sequence[str], forked: ForkedZygote | None = None) -> None:
        program = "verl_kernel.env.compilation.zygote"
        super().__init__(program, ",".join(targets), lambda: COMPILER_VARIABLES, _EXIT_S, forked)


class ExecuteZygote(ForkServer):
    """The process that forks executing processes (`verl_kernel.env.execution.zygote`)."""

    def __init__(self, forked: ForkedZygote | None = None) -> None:
        super().__init__("verl_kernel.env.execution.zygote", str(cache_folder()), dict, _EXIT_S, forked)


def cache_folder() -> Path:
    """Return the user's folder for native code of the emulator's library."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "verl_kernel" / "emulator"
