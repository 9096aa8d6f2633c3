# SPDX-License-Identifier: Apache-2.0
"""The owner's handle on jailed judges, one for each task, for references that are not trusted.

A reference runs in its judge's process, so that process, its zygotes and its runners may all do what the reference
wants. They are jailed as candidates are, in namespaces and with a user of their own where the machine grants these, and
know one task. The owner reads nothing of them but messages of bounded length: a verdict or an error about that task.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.ipc.channel import ProtocolError
from verl_kernel.env.ipc.messages import Claims, JudgeOptions, TaskRequest
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess
from verl_kernel.env.judge.processes.zygote import ForkServer, cache_folder
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.limits import REFERENCE_HUNG, START_S, evaluation_limit_s
from verl_kernel.env.pool.scheduling.judges import TaskJudgeFailed
from verl_kernel.env.pool.temp_dir import LockedTempDir
from verl_kernel.env.reference.defects.findings import Audit
from verl_kernel.env.request import AuditRequest, EvalRequest
from verl_kernel.env.result import EvalResult
from verl_kernel.env.sandbox import landlock, namespaces, scratch
from verl_kernel.env.task import Task, slow_reference
from verl_kernel.errors import EnvironmentNotReady, InfraError, TaskError, VerlKernelError

DISK_MB = 1024
"""Space for the files of a task's judge, its candidates' and its compilers' among them."""
_KEPT = 2
"""Judges that stay after their evaluation, for further candidates of the same task."""
_NEEDED = ("death_signal", "no_dump", "no_new_privs", "landlock", "no_capabilities", "seccomp")
"""Mechanisms without which a reference could reach what is not its own."""
_SIGNALS_ABI = 6
"""Level of Landlock that limits signals."""
_LONGEST = 2000
"""Most characters of an error that a judge reports."""
_ROUNDING = 1e-6
"""How far a share of the work may lie outside of 0 to 1."""
_KINDS: dict[str, type[VerlKernelError]] = {
    kind.__name__: kind for kind in (TaskError, InfraError, EnvironmentNotReady)
}
"""Errors that a judge may report."""


