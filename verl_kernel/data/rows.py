# SPDX-License-Identifier: Apache-2.0
"""Rows of a verl dataset that asks for kernels: prompts, writing, reading as tasks, and checks before training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_kernel.data.files import reading, writing
from verl_kernel.env import Task, target_limits
from verl_kernel.errors import DataError, TaskError

Message = dict[str, str]
_TEXT = """\
Rewrite the PyTorch module `{entry}` below as a class `{answer}` that computes the same faster, with Triton kernels of \
your own.

- `{answer}` has the constructor and the `forward` of `{entry}`: the same arguments, the same parameters under the \
same names, the same output.
- The work is done in functions decorated with `@triton.jit`. Torch allocates tensors and nothing more.
- Sizes may differ from those below: take them from the arguments, and mask loads and stores at the edges.
{targets}
{form} that holds all imports, the kernels and `{answer}`.

```python
{reference}
```"""
Row = dict[str, Any]
_MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
_REWARD_MODEL = pa.struct({"style": pa.string(), "ground_truth": pa.string()})
_INFO = {
    "split": pa.string(),
    "index": pa.int64(),
    "entry_point": pa.string(),
    "task_id": pa.string(),
    "level": pa.int64(),
    "source": pa.string(),
}
SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": _MESSAGES,
        "ability": pa.string(),
        "reward_model": _REWARD_MODEL,
        "extra_info": pa.struct(_INFO),
        "agent_name": pa.string(),
    }
)
"""Columns of `make_row`. Files of equal columns can be trained on together."""


def task_prompt(
    reference: str,
    entry_point: str = "Model",
    targets: Sequence[str] = (),
    form: str = "Answer with one ```python block",
) -> list[Message]:
    """Return the messages that ask for a task's kernel.

    Args:
        reference: source text of the reference program.
        entry_point: class of the reference; the answer defines `<entry_point>New`.
        targets: GPUs that the prompt names, as in `kernelgym.compile_for`; none by default.
        form: what the answer should be.
    """
    named = f"- Every kernel must compile for {'; and for '.join(target_limits(targets))}.\n" if targets else ""
    answer = f"{entry_point}New"
    text = _TEXT.format(entry=entry_point, answer=answer, reference=reference.strip(), targets=named, form=form)
    return [{"role": "user", "content": text}]


def words_of(messages: Sequence[Mapping[str, str]]) -> set[str]:
    """Return the names and other words in a conversation."""
    return set(re.findall(r"\w+", " ".join(message["content"] for message in messages)))


def make_row(
    messages: Sequence[Mapping[str, str]],
    reference: str,
    *,
    data_source: str,
    task_id: str,
    split: str,
    index: int,
    level: int | None = 1,
    entry_point: str = "Model",
    source: str | None = None,
) -> Row:
    """Return one dataset row for a reference program; validation is reported per `data_source`.

    Args:
        messages: the prompt.
        reference: source text of the reference program.
        data_source: any name.
        task_id: name of the task in results.
        split: `train`, `val` or another name of the file.
        index: number of the row in it.
        level: difficulty; None if the task is not graded.
        entry_point: class of the reference.
        source: the publisher's other facts about the task, as JSON text; not read by this package.
    """
    return {
        "data_source": data_source,
        "prompt": [dict(message) for message in messages],
        "ability": "kernel",
        "reward_model": {"style": "rule", "ground_truth": reference},
        "extra_info": {
            "split": split,
            "index": index,
            "entry_point": entry_point,
            "task_id": task_id,
            "level": level,
            "source": source,
        },
        "agent_name": "kernel_agent",
    }


def with_tools(row: Mapping[str, Any], tools: Sequence[str]) -> Row:
    """Return a row that verl's ToolAgentLoop plays, with the tools of `rollout.tools` by their names."""
    info = dict(row["extra_info"])
    task = {
        "reference": row["reward_model"]["ground_truth"],
        "task_id": info["task_id"],
        "entry_point": info["entry_point"],
    }
    info |= {"need_tools_kwargs": True, "tools_kwargs": {tool: {"create_kwargs": task} for tool in tools}}
    return {**row, "extra_info": info, "agent_name": "tool_agent"}


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows as parquet; the file appears when it is complete (raises as `files.writing`)."""
    with writing(path) as part:
        pq.write_table(_table(list(rows)), part)


def _table(rows: list[Row]) -> pa.Table:
    """Return a table of the rows, in `make_row`'s types where all values of a field are null."""
    table = pa.Table.from_pylist(rows)
    if "extra_info" not in table.column_names or not pa.types.is_struct(table.schema.field("extra_info").type):
        return table
    types = {field.name: field.type for field in table.schema.field("extra_info").type}
    typed = {name: _INFO.get(name, kind) if pa.types.is_null(kind) else kind for name, kind in types.items()}
    column = table.schema.get_field_index("extra_info")
    return pa.Table.from_pylist(rows, table.schema.set(column, pa.field("extra_info", pa.struct(typed))))


