# SPDX-License-Identifier: Apache-2.0
"""Reads definitions with their workloads, as SOL-ExecBench and FlashInfer-Bench publish them, and makes rows of them.

By the formats' own pages: a definition holds `name`, `axes` (each const, var or, in SOL-ExecBench, an expr of others),
`inputs` and `outputs` (`shape`, a list of axes or null for a number, and `dtype`) and `reference`, PyTorch code whose
function `run` takes the inputs. A workload holds the values of the var `axes` and, for each of the `inputs`, its type:
random, scalar (with `value`), safetensors (a file) or custom (what `custom_inputs_entrypoint` of the reference makes).
A row's program calls `run` and has a size for each workload.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

from verl_kernel.data.foreign_rows import Record, as_mapping, row_for_prompt
from verl_kernel.data.published import files_of, records_of
from verl_kernel.data.rows import Row, task_prompt
from verl_kernel.data.source_files import read_source
from verl_kernel.errors import DataError

_MOST = 64
"""Most sizes of a task; of more workloads as many are taken, evenly."""
_JSON = ("axes", "inputs", "outputs", "workloads")
"""Columns of the hub's parquet files that hold JSON text."""
_USED = {"name", "axes", "inputs", "reference", "workloads", "custom_inputs_entrypoint"}
_TAKEN = {"self", "run", "torch", "nn", "int"}
"""Names that the program made here uses itself."""
_INTEGERS = {"int8": 128, "int16": 1024, "int32": 1024, "int64": 1024}
"""Bounds between which both benchmarks draw integers."""
_DRAWS = {
    **{name: f"torch.randn({{shape}}, dtype=torch.{name})" for name in ("float64", "float32", "float16", "bfloat16")},
    **{
        name: f"torch.randn({{shape}}).clamp(-2, 2).to(torch.{name})"  # as SOL-ExecBench bounds them
        for name in ("float8_e4m3fn", "float8_e5m2")
    },
    **{name: f"torch.randint({-bound}, {bound}, {{shape}}, dtype=torch.{name})" for name, bound in _INTEGERS.items()},
    "bool": "torch.randint(0, 2, {shape}, dtype=torch.bool)",
}
_PROGRAM = """{reference}


import torch
from torch import nn
{custom}

class {entry}(nn.Module):
    def forward(self, {inputs}):
        return run({inputs})


def get_inputs({size}):
{body}


def get_init_inputs():
    return []


WORKLOADS = {workloads!r}
"""


def records(path: Path, advice: str) -> Iterator[Record]:
    """Yield definitions with their `workloads`, from parquet files of the hub or a folder of JSON files.

    Raises:
        DataError: there are none, or a file cannot be read; the message ends with `advice`, or names the file.
    """
    files = [*_files(path)]
    if not files:
        for record in records_of(files_of(path, advice)):
            yield {**record, **{key: _parsed(record.get(key)) for key in _JSON}}
    for definition, workloads in files:
        lines = records_of([workloads]) if workloads.is_file() else iter(())
        yield {**_read(definition), "workloads": [line.get("workload", line) for line in lines]}


