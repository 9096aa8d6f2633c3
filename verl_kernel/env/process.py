# SPDX-License-Identifier: Apache-2.0
"""The judge's handles on its zygote and on the runner of the moment."""

from __future__ import annotations

import os
import re
import select
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
from verl_kernel.env.options import GymOptions
from verl_kernel.env.own_time import OwnTime, backstop_s, processor_ns
from verl_kernel.env.scratch import used_bytes
from verl_kernel.env.seals import SealReader
from verl_kernel.env.twin import Twin
from verl_kernel.errors import InfraError

_START_S, _ANSWER_S, _WATCH_S = 300.0, 120.0, 0.1
_MEMORY = re.compile(rb"^RssAnon:\s+(\d+) kB$.*^RssShmem:\s+(\d+) kB$", re.MULTILINE | re.DOTALL)


class RunnerDied(Exception):
    """The runner ended before it answered; `code` is its exit status or minus its signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GrantExceeded(Exception):
    """The runner used more than it was granted of what `kind` names and has been killed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


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

    @property
    def exit_s(self) -> float:
        """Seconds of its own time that a runner may take for its end."""
        return self._device.exit_s

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

    def fork(self, scratch: str, arena: Arena, options: GymOptions) -> RunnerProcess:
        """A new runner, jailed, that waits for its first request."""
        self.start()
        ours, theirs = channels.pair()
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        seals_read, seals_write = os.pipe2(os.O_CLOEXEC)
        request = {"scratch": scratch, "arena_bytes": arena.size, "memory_mb": options.memory_mb}
        request["float32"] = options.float32
        try:
            self._send({"fork": request}, (theirs.fileno(), arena.fd, write_end, seals_write))
            pid = self._answer()["pid"]
            pidfd, seals = os.pidfd_open(pid), SealReader(seals_read)
            return RunnerProcess(self, pid, pidfd, Channel(ours), read_end, seals, options, scratch, arena.size)
        except (InfraError, OSError) as exc:
            ours.close()
            os.close(read_end)
            os.close(seals_read)
            raise InfraError(f"no runner could be started: {exc}") from exc
        finally:
            theirs.close()
            os.close(write_end)
            os.close(seals_write)

    def reap(self, pid: int) -> tuple[int, int]:
        """Exit status of a dead runner, or minus its signal, and its largest memory in MB beyond what it began with."""
        self._send({"reap": pid})
        answer = self._answer()
        return int(answer["status"]), int(answer["grown_mb"])

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
    seals: SealReader
    options: GymOptions
    scratch: str
    arena_bytes: int
    output: bytearray = field(default_factory=bytearray)
    """What it printed, up to `options.output_kb`; the rest is dropped."""
    was_killed: bool = False
    """Whether `end` had to kill it."""
    grown_mb: int = 0
    """Its largest memory, beyond what it shared with the zygote at first; known once it has been collected."""
    _code: int = 0
    _printed: int = 0
    _inherited_kb: int = 0
    """Memory shared with the zygote, as first seen; more is the candidate's."""
    _next_look: float = 0.0

    def __post_init__(self) -> None:
        self._own_time = OwnTime(self.pid, asked=True)

    def ask(self, request: Message | None, budget_s: float) -> Message:
        """Send a request and wait for the answer, for `budget_s` seconds of the runner's own time.

        Raises:
            RunnerDied: it ended first, or its channel did.
            TimeoutError: the budget is used up, or ten times as much on the wall clock; it says which.
            GrantExceeded: it used more memory or disk than its grant and was killed.
            ProtocolError: it answered with something that is no message.
        """
        self._own_time.start()
        deadline = time.monotonic() + backstop_s(budget_s)
        try:
            self.channel.sock.settimeout(backstop_s(budget_s))
            if request is not None:
                self.channel.send(request)
            while (answer := self._step(budget_s, deadline)) is None:
                pass
        except ChannelClosed:
            raise RunnerDied(self.end(grace_s=0.2)) from None
        if not self._inherited_kb:
            self._look_at_memory()
        self._look_at_disk()
        return answer

    @property
    def used_s(self) -> float:
        """Seconds of its own time since the last request."""
        return self._own_time.used_s()

    def finish(self) -> int:
        """Let it exit by itself and collect it: 0, another status, or minus a signal."""
        with suppress(ChannelClosed):
            self.channel.send({"exit": True})
        return self.end(self.zygote.exit_s)

    def end(self, grace_s: float = 0.0) -> int:
        """Wait `grace_s` of its own time for its end, kill its process group, collect it (idempotent)."""
        if self.pidfd < 0:
            return self._code
        self._own_time.start()
        deadline = time.monotonic() + backstop_s(grace_s)
        while grace_s and time.monotonic() < deadline and not self._own_time.is_over(grace_s):
            if self._ready(min(_WATCH_S, grace_s), self.pidfd):
                break
        self.was_killed = not select.select([self.pidfd], [], [], 0)[0]
        self._kill()
        self._close()
        self._collect()
        return self._code

    def processor_ns(self) -> int:
        """Processor time of all its threads so far, as the kernel counts it."""
        return processor_ns(self.pid)

    @property
    def alive(self) -> bool:
        """Whether it has not been collected yet."""
        return self.pidfd >= 0

    def _step(self, budget_s: float, deadline: float) -> Message | None:
        ready = self._ready(min(_WATCH_S, max(0.001, budget_s)), self.channel.fileno(), self.pidfd)
        if self.channel.fileno() in ready:
            if (answer := self.channel.feed()) is not None:
                return answer
        elif self.pidfd in ready:
            raise ChannelClosed("the runner has ended")
        if time.monotonic() >= self._next_look:  # whatever it sends: drops of an answer are none
            self._next_look = time.monotonic() + _WATCH_S
            self._look_at_memory()
            self._look_at_disk()
            self._look_at_time(budget_s, deadline)
        return None

    def _look_at_time(self, budget_s: float, deadline: float) -> None:
        if self._own_time.is_over(budget_s):
            raise TimeoutError("processor time and sleep")
        if time.monotonic() >= deadline:
            raise TimeoutError("processor time, by ten times that and 30 s on the wall clock")

    def _look_at_memory(self) -> None:
        if self._grown_kb() > self.options.memory_mb << 10:
            self._refuse("MemoryExceeded", f"used more than kernelgym.memory_mb = {self.options.memory_mb} MB")

    def _look_at_disk(self) -> None:
        limit = self.options.disk_mb << 20
        if self._printed + used_bytes(self.scratch, limit) > limit:
            grant = f"kernelgym.disk_mb = {self.options.disk_mb} MB"
            self._refuse("DiskExceeded", f"wrote and printed more than {grant} (a file counts 16 kB or more)")

    def _refuse(self, kind: str, text: str) -> None:
        self.end()
        raise GrantExceeded(kind, f"the process {text}")

    def _grown_kb(self) -> int:
        """Memory of its own: private pages, and shared ones beyond the arena's."""
        found = None
        with suppress(OSError):  # it has ended
            found = _MEMORY.search(Path(f"/proc/{self.pid}/status").read_bytes())
        if found is None:
            return 0
        kilobytes = int(found[1]) + max(0, int(found[2]) - (self.arena_bytes >> 10))
        self._inherited_kb = self._inherited_kb or kilobytes
        return kilobytes - self._inherited_kb

    def _ready(self, wait_s: float, *fds: int) -> list[int]:
        watched = [*fds, *(fd for fd in (self.output_fd, self.seals.fd) if fd >= 0)]
        ready = select.select(watched, [], [], wait_s)[0]
        if self.seals.fd in ready:
            self.seals.drain()
        if self.output_fd in ready:
            self._drain()
        return [fd for fd in ready if fd in fds]

    def _drain(self) -> None:
        data = os.read(self.output_fd, 1 << 16)
        self._printed += len(data)
        self.output += data[: max(0, (self.options.output_kb << 10) - len(self.output))]
        if not data:
            os.close(self.output_fd)
            self.output_fd = -1

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have died before it had a group
            os.killpg(self.pid, signal.SIGKILL)

    def _collect(self) -> None:
        try:
            self._code, self.grown_mb = self.zygote.reap(self.pid)
        except InfraError:
            if not self.was_killed:
                raise
            self._code = -signal.SIGKILL  # why it was killed is the verdict, however its end was

    def _close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)
        self._own_time.close()
        self.seals.close()
        if self.output_fd >= 0:
            os.close(self.output_fd)
        self.pidfd = self.output_fd = -1
