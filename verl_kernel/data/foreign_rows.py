# SPDX-License-Identifier: Apache-2.0
"""Converts rows that others published in verl's form to this package's schema.

The prompt may be called `prompt`, `message` or `messages`. `reward_model.ground_truth` is the reference program, or
JSON text that holds it as `reference_code`. All other columns are kept as JSON text in `extra_info.source`.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from collections.abc import Iterable, Mapping
from typing import Any

from verl_kernel.data.rows import Message, Row, make_row, words_of
from verl_kernel.env import Task
from verl_kernel.errors import DataError, TaskError

Record = Mapping[str, Any]
"""One row of a published file, by column."""
_PROMPTS = ("prompt", "message", "messages")
_USED = {"data_source", "ability", "reward_model", "extra_info", "entry_point", "level", "agent_name"}
_INNER = {"entry_point", "level"}
_DIGITS = 10
"""A level with this many digits or more is not a level."""


def row_of_verl(record: Record, number: int, *, source: str, level: int | None = None) -> Row:
    """Convert a row of a published file in verl's form to this package's schema.

    Args:
        record: the published row.
        number: its index in the file.
        source: name of the data set: the default `data_source`, and the prefix of the task's id.
        level: level of rows without one; None if the tasks are not graded.

    Raises:
        DataError: the row has no usable prompt or reference; the part before the colon is the general reason.
    """
    key = next((key for key in _PROMPTS if record.get(key)), "prompt")
    info = as_mapping(record.get("extra_info"))
    program = _program(as_mapping(record.get("reward_model")))
    entry = next((str(part["entry_point"]) for part in (info, program, record) if part.get("entry_point")), "Model")
    grade = next(
        (own_level for part in (info, record) if (own_level := as_level(part.get("level"))) is not None), level
    )
    metadata = {name: value for name, value in record.items() if name not in _USED and name != key}
    metadata["extra_info"] = {name: value for name, value in info.items() if name not in _INNER}
    metadata["ground_truth"] = {name: value for name, value in program.items() if name != "reference_code"}
    return row_for_prompt(
        prompt_of(record.get(key)),
        program["reference_code"],
        entry,
        number,
        source=source,
        task_id=_task_id(info, record, source),
        data_source=str(record.get("data_source") or source),
        level=grade,
        metadata=metadata,
    )


def row_for_prompt(
    prompt: list[Message],
    reference: str,
    entry_point: str,
    number: int,
    *,
    source: str,
    task_id: str,
    data_source: str,
    level: int | None,
    metadata: Mapping[str, Any],
) -> Row:
    """Return a row for a prompt and a reference, whose class the prompt and the gym agree on (raises DataError)."""
    words = words_of(prompt)
    if "ModelNew" in words and entry_point != "Model" and f"{entry_point}New" not in words:
        reference, entry_point = _with_model_class(reference, entry_point), "Model"
    task = checked_task(reference, entry_point)
    return make_row(
        prompt,
        reference,
        data_source=data_source,
        task_id=task_id or f"{source}-{task.text_hash[:10]}",
        split="train",
        index=number,
        level=level,
        entry_point=entry_point,
        source=as_json(metadata),
    )


def checked_task(reference: str, entry_point: str) -> Task:
    """Return the task of a reference whose imports can be resolved here.

    Raises:
        DataError: it is not a program in KernelBench's form, or imports what is not installed.
    """
    try:
        task = Task(reference, entry_point=entry_point)
    except TaskError as exc:
        raise DataError(str(exc).replace("reference <unnamed>", "the reference", 1)) from exc
    for name in sorted(_imported(ast.parse(reference))):
        if not _is_installed(name):
            raise DataError(f"the reference imports {name}, which is not installed: install it where judges run")
    return task


def prompt_of(value: Any) -> list[Message]:
    """Return the messages before the first answer.

    Raises:
        DataError: there are none.
    """
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    messages = [] if not isinstance(value, Iterable) or isinstance(value, Mapping) else list(value)
    prompt: list[Message] = []
    for message in messages:
        if not isinstance(message, Mapping) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise DataError("the prompt holds a message without text: every message needs `role` and `content`")
        if message["role"] == "assistant":
            break
        prompt.append({"role": message["role"], "content": message["content"]})
    if not any(message["role"] == "user" and message["content"].strip() for message in prompt):
        raise DataError("there is no prompt: none of prompt, message and messages holds a text of the user")
    return prompt


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a struct, or one that is stored as JSON text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def as_level(value: Any) -> int | None:
    """Parse a level; None if it is absent, never 0."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None


def as_json(metadata: Mapping[str, Any]) -> str | None:
    """Return the entries that have a value as JSON text; None if there are none."""
    stated = {name: value for name, value in metadata.items() if value not in (None, "", {}, [])}
    return json.dumps(stated, ensure_ascii=False, default=str) if stated else None


def _program(reward_model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reference as `reference_code`, with all else that is stored with it."""
    truth = reward_model.get("ground_truth")
    inner = as_mapping(truth)
    if isinstance(inner.get("reference_code"), str):
        return inner
    if not isinstance(truth, str) or not truth.strip():
        raise DataError("there is no reference: reward_model.ground_truth holds neither a program nor reference_code")
    return {"reference_code": truth}


def _task_id(info: Mapping[str, Any], record: Record, source: str) -> str:
    for part in (info, record):
        for key in ("uuid", "task_id", "_id", "problem_id"):
            if part.get(key) not in (None, ""):
                return f"{source}-{part[key]}"
    return ""


def _with_model_class(reference: str, entry_point: str) -> str:
    """Add a subclass `Model` to the reference, for a prompt that asks for `ModelNew` when the class is not `Model`."""
    checked_task(reference, entry_point)
    if any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in ast.parse(reference).body):
        raise DataError(
            f"the prompt asks for ModelNew, but the class is {entry_point} and another one is called Model: "
            f"name {entry_point}New in the prompt"
        )
    return f"{reference.rstrip()}\n\n\nclass Model({entry_point}):\n    pass\n"


def _imported(tree: ast.Module) -> set[str]:
    """Return the top-level names of the modules that the program imports when it is loaded."""
    modules: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            modules |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add("its own package" if node.level else str(node.module).partition(".")[0])
    return modules


@functools.cache
def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ValueError, ImportError):  # a module without a specification, as __main__
        return False
