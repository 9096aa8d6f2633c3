# SPDX-License-Identifier: Apache-2.0
"""The best verified kernel of each task, from a bench run or from a training run, and the files that hold them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from verl_kernel.bench.records import HEADER, BenchTurn, RunHeader, read_run
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError
from verl_kernel.figures.attempts import Rank, rank
from verl_kernel.figures.record import FrozenRecord
from verl_kernel.files import replacing
from verl_kernel.reporting.kernels import Kernel, read_kernels, sure_speedup_of

_TITLE = "# A Triton kernel that verl-kernel has verified."
_ORIGIN = "# Where it comes from:"
_LINE = re.compile(r"#   \w+: .*")
Written = Literal["written", "replaced", "kept", "left alone"]
LOG = "kernels.jsonl"
"""File in which a training run keeps its best kernels (`sampler.logs`)."""


class Provenance(FrozenRecord):
    """The origin of a kernel; unknown facts are null."""

    task: str
    task_hash: str | None = None
    """`Task.text_hash`: of the reference's text without comments and white space."""
    run: str
    """Name of the run's folder."""
    model: str | None = None
    speedup: float | None = None
    sure_speedup: float | None = None
    """Lower end of the speedup's interval."""
    time_coverage: float | None = None
    """Share of the time in kernels that compute."""
    timing_source: str | None = None
    """`cuda_event` (measured) or `simulated`."""
    reference_mode: str | None = None
    device: str | None = None
    versions: str | None = None
    sample: str | None = None
    turn: int
    date: str
    """Date of the run."""
    step: int | None = None
    """Step of a training run."""

    @property
    def rank(self) -> Rank:
        """Return the kernel's key among the kernels of its task; the best one has the highest."""
        return rank(self.sure_speedup, self.speedup)

    def comment(self) -> str:
        """Return the facts as a comment block; every value is JSON on a separate line."""
        lines = (f"#   {key}: {json.dumps(value)}" for key, value in self if value is not None)
        return "\n".join([_TITLE, _ORIGIN, *lines, ""])

    @classmethod
    def read(cls, text: str) -> Provenance | None:
        """Read the comment block at the head of a file; None for any other file."""
        title, _, body = text.partition("\n")
        if title != _TITLE:
            return None
        facts: dict[str, Any] = {}
        try:
            for line in takewhile(_LINE.fullmatch, body.split("\n")[1:]):
                key, _, value = line.removeprefix("#   ").partition(": ")
                facts[key] = json.loads(value)
            return cls.model_validate(facts)
        except (json.JSONDecodeError, ValidationError):
            return None


@dataclass(frozen=True)
class KernelFile:
    """The outcome for one kernel."""

    path: Path
    what: Written
    why: str


def write_kernel(folder: Path, provenance: Provenance, code: str) -> KernelFile:
    """Write `<task>.py`, unless the existing file is as good or its quality is unknown.

    Raises:
        DataError: the folder or the file cannot be written.
    """
    try:
        path = _kernel_path(folder, provenance.task)
        what, why = _write(path, provenance, code)
    except OSError as exc:
        name = file_name(provenance.task)
        raise DataError(f"--out {folder}: {name} cannot be written ({exc}): name another folder") from None
    return KernelFile(path, what, why)