class TaskJudges:
    """Judges tasks one at a time, each in a jailed process of its own; has the methods of `JudgeProcess`."""

    def __init__(self, options: GymOptions, seed: int | None = None) -> None:
        self._options, self._seed = options, seed
        self._server: ForkServer | None = None
        self._temp_dir: LockedTempDir | None = None
        self._judges: OrderedDict[str, _TaskJudge] = OrderedDict()
        self._spare: _TaskJudge | None = None
        self._closed, self._isolation = False, ""
        self.model = ""
        """GPU model that its times refer to; known once the first judge has started."""

    @property
    def pid(self) -> int | None:
        """Process id of what forks the judges; None while it does not run."""
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Start the process that forks judges, and a first judge, unless they run.

        Raises:
            EnvironmentNotReady: this machine lacks something that the options or a jail require.
            InfraError: the process does not start.
        """
        if self._closed:
            raise InfraError("the judge has been closed")
        if self._options.device != "cpu" and resolve_device(self._options.device).name != "cpu":
            raise EnvironmentNotReady(
                "kernelgym.references is 'jailed', and kernels run on a GPU, whose driver the jail of a judge keeps "
                "out: judge tasks that you trust, with kernelgym.references=trusted (--references trusted)"
            )
        if self._server is None:
            self._temp_dir = folder = LockedTempDir()
            program = "verl_kernel.env.pool.task_judge"
            self._server = ForkServer(program, str(cache_folder()), lambda: {"TMPDIR": folder.path}, 0.0)
        if not self._server.is_running:  # what it forked has ended with it
            self._drop()
        if self._spare is None:
            self._spare = self._begun()
        if not self.model:
            self.model, self._isolation = self._spare.ready()

    def judge(self, request: EvalRequest) -> EvalResult:
        """Judge one candidate.

        Raises:
            TaskError: the reference is unusable, or exceeds its time limit.
            TaskJudgeFailed: its judge died, does not answer, or says what no judge says.
            InfraError: as in `JudgeProcess.judge`.
        """
        candidate = {
            "source": request.source,
            "kernel": request.kernel,
            "validate": request.validate,
            "step": request.step,
        }
        answer = self._ask_judge(request.task, candidate)
        with _readable(request.task):
            result = EvalResult.model_validate_json(answer)
            # Without what JSON has no number for: a reward must be finite.
            result = EvalResult.model_validate_json(result.model_dump_json())
            if not all(_is_share(share) for share in (result.time_coverage, result.number_coverage)):
                raise ValueError("a share lies between 0 and 1")
        task = request.task
        return result.model_copy(
            update={
                "task_id": task.task_id,
                "task_hash": result.task_hash and task.text_hash,
                "kernel": request.kernel,
                "env": {**result.env, "reference_isolation": self._isolation},
            }
        )

    def audit(self, task: Task) -> Audit:
        """Search a task for defects.

        Raises:
            TaskError: as in `judge`; also `TaskJudgeFailed` and `InfraError`.
        """
        answer = self._ask_judge(task, None)
        with _readable(task):
            result = Audit.model_validate_json(answer)
        return result.model_copy(update={"task_id": task.task_id, "task_hash": task.text_hash})

    def close(self) -> None:
        """End all judges; none can be started again."""
        self._closed = True
        self._drop()
        if self._server is not None:
            self._server.close()
        if self._temp_dir is not None:
            self._temp_dir.close()

    def _drop(self) -> None:
        for judge in (*self._judges.values(), *([self._spare] if self._spare else [])):
            judge.end()
        self._judges.clear()
        self._spare = None

    def _begun(self) -> _TaskJudge:
        assert self._server is not None and self._temp_dir is not None
        return _TaskJudge(self._server, self._temp_dir.path, self._options)

    def _ask_judge(self, task: Task, candidate: dict[str, Any] | None) -> str:
        """Ask a task's judge; return its answer, in JSON."""
        self.start()
        judge = self._judges.pop(task.cache_key, None) or self._fresh()
        text = task.reference, task.task_id, task.entry_point, task.namespace
        request = TaskRequest(task=text, seed=_seed(self._seed, task), judge=candidate)
        try:
            limit_s = evaluation_limit_s(self._options, len(task.workloads))
            answer = _answer(task, judge.ask(request, task, limit_s))
        except BaseException:  # a judge whose task is not fit has no use either, and its reference may have left much
            judge.end()
            raise
        self._judges[task.cache_key] = judge
        while len(self._judges) > _KEPT:
            self._judges.popitem(last=False)[1].end()
        return answer

    def _fresh(self) -> _TaskJudge:
        """Return a judge that knows no task yet."""
        spare, self._spare = self._spare, None
        judge = spare or self._begun()
        judge.ready()
        self._spare = self._begun()  # it gets ready while this one judges
        return judge


class _TaskJudge:
    """One jailed judge.

    Args:
        server: forks it.
        folder: in which its own folder is made.
        options: how it judges.
    """

    def __init__(self, server: ForkServer, folder: str, options: GymOptions) -> None:
        self._path = tempfile.mkdtemp(prefix="task_", dir=folder)
        inside = replace(
            options,
            references="trusted",
            device="cpu",
            num_judges=1,
            judge_resources=(),
            address=None,
            address_key=None,
        )
        with closing(SharedMemory.create(1)) as memory:
            self._process: RunnerProcess = server.fork(self._path, memory, replace(options, disk_mb=DISK_MB))
        self._process.tell(JudgeOptions(options=asdict(inside)))
        self._introduction: tuple[str, str] | None = None

    def ready(self) -> tuple[str, str]:
        """Wait until it can be asked; return the GPU model that its times refer to, and the mechanisms of its jail.

        Raises:
            EnvironmentNotReady: the machine cannot jail it.
            InfraError: it did not start.
        """
        if (introduction := self._introduction) is None:
            try:
                # It has run nothing of a task yet, so both answers are those of our own code.
                in_force = str(self._process.ask(None, START_S)["isolation"])
                _refuse_weak(in_force.split())
                self._introduction = introduction = str(self._process.ask(None, START_S)["model"]), in_force
            except _FAILURES as exc:
                self.end()
                raise InfraError(f"a task's judge did not start: {_words(self._process, exc)}") from None
            except EnvironmentNotReady:
                self.end()
                raise
        return introduction

    def ask(self, request: TaskRequest, task: Task, limit_s: float) -> Claims:
        """Send a request and wait for the answer.

        Raises:
            TaskError: the request is too long, or the reference exceeds its time limit.
            TaskJudgeFailed: there is no answer.
        """
        try:
            return self._process.ask(request, limit_s)
        except RunnerDied as died:
            if died.code == REFERENCE_HUNG:
                raise slow_reference(task, self._process.options.reference_timeout_s) from None
            raise TaskJudgeFailed(f"the judge of task {task.task_id} ended with status {died.code}") from None
        except ProtocolError as exc:
            raise TaskJudgeFailed(f"the judge of task {task.task_id} sent what no judge sends: {exc}") from None
        except (TimeoutError, GrantExceeded) as exc:
            raise TaskJudgeFailed(f"the judge of task {task.task_id} was ended: {exc}") from None

    def end(self) -> None:
        """End all its processes and remove its folder (idempotent)."""
        with suppress(InfraError):
            self._process.end()
        scratch.remove(self._path)


