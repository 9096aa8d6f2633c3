# SPDX-License-Identifier: Apache-2.0
"""The judge's handle on the process that compiles references with `torch.compile` (`verl_kernel.env.inductor.process`).

The process loads torch's compiler, which takes longer than most references, and forks once for each reference. So a
reference that hangs or crashes ends its own process only.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from verl_kernel.env.ipc.channel import Channel, ChannelClosed, ProtocolError
from verl_kernel.env.judge.processes.own_time import OwnTime, backstop_s
from verl_kernel.env.judge.processes.server_process import ServerProcess
from verl_kernel.env.task import Task
from verl_kernel.errors import EnvironmentNotReady, InfraError

MEMORY_MB = 8192
"""Memory that a process may take; torch's compiler alone takes a tenth of it."""
_START_S = 300.0
"""Longest start of the process, which imports torch's compiler."""
_LOOK_S = 0.05
"""Seconds between two looks at the time that a compilation has taken."""


class NotCompiled(Exception):
    """A reference has no compiled form; the message says why."""


@dataclass(frozen=True)
class InductorProgram:
    """What a compiled reference runs."""

    source: str
    """In the form of a candidate."""
    graphs: int
    """Number of compiled graphs, each of which costs the host time."""


class Inductor:
    """Compiles references; its process starts with the first one."""

    def __init__(self) -> None:
        self._process: ServerProcess | None = None

    def program(self, task: Task, float32: str, limit_s: float) -> InductorProgram:
        """Compile a reference in a process of its own.

        Args:
            task: the reference.
            float32: `kernelgym.float32`, on which the choice of kernels depends.
            limit_s: own time of the process, in seconds.

        Raises:
            NotCompiled: the reference cannot be compiled, or not within the limits.
            EnvironmentNotReady: the installed torch has another compiler than this package knows.
            InfraError: the process does not answer.
        """
        # By files: a program may be longer than a message, and is written by one process and read by one.
        with tempfile.TemporaryDirectory() as folder:
            request = {"reference": task.reference, "task_id": task.task_id, "entry_point": task.entry_point}
            Path(folder, "task.json").write_text(
                json.dumps({**request, "float32": float32, "memory_mb": MEMORY_MB}), encoding="utf-8"
            )
            code = self._run(folder, limit_s)
            if code is None:
                raise NotCompiled(f"torch.compile takes longer than kernelgym.reference_timeout_s = {limit_s:g} s")
            if code:
                raise NotCompiled(f"torch.compile, which may use {MEMORY_MB} MB, ended with status {code}")
            answer = json.loads(Path(folder, "answer.json").read_text(encoding="utf-8"))
        if "refused" in answer:
            raise NotCompiled(answer["refused"])
        return InductorProgram(answer["program"], answer["graphs"])

    def close(self) -> None:
        """End the process (idempotent); the next reference starts another one."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _run(self, folder: str, limit_s: float) -> int | None:
        """Have a process compile what a folder holds; returns its exit status, or None if it took too long."""
        try:
            channel = self._started()
            channel.send({"folder": folder})
            pid = channel.recv(_START_S)["pid"]
            with closing(OwnTime(pid)) as own_time:
                return self._waited(channel, pid, own_time, limit_s)
        except (ChannelClosed, ProtocolError, TimeoutError) as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: Exception) -> InfraError | EnvironmentNotReady:
        """End the process and return the error; its last words are an exception if torch is not what it expects."""
        words = "" if self._process is None else self._process.last_words()
        self.close()
        if words.startswith(("ImportError", "ModuleNotFoundError", "AttributeError")):
            return EnvironmentNotReady(
                f"torch {version('torch')} has a compiler that cannot be used without a GPU here ({words}): set "
                "kernelgym.reference_mode to eager"
            )
        return InfraError(f"the process of torch.compile does not answer: {words or exc}")

    def _waited(self, channel: Channel, pid: int, own_time: OwnTime, limit_s: float) -> int | None:
        deadline, is_late = time.monotonic() + backstop_s(limit_s), False
        while True:
            with suppress(TimeoutError):
                status: int = channel.recv(_LOOK_S)["status"]
                return None if is_late else status
            if not is_late and (own_time.is_over(limit_s) or time.monotonic() >= deadline):
                # Its parent kills it, and then sends its status: so the channel stays in step.
                is_late = True
                channel.send({"kill": pid})

    def _started(self) -> Channel:
        if self._process is None or self._process.child.poll() is not None:
            self.close()
            self._process = ServerProcess.start("verl_kernel.env.inductor.process", variables={})
        return self._process.channel
