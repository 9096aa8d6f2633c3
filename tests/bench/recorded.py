# SPDX-License-Identifier: Apache-2.0
"""Bench runs as they lie on disk."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.env import EvalResult

HEADER: dict[str, Any] = {
    "suite": "cpu", "suite_hash": "s1", "tasks": 2, "model": "toy", "source": "kernels", "samples": 2, "turns": 2,
    "context": "concat", "temperature": 1.0, "top_p": 1.0, "max_tokens": 100, "seed": 0, "device": "cpu",
    "baseline": "eager", "gym": {}, "versions": {"torch": "2"}, "started": "2026-01-02T03:04:05+00:00",
}  # fmt: skip
OK = {"status": "ok", "correctness": True, "compiled": True, "decoy_kernel": False, "timing_source": "simulated"}
WRONG = {"status": "incorrect", "correctness": False, "compiled": True}
CODE = "import math\n\n\nclass ModelNew:\n    tau = 2 * math.pi\n"


def timed(speedup: float, **fields: Any) -> dict[str, Any]:
    """A verdict on a correct candidate, whose reference takes 1 ms."""
    kernel_ms = {"median": 1 / speedup, "p20": 1 / speedup, "p80": 1 / speedup, "mean": 1 / speedup, "n": 5}
    reference_ms = dict.fromkeys(("median", "p20", "p80", "mean"), 1.0) | {"n": 5}
    return {**OK, "speedup": speedup, "kernel_ms": kernel_ms, "reference_ms": reference_ms, **fields}


def turn(task: str, sample: int, number: int, verdict: dict[str, Any], **fields: Any) -> BenchTurn:
    result = EvalResult(task_id=task, **verdict)
    facts = {"task_hash": f"hash of {task}", "reward": 0.0, "code": CODE} | fields
    return BenchTurn(task_id=task, sample=sample, turn=number, result=result, **facts)


def write_run(folder: Path, turns: Iterable[BenchTurn], tasks: Iterable[SuiteTask] = (), /, **header: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(RunHeader(**(HEADER | header)).model_dump_json())
    (folder / "turns.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in turns))
    if tasks:
        (folder / "tasks.jsonl").write_text("".join(one.model_dump_json() + "\n" for one in tasks))
    return folder
