# SPDX-License-Identifier: Apache-2.0
"""Small files of our own in the forms of published tasks with several workloads."""

import json

REFERENCE = """\
import torch


@torch.no_grad()
def run(x, weight, eps):
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    return (x.float() * scale).to(x.dtype) * weight
"""
DEFINITION = {
    "name": "own_norm", "op_type": "rmsnorm", "description": "a norm of rows",
    "axes": {
        "rows": {"type": "var"}, "heads": {"type": "const", "value": 4}, "width": {"type": "const", "value": 16},
        "columns": {"type": "expr", "expression": "heads * width"},
    },
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "bfloat16"}, "weight": {"shape": ["columns"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "columns"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
}  # fmt: skip
PICKED = """\
import torch


def get_inputs(axes_and_scalars, device):
    rows, columns = axes_and_scalars["rows"], axes_and_scalars["columns"]
    return {
        "at": torch.randint(rows, (rows,), device=device),
        "x": torch.randn(rows, columns, device=device),
    }


def run(x, at):
    return x[at]
"""
CUSTOM = {
    "name": "own_rows", "axes": {"rows": {"type": "var"}, "columns": {"type": "const", "value": 8}},
    "inputs": {"x": {"shape": ["rows", "columns"], "dtype": "float32"}, "at": {"shape": ["rows"], "dtype": "int64"}},
    "outputs": {"y": {"shape": ["rows", "columns"], "dtype": "float32"}},
    "custom_inputs_entrypoint": "get_inputs", "reference": PICKED,
}  # fmt: skip
MODULE = """\
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.relu(x) * self.factor


def get_inputs():
    for rows in (2, 3, 5):
        yield [torch.randn(rows, 8)]


def get_init_inputs():
    return [[], {"factor": 2.0}]
"""


def workload(rows, eps=1e-6, **kinds):
    """A workload of `DEFINITION`."""
    random = {name: {"type": kinds.get(name, "random")} for name in ("x", "weight")}
    return {"uuid": f"u{rows}", "axes": {"rows": rows}, "inputs": {**random, "eps": {"type": "scalar", "value": eps}}}


def custom(rows):
    """A workload of `CUSTOM`."""
    return {"uuid": f"u{rows}", "axes": {"rows": rows}, "inputs": {name: {"type": "custom"} for name in ("x", "at")}}


def columns(definition, workloads):
    """A row of SOL-ExecBench's parquet files on the hub."""
    texts = {key: json.dumps(definition[key]) for key in ("axes", "inputs", "outputs")}
    names = ("name", "description", "reference", "custom_inputs_entrypoint")
    return {**{key: definition.get(key) for key in names}, **texts, "workloads": json.dumps(workloads)}


def write_problem(folder, definition, workloads):
    """A problem's folder of SOL-ExecBench."""
    folder.mkdir(parents=True)
    (folder / "definition.json").write_text(json.dumps(definition))
    (folder / "workload.jsonl").write_text("".join(json.dumps(each) + "\n" for each in workloads))


def write_trace(root, definition, workloads):
    """A definition and its workloads in the folders of FlashInfer-Bench's data set."""
    name, kind = definition["name"], definition.get("op_type", "other")
    for folder in ("definitions", "workloads"):
        (root / folder / kind).mkdir(parents=True, exist_ok=True)
    (root / "definitions" / kind / f"{name}.json").write_text(json.dumps(definition))
    lines = [{"definition": name, "workload": each, "solution": None, "evaluation": None} for each in workloads]
    (root / "workloads" / kind / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_task(folder, module=MODULE, cases=3, **config):
    """A task's folder of AgentKernelArena."""
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "scaled.py").write_text(module)
    cases = [{"test_case_id": f"case_{number}", "params": {}} for number in range(cases)]
    (folder / "workload.json").write_text(json.dumps({"cases": cases}))
    runner = ["python3", "evaluate.py", "--module", "modules/scaled.py", "--model-class", "Scaled"]
    task = {
        "schema_version": 2, "candidate": {"language": "hip", "editable": ["k.hip"]},
        "evaluation": {"runner": runner, "workloads": "workload.json"},
    }  # fmt: skip
    (folder / "config.yaml").write_text(json.dumps({**task, **config}))