def task_from_row(row: Mapping[str, Any]) -> Task:
    """Build the task from `reward_model.ground_truth` (reference source) and `extra_info`, `workloads` included.

    Raises:
        DataError: the row has no reference, or its reference is not a KernelBench-style program.
    """
    info = row.get("extra_info") or {}
    name = str(info.get("task_id") or info.get("index") or row.get("index") or "")
    reward_model = row.get("reward_model") or {}
    reference = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    if not isinstance(reference, str):
        raise DataError(
            f"row {name or '<unnamed>'} has no reward_model.ground_truth: store the reference program's source there"
        )
    if (workloads := info.get("workloads")) is not None:
        reference = with_workloads(reference, str(workloads), name)
    try:
        return Task(reference=reference, task_id=name, entry_point=str(info.get("entry_point") or "Model"))
    except TaskError as exc:
        raise DataError(f"reward_model.ground_truth of row {name or '<unnamed>'}: {exc}") from exc


def with_workloads(reference: str, workloads: str, name: str) -> str:
    """Return a reference with the sizes of its row (`extra_info.workloads`, JSON text) as its `WORKLOADS`.

    Raises:
        DataError: the text is no JSON.
    """
    try:
        sizes = json.loads(workloads)
    except ValueError:
        raise DataError(
            f'extra_info.workloads of row {name or "<unnamed>"} is no JSON: store a list, as in [{{"rows": 128}}]'
        ) from None
    return f"{reference.rstrip()}\n\nWORKLOADS = {sizes!r}\n"


def read_tasks(path: str | Path) -> list[Task]:
    """Return the tasks of a dataset's rows, each once, in order.

    Raises:
        DataError: the file cannot be read, or a row has no reference.
    """
    return list({task.fingerprint: task for task in map(task_from_row, read_rows(Path(path)))}.values())


def check_rows(path: str | Path) -> None:
    """Check that every row of a dataset has a usable prompt and can be judged.

    Raises:
        DataError: the file cannot be read, or a row lacks something; the message names file, row, key and remedy.
    """
    rows = read_rows(Path(path))
    if not rows:
        raise DataError(f"{path} holds no rows: write at least one task into it")
    named: dict[str, tuple[int, str]] = {}
    for number, row in enumerate(rows):
        try:
            _check_prompt(row.get("prompt"))
            task = task_from_row(row)
            _check_source(row.get("data_source"))
            _check_class(row["prompt"], task)
            _check_name(named, number, row, task)
        except DataError as exc:
            raise DataError(f"{path}, row {number}: {exc}") from exc


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a dataset unchanged.

    Raises:
        DataError: the file cannot be read.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist: give a parquet file, or make one with `verl-kernel data quickstart`")
    with reading(path):
        rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


def _check_prompt(prompt: Any) -> None:
    if not isinstance(prompt, list) or not prompt:
        raise DataError("key `prompt` holds no messages: store a list of {role, content}, the last one from the user")
    for message in prompt:
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise DataError("key `prompt` holds a message without text: every message needs `role` and `content`")


def _check_source(source: Any) -> None:
    """Refuse NaN, which equals no other NaN: verl would report a validation of one row each, and keep the last."""
    if source != source:
        raise DataError("key `data_source` is nan: store the name of the data set, by which validation is reported")


def _check_name(named: dict[str, tuple[int, str]], number: int, row: Mapping[str, Any], task: Task) -> None:
    """Refuse a name that another reference has: results, and the best kernels of a run, are kept by it."""
    name = (row.get("extra_info") or {}).get("task_id")
    if name is None:
        return
    first, text = named.setdefault(str(name), (number, task.text_hash))
    if text != task.text_hash:
        raise DataError(
            f"extra_info.task_id is {name}, as in row {first}, whose reference is another: give each task a name of "
            "its own, or none"
        )


def _check_class(prompt: list[dict[str, str]], task: Task) -> None:
    words = set(re.findall(r"\w+", " ".join(message["content"] for message in prompt)))
    if "ModelNew" in words and task.candidate_class not in words:
        raise DataError(
            f"key `prompt` asks for ModelNew, but with extra_info.entry_point {task.entry_point} a candidate defines "
            f"{task.candidate_class}: name that class in the prompt, or, for a published data set, make the file with "
            "`verl-kernel data rows`"
        )