_FAILURES = (RunnerDied, GrantExceeded, TimeoutError, ProtocolError)


def _words(process: RunnerProcess, exc: Exception) -> str:
    last = process.output[-500:].decode(errors="replace").strip().rpartition("\n")[2]
    return last or f"{type(exc).__name__} {exc}"


def _refuse_weak(in_force: list[str]) -> None:
    """Refuse a jail through which a reference could reach what is not its own (raises EnvironmentNotReady)."""
    missing = [name for name in _NEEDED if name not in in_force]
    if namespaces.NAME not in in_force and landlock.abi() < _SIGNALS_ABI:
        missing.append(namespaces.NAME)
    if missing:
        raise EnvironmentNotReady(
            f"kernelgym.references is 'jailed', and this machine offers no {' and no '.join(missing)}: use a kernel "
            "that does, or judge tasks that you trust, with kernelgym.references=trusted (--references trusted)"
        )


def _seed(seed: int | None, task: Task) -> int | None:
    """Return a task's own seed, from which that of no other task follows."""
    if seed is None:
        return None
    return int.from_bytes(hashlib.sha256(f"{seed}\0{task.cache_key}".encode()).digest()[:6], "big")


def _answer(task: Task, reply: Claims) -> str:
    """Return what a judge answers, or raise what it reports."""
    text = reply.get("answer")
    if isinstance(text, str):
        return text
    kind, message = reply.get("kind"), reply.get("message")
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(message, str):
        raise TaskJudgeFailed(f"the judge of task {task.task_id} sent what no judge sends")
    message = message[:_LONGEST].encode(errors="replace").decode()
    raise TaskJudgeFailed(message) if kind == InfraError.__name__ else _KINDS[kind](message)


@contextmanager
def _readable(task: Task) -> Iterator[None]:
    try:
        yield
    except (ValidationError, ValueError, RecursionError) as exc:
        reason = type(exc).__name__
        raise TaskJudgeFailed(f"the judge of task {task.task_id} sent what no judge sends: {reason}") from None


def _is_share(value: float | None) -> bool:
    return value is None or -_ROUNDING <= value <= 1 + _ROUNDING  # sums of shares are rounded


def request_from_json(message: TaskRequest) -> EvalRequest | AuditRequest:
    """Read what `TaskJudges` sends."""
    reference, task_id, entry_point, namespace = message["task"]
    task = Task(reference, task_id, entry_point, namespace=namespace)
    return AuditRequest(task) if message["judge"] is None else EvalRequest(task, **message["judge"])


def answer_as_json(outcome: object) -> dict[str, str]:
    """Return a message that `TaskJudges` reads."""
    if isinstance(outcome, EvalResult | Audit):
        return {"answer": outcome.model_dump_json()}
    kinds = [name for name, kind in _KINDS.items() if isinstance(outcome, kind)]
    return {"kind": kinds[0] if kinds else InfraError.__name__, "message": str(outcome)[:_LONGEST]}
