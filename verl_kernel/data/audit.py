# SPDX-License-Identifier: Apache-2.0
"""Audits tasks in processes of judges; results of an earlier run are reused.

References are other people's code: none runs in this process, and one that hangs or crashes costs a judge, not the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue

from pydantic import ValidationError

from verl_kernel.data.files import check_file, writing_folder
from verl_kernel.data.task_list import Listed
from verl_kernel.env import Audit, GymOptions, JudgeProcess
from verl_kernel.errors import DataError, InfraError, TaskError

SEED = 0
"""Seed of the judges: the sizes of reduced copies are the same in every audit."""
Known = Mapping[str, Audit]
"""Maps the hash of a task's text to its audit."""


class AuditFile:
    """Stores audits as JSON lines, each as soon as it is made.

    Args:
        path: file, perhaps of an earlier run; its last line may be incomplete.

    Raises:
        DataError: the file holds something else.
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self._path = path
        self.audits: Known = {audit.task_hash: audit for audit in self._read()}
        self._write("w", list(self.audits.values()))

    def add(self, audit: Audit) -> None:
        """Append an audit (raises as `files.writing_folder`)."""
        self._write("a", [audit])

    def _read(self) -> list[Audit]:
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            return [Audit.model_validate_json(line) for line in lines if line.endswith("\n")]
        except (OSError, UnicodeDecodeError, ValidationError) as exc:
            raise DataError(f"{self._path} is no file of audits ({type(exc).__name__}): name another one") from exc

    def _write(self, mode: str, audits: Sequence[Audit]) -> None:
        with writing_folder(self._path.parent), self._path.open(mode, encoding="utf-8") as file:
            file.writelines(f"{audit.model_dump_json()}\n" for audit in audits)


def audit_tasks(tasks: Sequence[Listed], earlier_audits: Known, options: GymOptions) -> Iterator[tuple[Audit, bool]]:
    """Yield audits in the order of tasks, each with whether it may be stored: a failure of the gym may not.

    Args:
        tasks: tasks to audit.
        earlier_audits: earlier audits.
        options: options of the judges, and their number.

    Raises:
        EnvironmentNotReady: this machine cannot judge.
    """
    idle: SimpleQueue[JudgeProcess] = SimpleQueue()
    with ExitStack() as stack:
        # The first context entered is left last: threads end when the judges that they wait for have been closed.
        threads = stack.enter_context(ThreadPoolExecutor(options.num_judges))
        for _ in range(options.num_judges):
            idle.put(stack.enter_context(closing(JudgeProcess(options, SEED))))
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        yield from threads.map(lambda item: _audit(item, earlier_audits, idle), tasks)


def _audit(item: Listed, earlier_audits: Known, idle: SimpleQueue[JudgeProcess]) -> tuple[Audit, bool]:
    if item.task is None:
        return Audit(task_id=item.name, task_hash="", unfit=item.reason), False
    if (earlier := earlier_audits.get(item.task.text_hash)) is not None:
        return earlier.model_copy(update={"task_id": item.name}), False
    judge = idle.get()
    try:
        return judge.audit(item.task), True
    except TaskError as exc:
        return Audit(task_id=item.name, task_hash=item.task.text_hash, unfit=_one_line(exc)), True
    except InfraError as exc:
        unfit = f"the judge failed: {_one_line(exc)}"
        return Audit(task_id=item.name, task_hash=item.task.text_hash, unfit=unfit), False
    finally:
        idle.put(judge)


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())
