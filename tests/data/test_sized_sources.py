# SPDX-License-Identifier: Apache-2.0
"""Published tasks with several workloads become tasks of several sizes."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data import sized_files as files
from tests.sentences import refused
from verl_kernel.data.rows import check_rows, read_rows, read_tasks
from verl_kernel.data.sources import convert_source
from verl_kernel.env import GymOptions, Judge
from verl_kernel.errors import DataError

ROWS = [files.workload(rows) for rows in (1, 7, 64)]
SIZES = ({"rows": 1, "eps": 1e-6}, {"rows": 7, "eps": 1e-6}, {"rows": 64, "eps": 1e-6})


def made(tmp_path, name, path):
    out = tmp_path / "out" / "made.parquet"
    written = convert_source(name, "rows", path, out)
    check_rows(out)
    return written, read_rows(out), read_tasks(out)


def drawn(task, size):
    """What the reference of a task draws at one of its sizes, and computes of it."""
    names = {}
    exec(task.at_size(size).reference, names)
    args, kwargs = names["get_init_inputs"]() or ([], {})
    inputs = names["get_inputs"]()
    return inputs, names[task.entry_point](*args, **kwargs)(*inputs)


def sol_folder(tmp_path, definition=files.DEFINITION, workloads=ROWS):
    files.write_problem(tmp_path / "data" / "L1" / definition["name"], definition, workloads)
    return "sol-execbench", tmp_path / "data"


def sol_table(tmp_path, definition=files.DEFINITION, workloads=ROWS):
    path = tmp_path / "L1.parquet"
    pq.write_table(pa.Table.from_pylist([files.columns(definition, workloads)]), path)
    return "sol-execbench", path


def trace_folder(tmp_path, definition=files.DEFINITION, workloads=ROWS):
    files.write_trace(tmp_path / "trace", definition, workloads)
    return "flashinfer-trace", tmp_path / "trace"


@pytest.mark.parametrize("form", [sol_folder, sol_table, trace_folder])
def test_a_definition_has_a_size_for_each_workload(tmp_path, form):
    name, path = form(tmp_path)
    written, (row,), (task,) = made(tmp_path, name, path)
    assert (written.rows, written.refused) == (1, {})
    assert task.workloads == SIZES
    assert (row["data_source"], row["extra_info"]["task_id"]) == (name, "own_norm")
    assert "def forward(self, x, weight, eps):" in row["prompt"][0]["content"]
    (x, weight, eps), output = drawn(task, SIZES[1])
    assert (tuple(x.shape), tuple(weight.shape), eps) == ((7, 64), (64,), 1e-6)
    assert (output.shape, str(output.dtype)) == (x.shape, "torch.bfloat16")
    assert json.loads(row["extra_info"]["source"])["description"] == "a norm of rows"


NORM = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm(x, weight, out, eps, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / columns + eps)
    scaled = value.to(tl.bfloat16) * tl.load(weight + column, mask=column < columns)
    tl.store(out + row * columns + column, scaled, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x, weight, eps):
        out = torch.empty_like(x)
        norm[(x.shape[0],)](x, weight, out, eps, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""


@pytest.mark.processes
def test_a_kernel_for_a_definition_is_judged_at_all_sizes(tmp_path):
    name, path = sol_folder(tmp_path)
    (task,) = made(tmp_path, name, path)[2]
    with Judge(GymOptions(device="cpu"), seed=1) as judge:
        result = judge.evaluate(task, NORM)
    assert result.rewarded, result.error
    assert [size.name for size in result.sizes] == ["rows=1,eps=1e-06", "rows=7,eps=1e-06", "rows=64,eps=1e-06"]


def test_a_reference_may_make_its_inputs_itself(tmp_path):
    name, path = sol_folder(tmp_path, files.CUSTOM, [files.custom(rows) for rows in (4, 9)])
    (task,) = made(tmp_path, name, path)[2]
    (x, at), output = drawn(task, {"rows": 9})
    assert (tuple(x.shape), int(at.max()) < 9) == ((9, 8), True)
    assert output.equal(x[at])


@pytest.mark.parametrize(("dtype", "kind"), [
    ("float64", "float64"), ("float16", "float16"), ("float8_e4m3fn", "float8_e4m3fn"), ("int32", "int32"),
    ("int8", "int8"), ("bool", "bool"),
])  # fmt: skip
def test_inputs_have_the_types_of_a_definition(tmp_path, dtype, kind):
    inputs = {**files.DEFINITION["inputs"], "weight": {"shape": ["columns"], "dtype": dtype}}
    name, path = sol_folder(tmp_path, {**files.DEFINITION, "inputs": inputs})
    (task,) = made(tmp_path, name, path)[2]
    names = {}
    exec(task.at_size(SIZES[0]).reference, names)
    assert str(names["get_inputs"]()[1].dtype) == f"torch.{kind}"


def test_numbers_of_a_file_are_drawn_and_equal_sizes_are_one(tmp_path):
    stored = files.workload(7, weight="safetensors")
    name, path = trace_folder(tmp_path, workloads=[*ROWS, stored, files.workload(7, eps=1e-5)])
    (task,) = made(tmp_path, name, path)[2]
    assert task.workloads == (*SIZES, {"rows": 7, "eps": 1e-5})


def test_of_many_workloads_64_are_taken_evenly(tmp_path):
    name, path = trace_folder(tmp_path, workloads=[files.workload(rows) for rows in range(1, 129)])
    (task,) = made(tmp_path, name, path)[2]
    assert [size["rows"] for size in task.workloads] == [*range(1, 129, 2)]


CHANGES = {
    "it is no definition": {"inputs": None},
    "an axis or input cannot be a name of Python here": {"axes": {"torch": {"type": "var"}}},
    "the reference is not valid Python": {"reference": "def run("},
    "the reference lacks a function": {"reference": "def forward(x): pass"},
    "the reference uses a name of the program made of it": {"reference": files.REFERENCE + "\n\nclass Model: pass\n"},
    "the reference imports nowhere_to_be_found, which is not installed": {
        "reference": "import nowhere_to_be_found\n" + files.REFERENCE
    },
    "an axis has neither a value nor an expression of others": {
        "axes": {**files.DEFINITION["axes"], "columns": {"type": "expr", "expression": "open('x')"}}
    },
    "the shape of an input names what is no axis": {
        "inputs": {**files.DEFINITION["inputs"], "x": {"shape": ["nothing"], "dtype": "float32"}}
    },
    "no workload's inputs can be drawn": {
        "inputs": {**files.DEFINITION["inputs"], "x": {"shape": ["rows"], "dtype": "float4_e2m1fn_x2"}}
    },
}


@pytest.mark.parametrize("reason", CHANGES)
def test_a_definition_that_is_no_task_is_listed(tmp_path, reason):
    good, bad = ("a", files.DEFINITION), ("b", {**files.DEFINITION, **CHANGES[reason]})
    for folder, definition in (good, bad):
        files.write_problem(tmp_path / "data" / folder, definition, ROWS)
    written = made(tmp_path, "sol-execbench", tmp_path / "data")[0]
    assert (written.rows, written.refused) == (1, {reason: 1})


@pytest.mark.parametrize(("workloads", "reason"), [
    ([], "there are no workloads"),
    ([{**files.workload(7), "axes": {}}], "a workload lacks an axis"),
    ([files.workload(7, x="custom")], "no workload's inputs can be drawn"),
    ([files.workload(7, eps=None)], "no workload's inputs can be drawn"),
])  # fmt: skip
def test_workloads_that_cannot_be_drawn_are_listed(tmp_path, workloads, reason):
    files.write_problem(tmp_path / "data" / "a", files.DEFINITION, ROWS)
    files.write_problem(tmp_path / "data" / "b", files.DEFINITION, workloads)
    written = made(tmp_path, "sol-execbench", tmp_path / "data")[0]
    assert written.rows == 1
    assert next(iter(written.refused)).startswith(reason)


def test_indices_of_a_file_are_not_drawn(tmp_path):
    stored = {**files.custom(4), "inputs": {"x": {"type": "random"}, "at": {"type": "safetensors", "path": "p"}}}
    files.write_trace(tmp_path / "trace", {**files.CUSTOM, "custom_inputs_entrypoint": None}, [stored])
    with refused("no workload's inputs can be drawn", by=DataError):
        made(tmp_path, "flashinfer-trace", tmp_path / "trace")


def test_a_task_of_the_arena_has_a_size_for_each_case(tmp_path):
    files.write_task(tmp_path / "arena" / "tasks" / "torch2hip" / "scaled")
    _, (row,), (task,) = made(tmp_path, "agentkernelarena", tmp_path / "arena")
    assert (row["extra_info"]["task_id"], row["extra_info"]["entry_point"]) == ("torch2hip/scaled", "Scaled")
    assert "class `ScaledNew`" in row["prompt"][0]["content"]
    (x,), output = drawn(task, task.workloads[2])
    assert (len(task.workloads), tuple(x.shape), output.equal(x.relu() * 2)) == (3, (5, 8), True)


def test_a_module_of_one_case_stays_as_it_is(tmp_path):
    module = files.MODULE.replace("    for rows in (2, 3, 5):\n        yield", "    rows = 4\n    return")
    files.write_task(tmp_path / "arena" / "scaled", module, cases=1)
    (row,) = made(tmp_path, "agentkernelarena", tmp_path / "arena")[1]
    assert row["reward_model"]["ground_truth"] == module


@pytest.mark.parametrize(("changes", "reason"), [
    ({"schema_version": 1}, "a config.yaml is no task of schema version 2"),
    ({"evaluation": {"runner": ["python3", "evaluate.py"]}}, "the reference is no PyTorch module"),
    ({"evaluation": {"runner": ["x", "--module", "../../up.py", "--model-class", "A"]}},
     "a task names a file outside of its folder"),
    ({"cases": 0}, "the file of a task's workloads lists no cases"),
    ({"module": "class Scaled: pass\n"}, "get_inputs does not yield the cases"),
])  # fmt: skip
def test_a_task_of_the_arena_without_a_module_is_listed(tmp_path, changes, reason):
    files.write_task(tmp_path / "arena" / "good")
    files.write_task(tmp_path / "arena" / "bad", **changes)
    written = made(tmp_path, "agentkernelarena", tmp_path / "arena")[0]
    assert (written.rows, written.refused) == (1, {reason: 1})


def test_a_damaged_definition_is_named(tmp_path):
    files.write_problem(tmp_path / "data" / "a", files.DEFINITION, ROWS)
    (file := tmp_path / "data" / "a" / "definition.json").write_text("{")
    with refused(file, "it is no JSON", by=DataError):
        convert_source("sol-execbench", "rows", tmp_path / "data", tmp_path / "out.parquet")
