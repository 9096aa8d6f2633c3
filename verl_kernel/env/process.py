# SPDX-License-Identifier: Apache-2.0
"""The judge's handles on its zygote and on the runner of the moment."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from verl_kernel.env import channel as channels
from verl_kernel.env.arena import Arena
from verl_kernel.env.channel import Channel, ChannelClosed, Message, ProtocolError
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.judge_process import child_environment
from verl_kernel.env.twin import Twin
from verl_kernel.errors import InfraError

_START_S, _ANSWER_S, _EXIT_S, _WATCH_S = 120.0, 10.0, 5.0, 0.1
_PROCESS_CLOCK = 2
"""Low bits of the clock of a process (CPUCLOCK_SCHED in linux/posix-timers.h)."""


class RunnerDied(Exception):
    """The runner ended before it answered; `code` is its exit status or minus its signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class MemoryExceeded(Exception):
    """The runner used more memory than it was granted and has been killed."""


class Zygote:
    """The judge's zygote: started at the first fork, started again after a death.

    Args:
        device: where its runners run.
        twin: a process that serves already.

    Raises:
        InfraError: it does not start or does not answer.
    """

    def __init__(self, device: DeviceBackend, twin: Twin | None = None) -> None:
        self._device = device
        self._process: subprocess.Popen[bytes] | Twin | None = twin
        self._channel = None if twin is None else Channel(twin.sock)
        self._errors = None if twin is None else twin.errors
        self._is_ready = False

    @property
    def pid(self) -> int | None:
        """Process id, None while it is not running."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Wait until it is ready, having launched it if need be (a few seconds)."""
        self.launch()
        if not self._is_ready:
            self._answer(_START_S)
            self._is_ready = True

    def launch(self) -> None:
        """Launch it unless it is running, and do not wait."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = channels.pair()
        self._errors = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "verl_kernel.env.zygote", str(theirs.fileno()), self._device.name]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env={**child_environment(), **self._device.zygote_env()}, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._channel, self._is_ready = Channel(ours), False

    def fork(self, scratch: str, arena: Arena, memory_mb: int, output_bytes: int) -> RunnerProcess:
        """A new runner, jailed, that waits for its first request."""
        self.start()
        ours, theirs = channels.pair()
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        request = {"scratch": scratch, "arena_bytes": arena.size, "memory_mb": memory_mb}
        try:
            self._send({"fork": request}, (theirs.fileno(), arena.fd, write_end))
            pid = self._answer()["pid"]
            return RunnerProcess(self, pid, os.pidfd_open(pid), Channel(ours), read_end, output_bytes, memory_mb)
        except (InfraError, OSError) as exc:
            ours.close()
            os.close(read_end)
            raise InfraError(f"no runner could be started: {exc}") from exc
        finally:
            theirs.close()
            os.close(write_end)

    def reap(self, pid: int) -> int:
        """Exit status of a dead runner, or minus its signal."""
        self._send({"reap": pid})
        return int(self._answer()["status"])

    def close(self) -> None:
        """Kill it (its runners die with it)."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._errors is not None:
            self._errors.close()
        self._process = self._channel = self._errors = None

    def _send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        if self._channel is None:
            raise InfraError("the zygote is not running")
        try:
            self._channel.send(message, fds)
        except ChannelClosed as exc:
            raise self._failed(exc) from exc

    def _answer(self, timeout_s: float = _ANSWER_S) -> Message:
        if self._channel is None:
            raise InfraError("the zygote is not running")
        try:
            return self._channel.recv(timeout_s)
        except (ChannelClosed, ProtocolError, TimeoutError) as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: Exception) -> InfraError:
        last_words = ""
        if self._errors is not None:
            self._errors.seek(0)
            last_words = self._errors.read()[-500:].decode(errors="replace").strip().rpartition("\n")[2]
        self.close()
        return InfraError(f"the zygote does not answer: {last_words or exc}")


