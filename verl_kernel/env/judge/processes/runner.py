# SPDX-License-Identifier: Apache-2.0
"""The judge's handle on a runner."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from verl_kernel.env.ipc.channel import Channel, ChannelClosed, Message
from verl_kernel.env.ipc.execution_messages import Begin
from verl_kernel.env.ipc.messages import Claims, Exit, JudgeOptions, Request
from verl_kernel.env.judge.processes.own_time import OwnTime, Waits, backstop_s, processor_ns
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import used_bytes
from verl_kernel.env.tamper.seals import SealReader
from verl_kernel.errors import InfraError

# Linux counts the processes that it has killed for lack of memory. A larger count shows that a kill came from outside.
#
# The counter of this process's control group does not count processes of other groups. If the group has none, the
# machine's counter is used.


_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_ROOT = Path("/sys/fs/cgroup")


def oom_kills() -> int:
    """Return the counter of this process's control group, or of the machine; only its growth has a meaning."""
    counter = _counter()
    return 0 if counter is None else _kill_count(counter) or 0


@lru_cache(maxsize=1)
def _counter() -> Path | None:
    return next((path for path in _counter_paths() if _kill_count(path) is not None), None)


def _counter_paths() -> Iterator[Path]:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":
                yield _ROOT / path.lstrip("/") / "memory.events"
            elif "memory" in kinds.split(","):
                yield _ROOT / "memory" / path.lstrip("/") / "memory.oom_control"
    yield from (_ROOT / "memory.events", _ROOT / "memory" / "memory.oom_control", Path("/proc/vmstat"))


def _kill_count(path: Path) -> int | None:
    with suppress(OSError):
        if match := _COUNT.search(path.read_bytes()):
            return int(match[1])
    return None


_WATCH_S = 0.1
"""Seconds between two looks at a runner's memory, disk and time."""
_KEPT_OUTPUT = 64 << 10
"""Most bytes that are kept of a runner's printed output."""
_MEMORY = re.compile(rb"^RssAnon:\s+(\d+) kB$.*^RssShmem:\s+(\d+) kB$", re.MULTILINE | re.DOTALL)


class RunnerDied(Exception):
    """The runner ended before it answered; `code` is its exit status or minus its signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GrantExceeded(Exception):
    """The runner used more memory or disk than its grant and was killed; `kind` says which."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(kw_only=True)
