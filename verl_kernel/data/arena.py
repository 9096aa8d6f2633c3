# SPDX-License-Identifier: Apache-2.0
"""Reads AgentKernelArena's tasks (TaskSpec, schema version 2), and makes rows of those with a PyTorch module.

By its page on tasks, a folder with `config.yaml` is a task. `evaluation.runner` starts its program; where the argument
`--module` names a PyTorch file and `--model-class` its class, that file is a reference: `get_inputs` yields the inputs
of one case after the other, and the file `evaluation.workloads` lists the `cases`. A row has a size for each case.
References that are kernels, or that a script computes, are no rows.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from verl_kernel.data.files import read_yaml
from verl_kernel.data.foreign_rows import Record, as_mapping, row_for_prompt
from verl_kernel.data.rows import Row, task_prompt
from verl_kernel.data.source_files import read_source
from verl_kernel.errors import ConfigError, DataError

REPOSITORY = "AMD-AGI/AgentKernelArena"
_MOST = 64
"""Most sizes of a task; later cases are left out."""
_CASES = """


_cases = get_inputs


def get_inputs(case):
    for number, inputs in enumerate(_cases()):
        if number == case:
            return inputs


WORKLOADS = {workloads!r}
"""


def records(path: Path, advice: str) -> Iterator[Record]:
    """Yield the folders of tasks below a folder, in order.

    Raises:
        DataError: there are none; the message ends with `advice`.
    """
    files = sorted(path.rglob("config.yaml")) if path.is_dir() else []
    if not files:
        raise DataError(f"{path} {'holds no config.yaml' if path.exists() else 'does not exist'}: {advice}")
    yield from ({"folder": file.parent, "id": _name(file.parent, path)} for file in files)


def _name(folder: Path, root: Path) -> str:
    parts = folder.relative_to(root).parts
    return "/".join(parts[1:] if parts[:1] == ("tasks",) else parts) or folder.resolve().name


def task_row(record: Record, number: int, targets: Sequence[str] = ()) -> Row:
    """Return the row of a task, with this package's prompt, which asks for Triton.

    Raises:
        DataError: it is no task of schema version 2, or its reference is no PyTorch module with cases.
    """
    folder = record["folder"]
    try:
        config = read_yaml(folder / "config.yaml", "write a task's keys into it")
    except ConfigError as exc:
        raise DataError(f"a config.yaml cannot be read: {exc}") from exc
    if config.get("schema_version") != 2:
        raise DataError("a config.yaml is no task of schema version 2: it has another schema_version")
    evaluation = as_mapping(config.get("evaluation"))
    arguments = evaluation.get("runner")
    module, entry = (_argument(arguments, name) for name in ("--module", "--model-class"))
    if not module or not entry:
        raise DataError("the reference is no PyTorch module: the task's runner names no --module and --model-class")
    program = _program(_text(folder, module), _cases(folder, evaluation.get("workloads")))
    return row_for_prompt(
        task_prompt(program, entry, targets),
        program,
        entry,
        number,
        source="agentkernelarena",
        task_id=record["id"],
        data_source="agentkernelarena",
        level=None,
        metadata={"description": config.get("description"), "candidate": config.get("candidate")},
    )


def _argument(arguments: Any, name: str) -> str:
    """Return the argument that follows `name`; empty without one."""
    words = [str(word) for word in arguments] if isinstance(arguments, list) else []
    return next((value for key, value in pairwise(words) if key == name), "")


def _text(folder: Path, name: str) -> str:
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"a task names a file outside of its folder: {name}")
    return read_source(file)


def _cases(folder: Path, name: Any) -> int:
    """Return how many cases a task's workloads list; 1 without a list."""
    if not isinstance(name, str):
        return 1
    try:
        listed = as_mapping(json.loads(_text(folder, name))).get("cases")
    except (ValueError, RecursionError) as exc:
        raise DataError(f"the file of a task's workloads is no JSON: {folder / name}") from exc
    if not isinstance(listed, list) or not listed:
        raise DataError(f"the file of a task's workloads lists no cases: {folder / name}")
    return len(listed)


def _program(module: str, cases: int) -> str:
    """Return a module whose `get_inputs` takes the number of a case, if it yields several."""
    yields = _yields(module)
    if not yields and cases > 1:
        raise DataError(f"get_inputs does not yield the cases: the task lists {cases}")
    workloads = [{"case": case} for case in range(min(_MOST, cases))]
    return module.rstrip() + _CASES.format(workloads=workloads) if yields else module


def _yields(module: str) -> bool:
    try:
        body = ast.parse(module).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise DataError(f"the reference is not valid Python: {exc}") from exc
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    return bool(functions) and any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(functions[-1]))
