# SPDX-License-Identifier: Apache-2.0
"""Small files of our own tasks in the exact columns of published data sets."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.generated import draw_conversation, draw_tasks
from verl_kernel.world.chains import Program
from verl_kernel.world.talks import task_messages

MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
REWARD_MODEL = pa.struct({"ground_truth": pa.string(), "style": pa.string()})
DRKERNEL_RL = pa.schema(
    {
        "data_source": pa.string(), "prompt": MESSAGES, "ability": pa.string(), "reward_model": REWARD_MODEL,
        "extra_info": pa.struct(
            {
                "entry_point": pa.string(), "level": pa.null(), "module_name": pa.string(), "ops": pa.string(),
                "original_prompt": MESSAGES, "repo_name": pa.string(), "type": pa.string(), "uuid": pa.string(),
            }
        ),
    }
)  # fmt: skip
DRKERNEL_VALIDATION = pa.schema(
    {
        "data_source": pa.string(), "prompt": MESSAGES, "reward_model": REWARD_MODEL, "ability": pa.string(),
        "extra_info": pa.struct({"difficulty": pa.null(), "name": pa.string(), "problem_id": pa.int64()}),
    }
)  # fmt: skip
DRKERNEL_COLDSTART = pa.schema(
    {
        "messages": MESSAGES, "uuid": pa.int64(), "entry_point": pa.string(), "repo_name": pa.string(),
        "module_name": pa.string(), "final_speedup": pa.float64(), "num_rounds": pa.int64(),
        "original_python_code": pa.string(), "best_round": pa.int64(), "timestamp": pa.float64(),
        "conversion_mode": pa.string(), "enable_thinking": pa.bool_(),
    }
)  # fmt: skip
KERNELBOOK = pa.schema(
    {
        "entry_point": pa.string(), "original_triton_code": pa.string(), "python_code": pa.string(),
        "triton_code": pa.string(), "repo_name": pa.string(), "module_name": pa.string(), "synthetic": pa.bool_(),
        "uuid": pa.int64(), "licenses": pa.list_(pa.string()), "stars": pa.int64(), "sha": pa.string(),
        "repo_link": pa.string(),
    }
)  # fmt: skip
KERNELSMITH_RL = pa.schema(
    {
        "data_source": pa.string(), "message": MESSAGES, "reward_model": REWARD_MODEL,
        "extra_info": pa.struct({"entry_point": pa.string(), "parent_code": pa.string()}),
    }
)  # fmt: skip
KERNELSMITH_SFT = pa.schema({"_id": pa.string(), "messages": MESSAGES})
KERNELBENCH = pa.schema(
    {"code": pa.string(), "level": pa.int64(), "name": pa.string(), "problem_id": pa.int64()}
)  # fmt: skip


def programs(count: int = 3) -> list[Program]:
    return draw_tasks(count, Random(5))


def block(program: Program) -> str:
    """The reference with a class that is not called Model."""
    return program.reference.replace("class Model(", "class Block(")


def write(folder: Path, name: str, count: int = 3) -> Path:
    """A file of a source, or of KernelBench's parquet form."""
    schema, row = _ROWS[name]
    rows = [row(number, program) for number, program in enumerate(programs(count))]
    path = folder / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return path


def _verl(number: int, program: Program) -> dict:
    return {
        "data_source": "cuda_llm", "prompt": task_messages(program), "ability": "kernel_optimization",
        "reward_model": {"ground_truth": program.reference, "style": "rule"},
    }  # fmt: skip


def _drkernel_rl(number: int, program: Program) -> dict:
    info = {
        "entry_point": "Model", "level": None, "module_name": "m", "ops": '["relu"]', "repo_name": "own/tasks",
        "original_prompt": task_messages(program), "type": "fused", "uuid": f"u{number}",
    }  # fmt: skip
    return {**_verl(number, program), "extra_info": info}


def _drkernel_validation(number: int, program: Program) -> dict:
    info = {"difficulty": None, "name": f"{number + 1}_Task", "problem_id": number + 1}
    return {**_verl(number, program), "data_source": "kernelbench_level2_validation", "extra_info": info}


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
    talk = draw_conversation(program, Random(number))
    return {"_id": f"s{number}", "messages": talk}


def _kernelbench(number: int, program: Program) -> dict:
    return {"code": program.reference, "level": 1 + number % 2, "name": f"{number + 1}_T", "problem_id": number + 1}


_ROWS = {
    "drkernel-rl": (DRKERNEL_RL, _drkernel_rl),
    "drkernel-validation": (DRKERNEL_VALIDATION, _drkernel_validation),
    "drkernel-coldstart": (DRKERNEL_COLDSTART, _drkernel_coldstart),
    "kernelbook": (KERNELBOOK, _kernelbook),
    "kernelsmith-rl": (KERNELSMITH_RL, _kernelsmith_rl),
    "kernelsmith-sft": (KERNELSMITH_SFT, _kernelsmith_sft),
    "kernelbench": (KERNELBENCH, _kernelbench),
}
