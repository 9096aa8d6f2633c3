# SPDX-License-Identifier: Apache-2.0
"""Answers from saved kernel files instead of a model: one answer for each file.

A file is `level_<L>_problem_<P>_sample_<S>_kernel.py`, as KernelBench's runs write them, or `<task_id>.py` and
`<task_id>_<n>.py`. A task without a file counts as failed, as in published scores: the run's list of tasks includes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from verl_kernel.bench.models.answers import ModelAnswer, Question
from verl_kernel.bench.suites import Suite
from verl_kernel.data.source_files import NotText, read_source
from verl_kernel.env import EvalError, EvalResult, EvalStatus
from verl_kernel.errors import DataError

_RUNS = re.compile(r"(level_\d+_problem_\d+)_sample_(\d+)_kernel")
_NUMBERED = re.compile(r"(.+)_(\d+)")
Found = dict[str, dict[int, Path]]
"""Files by task and sample."""


def find_kernels(folder: Path, suite: Suite) -> tuple[Found, list[Path]]:
    """Return the kernels of a folder for the tasks of a suite, and the files that belong to no task.

    Raises:
        DataError: the folder holds no kernel for the suite, or two files are the same sample of a task.
    """
    refuse_no_folder(folder)
    names = {item.task.task_id for item in suite.tasks}
    files: Found = {}
    strangers: list[Path] = []
    for file in sorted(folder.rglob("*.py")):
        key = _sample_key(file.stem, names)
        if key is None:
            strangers.append(file)
            continue
        samples = files.setdefault(key[0], {})
        if key[1] in samples:
            raise DataError(f"{file} and {samples[key[1]]} are both sample {key[1]} of {key[0]}: rename one of them")
        samples[key[1]] = file
    if not files:
        example = suite.tasks[0].task.task_id
        raise DataError(
            f"{folder} holds no kernel for suite {suite.name}: name files like {example}.py or {example}_0.py"
        )
    return files, strangers


def refuse_no_folder(folder: Path) -> None:
    """Raise a DataError if there is no folder."""
    if not folder.is_dir():
        raise DataError(
            f"--kernels is {folder}, which is no folder: name one with kernels, as level_1_problem_3_sample_0_kernel.py"
        )


def _sample_key(stem: str, names: set[str]) -> tuple[str, int] | None:
    """Return task and sample from a file's name; None if it names no task."""
    if stem in names:
        return stem, 0
    match = _RUNS.fullmatch(stem) or _NUMBERED.fullmatch(stem)
    return (match[1], int(match[2])) if match and match[1] in names else None


class SavedKernels:
    """Answers with the files of a folder, one for each sample."""

    clean: Callable[[str], str] = str

    def __init__(self, files: Found) -> None:
        self._files = files

    async def check(self) -> None:
        """Do nothing: files are read when they are asked for."""

    async def answer(self, question: Question) -> ModelAnswer:
        """Return the program of a file, or a verdict if Python could not read it."""
        task_id = question.item.task.task_id
        try:
            return ModelAnswer(code=read_source(self._files[task_id][question.sample]))
        except NotText as exc:
            error = EvalError(stage="load", type="SyntaxError", message=str(exc))
            verdict = EvalResult(
                task_id=task_id,
                task_hash=question.item.task.text_hash,
                status=EvalStatus.LOAD_ERROR,
                compiled=False,
                correctness=False,
                error=error,
            )
            return ModelAnswer(verdict=verdict)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