def _files(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files of definitions in a folder, each with the file of its workloads."""
    for file in sorted(path.rglob("definition.json")):
        yield file, file.with_name("workload.jsonl")
    for folder in sorted(path.rglob("definitions")):
        for file in sorted(folder.rglob("*.json")):
            yield file, folder.with_name("workloads") / file.relative_to(folder).with_suffix(".jsonl")


def _read(file: Path) -> Record:
    try:
        value = json.loads(read_source(file))
    except (ValueError, RecursionError) as exc:
        raise DataError(f"{file} is cut off or damaged (it is no JSON): fetch it anew") from exc
    return value if isinstance(value, Mapping) else {}


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def task_row(record: Record, number: int, targets: Sequence[str] = (), *, source: str) -> Row:
    """Return the row of a definition, with this package's prompt.

    Raises:
        DataError: it is not complete, or none of its workloads can be drawn.
    """
    program, name = _program(record), str(record.get("name") or "")
    return row_for_prompt(
        task_prompt(program, targets=targets),
        program,
        "Model",
        number,
        source=source,
        task_id=name,
        data_source=source,
        level=None,
        metadata={key: value for key, value in record.items() if key not in _USED},
    )


def _program(record: Record) -> str:
    axes, inputs, reference = as_mapping(record.get("axes")), as_mapping(record.get("inputs")), record.get("reference")
    if not isinstance(reference, str) or not inputs:
        raise DataError("it is no definition: it needs axes, inputs and a reference in PyTorch")
    _check_reference(reference, record.get("custom_inputs_entrypoint"))
    for name in (*axes, *inputs):
        if not str(name).isidentifier() or iskeyword(name) or name in _TAKEN:
            raise DataError(f"an axis or input cannot be a name of Python here: {name!r}")
    custom = record.get("custom_inputs_entrypoint")
    sizes = _sizes(record.get("workloads"), axes, inputs, bool(custom))
    drawn = _custom(axes, sizes[0], inputs) if custom else _drawn(inputs, axes, str(record.get("op_type")))
    return _PROGRAM.format(
        reference=reference.rstrip(),
        entry="Model",
        custom=f"\n_custom = {custom}\n" if custom else "",  # the function may be called get_inputs
        inputs=", ".join(inputs),
        size=", ".join(sizes[0]),
        body="\n".join(f"    {line}" for line in [*_constants(axes), *drawn]),
        workloads=sizes,
    )


def _check_reference(reference: str, custom: object) -> None:
    try:
        defined = {node.name for node in ast.parse(reference).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise DataError(f"the reference is not valid Python: {exc}") from exc
    if missing := {"run", *([str(custom)] if custom else [])} - defined:
        raise DataError(f"the reference lacks a function: it defines no {' and no '.join(sorted(missing))}")
    if taken := defined & {"Model", "get_init_inputs"}:
        raise DataError(f"the reference uses a name of the program made of it: {', '.join(sorted(taken))}")


def _sizes(workloads: Any, axes: Mapping[str, Any], inputs: Mapping[str, Any], is_custom: bool) -> list[dict[str, Any]]:
    """Return what `get_inputs` takes for each workload whose inputs can be drawn."""
    found = [each for each in workloads if isinstance(each, Mapping)] if isinstance(workloads, list) else []
    if not found:
        raise DataError("there are no workloads: a definition needs a file of them, or a column")
    reasons = [_undrawn(each, inputs, is_custom) for each in found]
    sizes = [_size(each, axes, inputs) for each, reason in zip(found, reasons, strict=True) if not reason]
    if not sizes:
        raise DataError(f"no workload's inputs can be drawn: {next(filter(None, reasons))}")
    # Without a variable axis nothing distinguishes the workloads: the program still takes an argument, for its size.
    different = list({json.dumps(size): size or {"_": 0} for size in sizes}.values())
    if any(size.keys() != different[0].keys() for size in different):
        raise DataError("workloads differ in what they give: each needs a number for the same axes and scalars")
    count = min(_MOST, len(different))
    return [different[index * len(different) // count] for index in range(count)]


def _undrawn(workload: Mapping[str, Any], inputs: Mapping[str, Any], is_custom: bool) -> str:
    """Return why a workload's inputs cannot be drawn; empty if they can."""
    described = as_mapping(workload.get("inputs"))
    for name, spec in inputs.items():
        kind, dtype = as_mapping(described.get(name)).get("type"), str(as_mapping(spec).get("dtype"))
        is_number = as_mapping(spec).get("shape") is None
        if is_custom:
            continue
        if is_number != (kind == "scalar") or kind not in ("random", "scalar", "safetensors"):
            return f"{name} is of type {kind}"
        if is_number and not isinstance(as_mapping(described.get(name)).get("value"), int | float):
            return f"{name} has no value"
        if kind == "safetensors" and not dtype.startswith(("float", "bfloat")):
            return f"{name} holds {dtype} from a file, and other numbers may be no indices"
        if not is_number and dtype not in _DRAWS:
            return f"{name} is of dtype {dtype}"
    return ""


def _size(workload: Mapping[str, Any], axes: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    values, described = as_mapping(workload.get("axes")), as_mapping(workload.get("inputs"))
    size = {name: values.get(name) for name, axis in axes.items() if as_mapping(axis).get("type") == "var"}
    if not all(type(value) is int for value in size.values()):
        raise DataError(f"a workload lacks an axis: it needs whole numbers for {', '.join(size)}")
    numbers = {name: as_mapping(described.get(name)).get("value") for name in inputs}
    return {**size, **{name: value for name, value in numbers.items() if value is not None}}


def _constants(axes: Mapping[str, Any]) -> list[str]:
    """Return the lines that compute the axes that no workload names."""
    others = {name: as_mapping(axis) for name, axis in axes.items() if as_mapping(axis).get("type") != "var"}
    return [f"{name} = {_axis(name, axis, axes)}" for name, axis in others.items()]


def _custom(axes: Mapping[str, Any], size: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Return the lines that let the reference make the inputs."""
    given = ", ".join(f'"{name}": {name}' for name in dict.fromkeys((*axes, *size)))
    values = ", ".join(f'inputs["{name}"]' for name in inputs)
    return [f'inputs = _custom({{{given}}}, torch.device("cpu"))', f"return [{values}]"]


def _drawn(inputs: Mapping[str, Any], axes: Mapping[str, Any], op_type: str) -> list[str]:
    """Return the lines that draw the inputs."""
    specs = {name: as_mapping(spec) for name, spec in inputs.items()}
    values = [name if spec.get("shape") is None else _draw(name, spec, axes, op_type) for name, spec in specs.items()]
    return ["return [", *(f"    {value}," for value in values), "]"]


def _axis(name: str, axis: Mapping[str, Any], axes: Mapping[str, Any]) -> str:
    """Return the expression of a const or expr axis."""
    value, expression = axis.get("value"), axis.get("expression")
    if type(value) is int:
        return str(value)
    try:
        tree = ast.parse(str(expression), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant, ast.operator, ast.unaryop)
    parts = [] if expression is None or tree is None else [*ast.walk(tree)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    if not parts or not all(isinstance(part, allowed) for part in parts) or not names <= set(axes):
        raise DataError(f"an axis has neither a value nor an expression of others: {name}")
    return f"int({ast.unparse(parts[0])})"


def _draw(name: str, spec: Mapping[str, Any], axes: Mapping[str, Any], op_type: str) -> str:
    shape = spec.get("shape")
    sizes = [str(size) for size in shape] if isinstance(shape, list) else []
    if not all(size in axes or size.isdigit() for size in sizes):
        raise DataError(f"the shape of an input names what is no axis: {name}")
    drawn = _DRAWS[str(spec.get("dtype"))].format(shape=f"({', '.join(sizes)}{',' * (len(sizes) == 1)})")
    return f"torch.softmax({drawn}, -1)" if op_type == "sampling" and name == "probs" else drawn
