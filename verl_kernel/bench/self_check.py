# SPDX-License-Identifier: Apache-2.0
"""Checks that a suite can be judged: each reference, used as the candidate, must be correct and as fast as itself.

The candidate is the reference's text with its class renamed. It has no kernels, so the checks that need kernels are
off: no static gate, no ablation, no compiling, no memory checks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from verl_kernel.bench.store import make_folder, write_whole
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.bench.trajectories import Judges
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Task, is_parity
from verl_kernel.errors import StorageError, TaskError

FILE = "self_check.json"


class CheckedReference(BaseModel):
    """The result for a task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    task_hash: str
    level: int | None = None
    passed: bool
    reason: str = ""
    """Why the check failed."""
    status: str | None = None
    speedup: float | None = None
    task_flags: tuple[str, ...] = ()


class SelfCheck(BaseModel):
    """The result for a suite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    suite_hash: str
    tasks: tuple[CheckedReference, ...]

    @property
    def failures(self) -> tuple[CheckedReference, ...]:
        """Return the tasks that did not pass."""
        return tuple(task for task in self.tasks if not task.passed)


def self_check_options(gym: GymOptions) -> GymOptions:
    """Return options under which a program without kernels can get a verdict."""
    return replace(
        gym,
        static_check="off",
        decoys="record",
        ablation=False,
        compile_for="off",
        memory_checks="off",
        prefilter="off",
    )


def as_candidate(task: Task) -> str:
    """Return the reference's text as a candidate."""
    return re.sub(rf"\b{re.escape(task.entry_point)}\b", task.candidate_class, task.reference)


async def check_suite(suite: Suite, judges: Judges, at_once: int, noted: Callable[[bool], None]) -> SelfCheck:
    """Judge every reference against itself, `at_once` of them at a time."""
    judging = asyncio.Semaphore(at_once)

    async def checked(item: SuiteItem) -> CheckedReference:
        async with judging:
            outcome = await _checked(item, judges)
        noted(outcome.passed)
        return outcome

    outcomes = await asyncio.gather(*map(checked, suite.tasks))
    return SelfCheck(suite=suite.name, suite_hash=suite.hash, tasks=tuple(outcomes))


def write_self_check(check: SelfCheck, folder: Path) -> Path:
    """Write the check into a folder and return the file.

    Raises:
        ConfigError: the folder is a file.
        StorageError: the disk is full, or there is no permission.
    """
    make_folder(folder)
    try:
        write_whole(folder / FILE, check.model_dump_json(indent=1) + "\n")
    except OSError as exc:
        raise StorageError(f"{folder} cannot be written ({exc.strerror}): see to room and permissions") from exc
    return folder / FILE


def summary(check: SelfCheck) -> Sequence[str]:
    """Return lines for a terminal: a line for each failure, and the count."""
    passed, total = len(check.tasks) - len(check.failures), len(check.tasks)
    lines = [f"{task.task_id}: {task.reason}" for task in check.failures]
    return [*lines, f"{check.suite}: {passed} of {total} references are right and as fast as themselves"]


async def _checked(item: SuiteItem, judges: Judges) -> CheckedReference:
    task = item.task
    try:
        result = await judges.evaluate(task, as_candidate(task))
    except TaskError as exc:
        return CheckedReference(
            task_id=task.task_id, task_hash=task.text_hash, level=item.level, passed=False, reason=_one_line(str(exc))
        )
    reason = _fault(result)
    return CheckedReference(
        task_id=task.task_id,
        task_hash=task.text_hash,
        level=item.level,
        passed=not reason,
        reason=_one_line(reason),
        status=result.status.value,
        speedup=result.speedup,
        task_flags=result.task_flags,
    )


def _fault(result: EvalResult) -> str:
    """Return what is wrong with a verdict on a reference; empty if nothing is."""
    if result.status is not EvalStatus.OK or not result.correctness:
        return f"{result.status.value}: {result.error.message if result.error else 'no reason given'}"
    if result.speedup is None:
        unknown = result.true_size.unknown if result.true_size else None
        return f"right, and not timed: {unknown or ', '.join(result.unpriced_ops) or 'no reason given'}"
    return "" if is_parity(result.speedup) else f"right, and {result.speedup:.3f} times as fast as itself"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:400]
