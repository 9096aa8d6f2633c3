# SPDX-License-Identifier: Apache-2.0
"""A run's tasks as folders in the task format of Harbor, which other harnesses read too.

Each task is judged as in the run, by `verl_kernel.adapters.harbor` in a container of its own: where the agent worked,
it could have changed the judge. Format: https://www.harborframework.com/docs/tasks, version 1.4.
"""

from __future__ import annotations

import json
from pathlib import Path

from verl_kernel.bench.best_kernels import best_of_run, file_name
from verl_kernel.bench.records import RunHeader, SuiteTask, read_answers, read_tasks
from verl_kernel.data.rows import task_prompt
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError
from verl_kernel.files import replacing

_CONFIG = """\
schema_version = "1.4"
artifacts = ["/app/kernel.py"]

[task]
name = {name}
description = {description}
keywords = ["triton", "gpu-kernels"]

[metadata]
{metadata}

[agent]
timeout_sec = 3600.0

[verifier]
timeout_sec = 1800.0
environment_mode = "separate"

[environment]
build_timeout_sec = 1800.0
cpus = 2
memory_mb = 8192
{gpus}"""
_DOCKERFILE = """\
# The image of containers/gym.Containerfile: podman build -f containers/gym.Containerfile -t verl-kernel .
FROM verl-kernel
USER root
ENTRYPOINT []
WORKDIR /app
COPY reference.py /app/
"""
_TEST = "#!/bin/bash\nexec python -m verl_kernel.adapters.harbor /tests /app/kernel.py /logs/verifier\n"
_HINT = "The module is in `/app/reference.py`, too. `verl-kernel eval reference.py kernel.py` judges a kernel."
_SOLVE = "#!/bin/bash\ncp /solution/kernel.py /app/kernel.py\n"


def write_tasks(run: Path, out: Path) -> tuple[int, int]:
    """Write the tasks of a run, and return how many were written and how many were left out.

    A task is left out if the run has not stored its program, as those of old versions, or one under another name than
    `Model`.

    Raises:
        DataError: the folder holds no readable run, one without a judged answer, or no task that can be written.
        OSError: a file cannot be written.
    """
    (header, _), tasks = read_answers(run), [*filter(_is_whole, read_tasks(run))]
    if not tasks:
        raise DataError(f"{run}/tasks.jsonl holds no task whose program defines `Model`: run the bench again")
    solutions = {kernel.provenance.task: kernel.code for kernel in best_of_run(run)}
    folders: set[str] = set()
    for task in tasks:
        name = file_name(task.task_id).removesuffix(".py")
        if name in folders:
            name = file_name(task.task_id, is_taken=True).removesuffix(".py")
        folders.add(name)
        for path, text in _files(header, task, name, solutions.get(task.task_id)).items():
            file = out / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as part:
                part.write_text(text, encoding="utf-8", errors="backslashreplace")
    return len(folders), header.tasks - len(folders)


def _is_whole(task: SuiteTask) -> bool:
    try:
        return task.reference is not None and bool(Task(task.reference, task.task_id))
    except TaskError:
        return False


def _files(header: RunHeader, task: SuiteTask, name: str, solution: str | None) -> dict[str, str]:
    """Return the texts of a task's files by their paths."""
    reference = task.reference or ""
    gym = {**header.gym, "device": header.device, "reference_mode": header.baseline}
    (prompt,) = task_prompt(reference, form="Write a file `/app/kernel.py`")
    solved = {} if solution is None else {"solution/kernel.py": solution, "solution/solve.sh": _SOLVE}
    return solved | {
        "task.toml": _config(header, task, name),
        "instruction.md": f"{prompt['content']}\n\n{_HINT}\n",
        "environment/Dockerfile": _DOCKERFILE,
        "environment/reference.py": reference,
        "tests/reference.py": reference,
        "tests/judge.json": json.dumps({"task_id": task.task_id, "gym": gym, "reward": header.reward}, indent=1) + "\n",
        "tests/test.sh": _TEST,
    }


def _config(header: RunHeader, task: SuiteTask, name: str) -> str:
    facts = {
        "suite": header.suite, "suite_hash": header.suite_hash, "task_id": task.task_id, "task_hash": task.task_hash,
        "level": task.level, "family": task.family, **header.versions,
    }  # fmt: skip
    return _CONFIG.format(
        name=_quoted(f"verl-kernel/{name}"),
        description=_quoted(f"Write Triton kernels for {task.task_id} of {header.suite}"),
        metadata="\n".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in facts.items() if value is not None),
        gpus="gpus = 1\n" if header.device == "cuda" else "",
    )


def _quoted(value: str | int) -> str:
    """Return a value in TOML; its strings are JSON's, but for pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