def _write(path: Path, provenance: Provenance, code: str) -> tuple[Written, str]:
    try:
        text = f"{provenance.comment()}\n{code.rstrip()}\n".encode()
    except UnicodeEncodeError:
        return "left alone", "its text is no valid Unicode"
    what, why = _decide(_text_of(path), provenance)
    if what in ("written", "replaced"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_bytes(text)
    return what, why


def file_name(task: str, is_taken: bool = False) -> str:
    """Return the task's name with `_` for invalid characters; with a hash where another task has that file."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", task)[:100] or "task"
    return f"{plain}_{hashlib.sha256(task.encode()).hexdigest()[:8]}.py" if is_taken else f"{plain}.py"


def _kernel_path(folder: Path, task: str) -> Path:
    existing = Provenance.read(_text_of(folder / file_name(task)) or "")
    return folder / file_name(task, is_taken=existing is not None and existing.task != task)


def _text_of(path: Path) -> str | None:
    """Return the text of a file; None if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _decide(text: str | None, new: Provenance) -> tuple[Written, str]:
    """Decide what to do about a file with this text, and say why."""
    if text is None:
        return "written", ""
    existing = Provenance.read(text)
    if existing is None:
        return "left alone", "the file there is none of this command's"
    if existing.task_hash != new.task_hash:
        return "left alone", "the file there is for another version of the task"
    if existing.timing_source != new.timing_source:
        return "left alone", f"the speedup there is by another clock ({existing.timing_source})"
    if new.rank > existing.rank:
        return "replaced", f"{_speedup(existing)} before"
    return "kept", f"{_speedup(existing)} there, not less than {_speedup(new)}"


def _speedup(provenance: Provenance) -> str:
    speedup = provenance.speedup if provenance.sure_speedup is None else provenance.sure_speedup
    return "unknown speedup" if speedup is None else f"{speedup:.2f}x"


@dataclass(frozen=True)
class BestKernel:
    """A kernel that may earn a reward, with its origin."""

    provenance: Provenance
    code: str
    order: tuple[int, ...]
    """Key that tells which of two kernels is the earlier one."""


def best_of_run(folder: Path) -> list[BestKernel]:
    """Return the best kernel of each task that has one, sorted by the task's name.

    The best kernel is the verified one with the highest sure speedup, and the earliest among equals. A kernel of
    unknown speedup is chosen only if there is no other.

    Raises:
        DataError: the folder holds neither a bench run nor a training run that logged its kernels.
    """
    if (folder / HEADER).is_file():
        return _best(_of_bench(folder, *read_run(folder)))
    if not (folder / LOG).is_file():
        raise DataError(
            f"{folder} holds neither {HEADER} of a bench nor {LOG} of a training run: name a run's folder (a training "
            "run writes the file where trainer.v1.sampler.sampler_kwargs.best_kernels names it)"
        )
    date = datetime.fromtimestamp((folder / LOG).stat().st_mtime, timezone.utc)
    return _best(
        _of_training(folder, kernel, date.isoformat(timespec="seconds")) for kernel in read_kernels(folder / LOG)
    )


def _best(kernels: Iterable[BestKernel]) -> list[BestKernel]:
    best: dict[str, BestKernel] = {}
    for kernel in sorted(kernels, key=lambda candidate: candidate.order):
        leader = best.get(kernel.provenance.task)
        if leader is None or kernel.provenance.rank > leader.provenance.rank:
            best[kernel.provenance.task] = kernel
    return [best[task] for task in sorted(best)]


def _of_bench(folder: Path, header: RunHeader, turns: Iterable[BenchTurn]) -> Iterable[BestKernel]:
    for turn in turns:
        if not turn.result.rewarded or turn.result.memory_findings or turn.code is None:
            continue
        result = turn.result
        provenance = Provenance(
            task=turn.task_id,
            task_hash=turn.task_hash,
            run=folder.resolve().name,
            model=header.model,
            speedup=result.speedup,
            sure_speedup=result.sure_speedup,
            time_coverage=result.time_coverage,
            timing_source=result.timing_source,
            reference_mode=result.reference_mode,
            device=_device(result.env) or header.device,
            versions=_versions(result.env) or _versions(header.versions),
            sample=str(turn.sample),
            turn=turn.turn,
            date=header.started,
        )
        yield BestKernel(provenance, turn.code, (turn.turn, turn.sample))


def _of_training(folder: Path, kernel: Kernel, date: str) -> BestKernel:
    """Read a line of the log; lines of older runs lack the device and the sure speedup."""
    source, env = _text(kernel.get("timing_source")), kernel.get("env")
    facts = env if isinstance(env, dict) else {}
    provenance = Provenance(
        task=kernel["task_id"],
        task_hash=_hash(kernel),
        run=folder.resolve().name,
        model=None,
        speedup=kernel["speedup"],
        sure_speedup=sure_speedup_of(kernel),
        time_coverage=kernel.get("time_coverage"),
        timing_source=source,
        reference_mode=_text(kernel.get("reference_mode")),
        device=_device(facts),
        versions=_versions(facts),
        sample=_text(kernel.get("sample")),
        turn=kernel["turn"],
        date=date,
        step=kernel["step"],
    )
    return BestKernel(provenance, kernel["code"], (kernel["step"], kernel["turn"]))


def _hash(kernel: Kernel) -> str | None:
    entry = re.search(r"^class\s+(\w+)New\b", kernel["code"], re.MULTILINE)
    try:
        return Task(kernel.get("reference") or "", entry_point=entry[1] if entry else "Model").text_hash
    except TaskError:  # The log has no reference, or one under another name.
        return None


def _device(env: Mapping[str, Any]) -> str | None:
    """Return the GPU to which the times belong, measured or simulated."""
    return _text(env.get("gpu_name") or env.get("gpu_profile") or env.get("device"))


def _versions(env: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{key} {env[key]}" for key in ("python", "torch", "triton") if key in env) or None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
