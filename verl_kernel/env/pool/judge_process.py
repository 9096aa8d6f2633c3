# SPDX-License-Identifier: Apache-2.0
"""The owner's handle on a judge process (`verl_kernel.env.pool.judge_worker` runs in that process)."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from verl_kernel.env.ipc import channel as channels
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.limits import REFERENCE_HUNG, START_S, evaluation_limit_s
from verl_kernel.env.pool.temp_dir import LockedTempDir
from verl_kernel.env.reference.defects.findings import Audit
from verl_kernel.env.request import AuditRequest, EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.env.sandbox.child_environment import child_environment
from verl_kernel.env.task import Task, slow_reference
from verl_kernel.errors import InfraError

if TYPE_CHECKING:
    from verl_kernel.env.pool.task_judges import TaskJudges


class JudgeProcess:
    """A judge process, started when first needed and restarted after it dies; not for concurrent callers."""

    def __init__(self, options: GymOptions, seed: int | None = None) -> None:
        self._options, self._seed = options, seed
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._temp_dir: LockedTempDir | None = None
        self._closed = False
        self.model = ""
        """GPU model that its times refer to; known once the judge has started."""

    @property
    def pid(self) -> int | None:
        """Process id; None while the process does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process unless it is running; takes about four seconds.

        Raises:
            EnvironmentNotReady: this machine lacks something that the options require.
            InfraError: the process does not start.
        """
        if self._connection is not None:
            return
        if self._closed:
            raise InfraError("the judge has been closed")
        self._temp_dir = LockedTempDir()
        ours, theirs = channels.pair()
        program = ["-m", "verl_kernel.env.pool.judge_worker"]
        command = [sys.executable, *program, str(theirs.fileno()), self._options.device]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env={**child_environment(), "TMPDIR": self._temp_dir.path},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self.model = self._ask((self._options, self._seed), START_S)

    def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate.

        Raises:
            TaskError: the reference is unusable, or exceeds its time limit.
            InfraError: the judge died or does not answer.
        """
        result: EvalResult = self._served(request)
        return result

    def audit(self, task: Task) -> Audit:
        """Search a task for defects.

        Raises:
            TaskError: as in `judge`.
            InfraError: as in `judge`.
        """
        result: Audit = self._served(AuditRequest(task))
        return result

    def _served(self, request: EvalRequest | AuditRequest) -> Any:
        options = self._options
        self.start()
        try:
            return self._ask(request, evaluation_limit_s(options, len(request.task.workloads)))
        except _JudgeDied as died:
            if died.code == REFERENCE_HUNG:
                raise slow_reference(request.task, options.reference_timeout_s) from None
            raise InfraError(str(died)) from None  # the base class: `_JudgeDied` does not survive pickling

    def close(self) -> None:
        """End the process, its zygote and its runner; the judge cannot be started again."""
        self._closed = True
        self._end()

    def _ask(self, message: object, timeout_s: float) -> Any:
        connection = self._connection
        if connection is None:
            raise InfraError("the judge process is not running")
        try:
            connection.send(message)
            if not connection.poll(timeout_s):
                raise InfraError(f"a judge process did not answer within {timeout_s:g} s")
            answer = connection.recv()
        except (EOFError, OSError) as exc:
            raise _JudgeDied(self._end()) from exc
        except InfraError:
            self._end()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _end(self) -> int:
        process, self._process, connection, self._connection = self._process, None, self._connection, None
        if process is None:
            return 0
        try:
            # A judge that has ended by itself gets time to do so: its exit status says why (`REFERENCE_HUNG`).
            process.wait(0.5 if connection is not None and not self._closed else 0)
        except subprocess.TimeoutExpired:
            process.kill()
        if connection is not None and not connection.closed:
            connection.close()
        code = process.wait()
        if self._temp_dir is not None:
            self._temp_dir.close()
        return code


class _JudgeDied(InfraError):
    """The judge process has ended; `code` is its exit status, or minus the signal that ended it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a judge process ended with status {code}")
        self.code = code


def make_judge(options: GymOptions, seed: int | None) -> JudgeProcess | TaskJudges:
    """Make what judges in processes of its own, as `kernelgym.references` says."""
    if options.references == "trusted":
        return JudgeProcess(options, seed)
    from verl_kernel.env.pool.task_judges import TaskJudges  # imports torch

    return TaskJudges(options, seed)
