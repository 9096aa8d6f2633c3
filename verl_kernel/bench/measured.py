# SPDX-License-Identifier: Apache-2.0
"""Kernels with times that a GPU measured, and how far the simulated clock is from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_kernel.data.files import reading
from verl_kernel.data.source_files import read_source
from verl_kernel.env import EvalResult, EvalStatus, Task
from verl_kernel.errors import DataError, InfraError, TaskError
from verl_kernel.figures.agreement import PredictedOrder, TimeAgreement

if TYPE_CHECKING:
    from verl_kernel.env import LocalPool

TIMES, REFERENCE = "measured.json", "reference.py"
COLUMNS = ("reference", "kernel", "milliseconds")
"""Columns of a parquet file: two programs, and the measured time of the second."""


@dataclass(frozen=True)
class MeasuredKernel:
    """A kernel and the milliseconds of one forward that a GPU took."""

    task: Task
    name: str
    source: str
    ms: float


@dataclass(frozen=True)
class ComparedKernel:
    """A kernel's predicted time beside its measured one."""

    task: str
    name: str
    bound: str
    """What its longest launch spends its time on, as a profile says it."""
    predicted_ms: float
    measured_ms: float
    interval: tuple[float, float] | None
    """Interval in milliseconds that should hold nine of ten measured times."""

    @property
    def is_held(self) -> bool:
        """Whether the interval holds the measured time."""
        return self.interval is not None and self.interval[0] <= self.measured_ms <= self.interval[1]


def read_measured(path: Path) -> list[MeasuredKernel]:
    """Read kernels with their measured times.

    Args:
        path: a folder that holds `reference.py`, kernels, and `measured.json` with milliseconds by file name; a folder
            of such folders; or a parquet file with the columns `COLUMNS`.

    Raises:
        DataError: a file is missing or cannot be read, or a time is no positive number.
    """
    if path.is_file():
        return _of_parquet(path)
    folders = [path] if (path / TIMES).exists() else sorted(file.parent for file in path.glob(f"*/{TIMES}"))
    if not folders:
        raise DataError(
            f"{path} holds no {TIMES}: name a folder with {REFERENCE}, kernels, and {TIMES} with their milliseconds by "
            f"file name, a folder of such folders, or a parquet file with the columns {', '.join(COLUMNS)}"
        )
    return [kernel for folder in folders for kernel in _of_folder(folder)]


def _of_folder(folder: Path) -> Iterator[MeasuredKernel]:
    try:
        times = json.loads(read_source(folder / TIMES))
    except json.JSONDecodeError as exc:
        raise DataError(f"{folder / TIMES} is no JSON ({exc}): write milliseconds by file name") from None
    if not isinstance(times, dict) or not times:
        raise DataError(f"{folder / TIMES} holds no times: write milliseconds by file name")
    task = _task(read_source(folder / REFERENCE), folder.name, str(folder / REFERENCE))
    for name, ms in times.items():
        yield MeasuredKernel(task, name, read_source(folder / name), _time(ms, f"{folder / TIMES}, {name}"))


def _of_parquet(path: Path) -> list[MeasuredKernel]:
    import pyarrow.parquet as pq  # slow to import, and no folder needs it

    with reading(path):
        missing = [name for name in COLUMNS if name not in pq.read_schema(path).names]
        if missing:
            raise DataError(f"{path} has no column {missing[0]!r}: it must have the columns {', '.join(COLUMNS)}")
        rows = pq.read_table(path, columns=list(COLUMNS)).to_pylist()
    return [_of_row(row, f"{path}, row {number}", number) for number, row in enumerate(rows)]


def _of_row(row: Mapping[str, Any], where: str, number: int) -> MeasuredKernel:
    reference, kernel = row["reference"], row["kernel"]
    if not isinstance(reference, str) or not isinstance(kernel, str):
        raise DataError(f"{where}: reference and kernel must be the texts of programs")
    return MeasuredKernel(_task(reference, "", where), f"row {number}", kernel, _time(row["milliseconds"], where))


def _task(reference: str, task_id: str, where: str) -> Task:
    try:
        return Task(reference, task_id=task_id)
    except TaskError as exc:
        raise DataError(f"{where}: {exc}: mend that reference, or leave it out") from exc


def _time(value: Any, where: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value) or value <= 0:
        raise DataError(f"{where}: the time is {value!r}; it must be a positive number of milliseconds")
    return float(value)


def judged(pool: LocalPool, kernels: Sequence[MeasuredKernel], together: int) -> Iterator[ComparedKernel | str]:
    """Judge kernels, so many at a time, and yield what `compared` says of each.

    A task that cannot be judged has a sentence too, and the others are judged.
    """
    for start in range(0, len(kernels), together):
        part = kernels[start : start + together]
        try:
            results = pool.evaluate_many([(kernel.task, kernel.source, kernel.name) for kernel in part])
        except TaskError as exc:
            if len(part) == 1:
                yield str(exc)
            else:  # which of them it was, each alone says
                yield from judged(pool, part, together=1)
        else:
            yield from map(compared, part, results)


def compared(kernel: MeasuredKernel, result: EvalResult) -> ComparedKernel | str:
    """Return a kernel's times, or in a sentence why it has no predicted one.

    Raises:
        InfraError: the gym itself failed, which says nothing about the kernel.
    """
    error = f": {result.error.message}" if result.error else ""
    if result.status is EvalStatus.INFRA_ERROR:
        raise InfraError(f"{kernel.name} was not judged{error}")
    if result.status is not EvalStatus.OK:
        return f"{result.status.value}{error}"
    if result.kernel_ms is None:
        return f"no time: {result.true_size.unknown if result.true_size else ', '.join(result.unpriced_ops)}"
    launches = result.profile.launches if result.profile else ()
    longest = max(launches, key=lambda launch: launch.count * launch.ms, default=None)
    return ComparedKernel(
        task=kernel.task.task_id,
        name=kernel.name,
        bound="torch" if longest is None else longest.bound,
        predicted_ms=result.kernel_ms.median,
        measured_ms=kernel.ms,
        interval=result.kernel_interval_ms,
    )


@dataclass(frozen=True)
class ClockFigures:
    """How far predicted times of some kernels are from measured ones."""

    agreement: TimeAgreement
    order: PredictedOrder
    coverage: float
    """Share of measured times within the stated intervals."""

    @classmethod
    def of(cls, kernels: Sequence[ComparedKernel]) -> ClockFigures:
        """Compare at least one kernel."""
        tasks: dict[str, list[tuple[float, float]]] = {}
        for kernel in kernels:
            tasks.setdefault(kernel.task, []).append((kernel.predicted_ms, kernel.measured_ms))
        return cls(
            agreement=TimeAgreement.of([pair for pairs in tasks.values() for pair in pairs]),
            order=PredictedOrder.of(tasks.values()),
            coverage=sum(kernel.is_held for kernel in kernels) / len(kernels),
        )


def by_bound(kernels: Iterable[ComparedKernel]) -> dict[str, list[ComparedKernel]]:
    """Group kernels by what bounds them."""
    groups: dict[str, list[ComparedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.bound, []).append(kernel)
    return dict(sorted(groups.items()))