@dataclass
class RunnerProcess:
    """One runner: ask it, then end it. Nothing here trusts what it says."""

    zygote: Zygote
    pid: int
    pidfd: int
    channel: Channel
    output_fd: int
    output_limit: int
    memory_mb: int
    output: bytearray = field(default_factory=bytearray)
    """What it printed, up to `output_limit` bytes; the rest is dropped."""
    was_killed: bool = False
    """Whether `end` had to kill it."""
    _code: int = 0
    _inherited_kb: int = 0
    """Memory shared with the zygote, as first seen; more is the candidate's."""

    def ask(self, request: Message | None, timeout_s: float) -> Message:
        """Send a request and wait for the answer.

        Raises:
            RunnerDied: it ended first, or its channel did.
            TimeoutError: no answer in time.
            MemoryExceeded: it used more than its grant and was killed.
            ProtocolError: it answered with something that is no message.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self.channel.sock.settimeout(timeout_s)
            if request is not None:
                self.channel.send(request)
            while (answer := self._step(deadline)) is None:
                pass
        except ChannelClosed:
            raise RunnerDied(self.end(grace_s=0.2)) from None
        return answer

    def finish(self) -> int:
        """Let it exit by itself and collect it: 0, another status, or minus a signal."""
        with suppress(ChannelClosed):
            self.channel.send({"exit": True})
        return self.end(_EXIT_S)

    def end(self, grace_s: float = 0.0) -> int:
        """Wait `grace_s` for its end, kill its process group, collect it (idempotent)."""
        if self.pidfd < 0:
            return self._code
        deadline = time.monotonic() + grace_s
        while grace_s and time.monotonic() < deadline and not self._ready(deadline, self.pidfd):
            pass
        self.was_killed = not select.select([self.pidfd], [], [], 0)[0]
        self._kill()
        self._close()
        self._code = self.zygote.reap(self.pid)
        return self._code

    def processor_ns(self) -> int:
        """Processor time of all its threads so far, as the kernel counts it."""
        with suppress(OSError):  # it has ended
            return time.clock_gettime_ns(~self.pid << 3 | _PROCESS_CLOCK)
        return 0

    @property
    def alive(self) -> bool:
        """Whether it has not been collected yet."""
        return self.pidfd >= 0

    def _step(self, deadline: float) -> Message | None:
        ready = self._ready(min(deadline, time.monotonic() + _WATCH_S), self.channel.fileno(), self.pidfd)
        if not ready:
            self._watch_memory()
        if not ready and time.monotonic() >= deadline:
            raise TimeoutError("the runner did not answer in time")
        if self.channel.fileno() in ready:
            return self.channel.feed()
        if self.pidfd in ready:
            raise ChannelClosed("the runner has ended")
        return None

    def _watch_memory(self) -> None:
        with suppress(OSError, StopIteration):  # it has ended
            status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            kilobytes = int(next(line for line in status if line.startswith("RssAnon:")).split()[1])
            self._inherited_kb = self._inherited_kb or kilobytes
            if kilobytes > self._inherited_kb + (self.memory_mb << 10):
                self.end()
                raise MemoryExceeded(f"the process used more than kernelgym.memory_mb = {self.memory_mb} MB")

    def _ready(self, deadline: float, *fds: int) -> list[int]:
        watched = [*fds, self.output_fd] if self.output_fd >= 0 else list(fds)
        ready = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))[0]
        if self.output_fd in ready:
            self._drain()
        return [fd for fd in ready if fd in fds]

    def _drain(self) -> None:
        data = os.read(self.output_fd, 1 << 16)
        self.output += data[: max(0, self.output_limit - len(self.output))]
        if not data:
            os.close(self.output_fd)
            self.output_fd = -1

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have died before it had a group
            os.killpg(self.pid, signal.SIGKILL)

    def _close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)
        if self.output_fd >= 0:
            os.close(self.output_fd)
        self.pidfd = self.output_fd = -1


class Scratch:
    """A private directory that holds the candidate's file and goes with it."""

    def __init__(self, file_name: str, source: str) -> None:
        try:
            self.path = tempfile.mkdtemp(prefix="verl_kernel_")
            (Path(self.path) / file_name).write_bytes(source.encode("utf-8", "surrogatepass"))
        except OSError as exc:
            raise InfraError(f"no scratch directory for a candidate: {exc}") from exc

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
