# SPDX-License-Identifier: Apache-2.0
"""Small files of our own tasks in the exact columns of published data sets."""

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.generated import draw_conversation, draw_tasks
from verl_kernel.generated_tasks.chains import Program
from verl_kernel.generated_tasks.conversations import task_messages

ONE_SIZE = ("kernelbench", "drkernel-rl", "drkernel-validation", "kernelbook", "kernelsmith-rl")
"""Sources of rows whose tasks have one size; `sized_files` has the others."""


def programs(count: int = 3) -> list[Program]:
    return draw_tasks(count, Random(5))


def block(program: Program) -> str:
    """The reference with a class that is not called Model."""
    return program.reference.replace("class Model(", "class Block(")


def write(folder: Path, name: str, count: int = 3) -> Path:
    """A file of a source, or of KernelBench's parquet form."""
    path = folder / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist([row_of(name, *each) for each in enumerate(programs(count))]), path)
    return path


def row_of(name: str, number: int, program: Program) -> dict:
    """A row of a source, its columns and their types in the order of the published file."""
    return _ROWS[name](number, program)


def _verl(number: int, program: Program) -> dict:
    return {
        "data_source": "cuda_llm", "prompt": task_messages(program), "ability": "kernel_optimization",
        "reward_model": {"ground_truth": program.reference, "style": "rule"},
    }  # fmt: skip


def _drkernel_rl(number: int, program: Program) -> dict:
    info = {
        "entry_point": "Model", "level": None, "module_name": "m", "ops": '["relu"]',
        "original_prompt": task_messages(program), "repo_name": "own/tasks", "type": "fused", "uuid": f"u{number}",
    }  # fmt: skip
    return {**_verl(number, program), "extra_info": info}


def _drkernel_validation(number: int, program: Program) -> dict:
    info = {"difficulty": None, "name": f"{number + 1}_Task", "problem_id": number + 1}
    row = _verl(number, program) | {"data_source": "kernelbench_level2_validation", "extra_info": info}
    return {key: row[key] for key in ("data_source", "prompt", "reward_model", "ability", "extra_info")}


def _drkernel_coldstart(number: int, program: Program) -> dict:
    talk = draw_conversation(program, Random(number))
    return {
        "messages": (talk * 3)[:10], "uuid": number, "entry_point": "Model", "repo_name": "own/tasks",
        "module_name": "m", "final_speedup": 1.5, "num_rounds": 5, "original_python_code": program.reference,
        "best_round": 2, "timestamp": 0.5, "conversion_mode": "multi", "enable_thinking": False,
    }  # fmt: skip


def _kernelbook(number: int, program: Program) -> dict:
    return {
        "entry_point": "Block", "original_triton_code": "pass", "python_code": block(program), "triton_code": "pass",
        "repo_name": "own/tasks", "module_name": "Block", "synthetic": False, "uuid": number, "licenses": ["MIT"],
        "stars": 0, "sha": "0", "repo_link": "",
    }  # fmt: skip


def _kernelsmith_rl(number: int, program: Program) -> dict:
    truth = json.dumps({"reference_code": block(program), "test": "none"})
    return {
        "data_source": "kernelsmith", "message": task_messages(program),
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"entry_point": "Block", "parent_code": "import triton"},
    }  # fmt: skip


def _kernelsmith_sft(number: int, program: Program) -> dict:
    return {"_id": f"s{number}", "messages": draw_conversation(program, Random(number))}


def _kernelbench(number: int, program: Program) -> dict:
    return {"code": program.reference, "level": 1 + number % 2, "name": f"{number + 1}_T", "problem_id": number + 1}


_ROWS = {
    "drkernel-rl": _drkernel_rl, "drkernel-validation": _drkernel_validation, "drkernel-coldstart": _drkernel_coldstart,
    "kernelbook": _kernelbook, "kernelsmith-rl": _kernelsmith_rl, "kernelsmith-sft": _kernelsmith_sft,
    "kernelbench": _kernelbench,
}  # fmt: skip