class RunnerProcess:
    """One runner: ask it, then end it. Nothing here trusts its answers."""

    reap: Callable[[int], tuple[int, int]]
    """Collects the dead process with this id (raises InfraError). Returns its exit status, or minus its signal, and its
    largest memory in MB beyond what it began with."""
    exit_s: float
    """Seconds of own time that its exit may take."""
    pid: int
    pidfd: int
    channel: Channel
    output_fd: int
    seals: SealReader
    options: GymOptions
    scratch: str
    memory_bytes: int
    arena_fd: int = -1
    """Descriptor of memory that passes tensors to an executing process; it does not count as the candidate's memory."""
    output: bytearray = field(default_factory=bytearray)
    """What it printed, up to `_KEPT_OUTPUT` bytes."""
    was_killed: bool = False
    """Whether `end` had to kill it."""
    grown_mb: int = 0
    """Its largest memory in MB, without what it shared with the zygote at first; known once it is collected."""
    _code: int = 0
    _printed: int = 0
    _inherited_kb: int = 0
    """Memory shared with the zygote, at the first look; what is added later is the candidate's."""
    _next_look: float = 0.0

    def __post_init__(self) -> None:
        self._own_time = OwnTime(self.pid, is_asked=True)
        self._making: Waits | None = None

    def serve(self, executing: Waits, making: Waits) -> None:
        """Exclude waits for a process that runs this one's kernels.

        Args:
            executing: that process's waits for a processor; they do not count as sleep of the runner.
            making: how long code of its kernels was made; neither own time nor the wall clock counts it.
        """
        self._own_time.serve(executing, making)
        self._making = making

    def ask(self, request: Request | None, budget_s: float) -> Claims:
        """Send a request and wait for the answer, for `budget_s` seconds of the runner's own time.

        Raises:
            RunnerDied: the runner or its channel ended before the answer.
            TimeoutError: the budget or its wall-clock limit is used up; the message says which.
            GrantExceeded: the runner used more memory or disk than its grant and was killed.
            ProtocolError: the answer is not a message.
        """
        self._own_time.start()
        deadline = self._clock() + backstop_s(budget_s)
        try:
            # A runner that never reads would block the judge in `send`.
            self.channel.sock.settimeout(backstop_s(budget_s))
            if request is not None:
                self.channel.send(request)
            while (answer := self._step(budget_s, deadline)) is None:
                pass
        except ChannelClosed:
            raise RunnerDied(self.end(grace_s=0.2)) from None  # check: runner-answers
        if not self._inherited_kb:  # the first answer came before the first look
            self._look_at_memory()
        self._look_at_disk()
        return answer

    def tell(self, message: Begin | JudgeOptions) -> None:
        """Send a message that has no answer (raises RunnerDied)."""
        try:
            self.channel.send(message)
        except ChannelClosed:
            raise RunnerDied(self.end(grace_s=0.2)) from None  # check: runner-listens

    @property
    def used_s(self) -> float:
        """Seconds of its own time since the last request."""
        return self._own_time.used_s()

    def finish(self) -> int:
        """Let the runner exit by itself and collect it; return its exit status, or minus its signal."""
        with suppress(ChannelClosed):
            self.channel.send(Exit(exit=True))
        return self.end(self.exit_s)

    def end(self, grace_s: float = 0.0) -> int:
        """Wait `grace_s` of own time for its exit, kill its process group and collect it (idempotent)."""
        if self.pidfd < 0:
            return self._code
        self._own_time.start()
        deadline = time.monotonic() + backstop_s(grace_s)
        while grace_s and time.monotonic() < deadline and not self._own_time.is_over(grace_s):
            if self._ready(min(_WATCH_S, grace_s), self.pidfd):
                break
        # A pidfd is readable once the process has ended; later kills then hit only what it left behind.
        self.was_killed = not select.select([self.pidfd], [], [], 0)[0]
        self.kill()
        self._close()
        self._collect()
        return self._code

    def kill(self) -> None:
        """Kill its process group without waiting, unless it has been collected."""
        if not self.alive:
            return
        # By pidfd first: the id of a process that has been collected may belong to another one.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may have died before it had a group
            os.killpg(self.pid, signal.SIGKILL)

    def processor_ns(self) -> int:
        """Return the processor time of all its threads, as Linux counts it."""
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
            raise ChannelClosed("the runner has ended")  # check: runner-has-not-ended
        if time.monotonic() >= self._next_look:  # even while an answer comes byte by byte
            self._next_look = time.monotonic() + _WATCH_S
            self._look_at_memory()
            self._look_at_disk()
            self._look_at_time(budget_s, deadline)
        return None

    def _look_at_time(self, budget_s: float, deadline: float) -> None:
        if self._own_time.is_over(budget_s):
            raise TimeoutError("processor time and sleep")  # check: own-time-is-left
        if self._clock() >= deadline:
            # check: wall-clock-time-is-left
            raise TimeoutError("processor time, by ten times that and 30 s on the wall clock")

    def _clock(self) -> float:
        """Return the wall clock in seconds; it stands still while code is made."""
        return time.monotonic() - (0 if self._making is None else self._making.waited_ns() / 1e9)

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
        raise GrantExceeded(kind, f"the process {text}")  # check: grant-is-kept

    def _grown_kb(self) -> int:
        """Return its own memory: private pages, and shared pages that the judge does not share with it."""
        match = None
        with suppress(OSError):  # it has ended
            match = _MEMORY.search(Path(f"/proc/{self.pid}/status").read_bytes())
        if match is None:
            return 0
        # The arena's pages are the judge's grant for tensors, not the candidate's own memory.
        handed_over = os.fstat(self.arena_fd).st_blocks // 2 if self.arena_fd >= 0 else 0
        kilobytes = int(match[1]) + max(0, int(match[2]) - (self.memory_bytes >> 10) - handed_over)
        self._inherited_kb = self._inherited_kb or kilobytes
        return kilobytes - self._inherited_kb

    def _ready(self, wait_s: float, *fds: int) -> list[int]:
        # Output and seals are read all along: a runner that fills a pipe would stop there. A judge that woke for each
        # event's seal would do little else; sixteen thousand of them fit into the pipe.
        watched = [*fds, *([self.output_fd] if self.output_fd >= 0 else [])]
        ready = select.select(watched, [], [], wait_s)[0]
        if self.seals.fd >= 0:
            self.seals.drain()
        if self.output_fd in ready:
            self._drain()
        return [fd for fd in ready if fd in fds]

    def _drain(self) -> None:
        data = os.read(self.output_fd, 1 << 16)
        self._printed += len(data)
        # The rest counts as disk and is dropped: a candidate must not fill the judge's memory by printing.
        self.output += data[: max(0, _KEPT_OUTPUT - len(self.output))]
        if not data:
            os.close(self.output_fd)
            self.output_fd = -1

    def _collect(self) -> None:
        try:
            self._code, self.grown_mb = self.reap(self.pid)
        except InfraError:
            if not self.was_killed:
                raise
            self._code = -signal.SIGKILL  # the verdict is the reason of the kill, not its exit status

    def _close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)
        self._own_time.close()
        self.seals.close()
        for fd in (self.output_fd, self.arena_fd):
            if fd >= 0:
                os.close(fd)
        self.pidfd = self.output_fd = self.arena_fd = -1
