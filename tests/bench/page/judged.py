# SPDX-License-Identifier: Apache-2.0
"""Makes a small bench whose kernels the gym really judges on a CPU: python -m tests.bench.page.judged FOLDER [TASKS].

Each task's samples go through three turns, from an early mistake to a better kernel or back.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from random import Random

from tests.generated import draw_tasks, one_of
from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.env import EvalResult, GymOptions, LocalPool, Task
from verl_kernel.reward.extract import no_program
from verl_kernel.reward.profiling import profiling_reward
from verl_kernel.world.chains import Program
from verl_kernel.world.kinds import Kind

OPTIONS = GymOptions(device="cpu", correctness_trials=2, memory_checks="refuse", compile_for="sm_90")
SAMPLES, TURNS = 2, 3
PATHS = (
    ("broken", "wrong", "fused"),
    ("outside", "lazy", "partial"),
    ("wrong", "fused", "fused"),
    ("none", "broken", "wrong"),
    ("partial", "fused", "outside"),
    ("decoy", "partial", "fused"),
    ("wrong", "broken", "broken"),
    ("lazy", "wrong", "partial"),
)
_WORDS = "The steps from load to store go into one kernel, so that a row is read once.\n\n```python\n{code}\n```\n"


def source(program: Program, kind: str, rng: Random) -> str | None:
    """A candidate of a kind; None for an answer without a program."""
    if kind == "none":
        return None
    return one_of(program, Kind(kind), rng).source


def answers(programs: list[Program], rng: Random) -> Iterator[tuple[Program, int, int, str | None]]:
    """Task, sample, turn and source of every answer."""
    for number, program in enumerate(programs):
        for sample in range(SAMPLES):
            path = PATHS[(number * SAMPLES + sample) % len(PATHS)]
            for turn, kind in enumerate(path, 1):
                yield program, sample, turn, source(program, kind, rng)


def record(program: Program, sample: int, turn: int, code: str | None, result: EvalResult, seconds: float) -> BenchTurn:
    """The line of a judged answer."""
    task = Task(program.reference, program.task_id)
    text = "I need more time to think about the grid." if code is None else _WORDS.format(code=code)
    return BenchTurn(
        task_id=task.task_id, task_hash=task.text_hash, sample=sample, turn=turn, result=result,
        reward=round(profiling_reward(result), 4), completion=text, code=code,
        failure="no_code" if code is None else None, shown=tuple(range(1, turn)),
        judge_s=round(seconds, 2), level=program.level, family=program.steps[0].op.family,
    )  # fmt: skip


def header(tasks: list[Task]) -> RunHeader:
    """The header of the run."""
    digest = hashlib.sha256("".join(task.text_hash for task in tasks).encode()).hexdigest()
    return RunHeader(
        suite="quickstart", suite_hash=digest, tasks=len(tasks), model="generated kernels", source="kernels",
        samples=SAMPLES, turns=TURNS, context="concat", temperature=0.0, top_p=1.0, max_tokens=0, seed=14,
        device="cpu", baseline="eager", gym={"memory_checks": "refuse", "compile_for": "sm_90"},
        versions={name: version(name) for name in ("verl-kernel", "torch", "triton", "verl")},
        started=datetime.now(timezone.utc).isoformat(timespec="minutes"),
    )  # fmt: skip


def main(folder: Path, tasks: int) -> None:
    """Judge, and write the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = draw_tasks(tasks, Random(14))
    named = [Task(program.reference, program.task_id) for program in programs]
    lines = [
        SuiteTask(
            task_id=task.task_id,
            task_hash=task.text_hash,
            level=program.level,
            family=program.steps[0].op.family,
            reference=program.reference,
        )
        for task, program in zip(named, programs, strict=True)
    ]
    (folder / "run.json").write_text(header(named).model_dump_json(indent=1) + "\n")
    (folder / "tasks.jsonl").write_text("".join(line.model_dump_json() + "\n" for line in lines))
    with LocalPool(OPTIONS, seed=14) as pool, (folder / "turns.jsonl").open("w") as file:
        for program, sample, turn, code in answers(programs, Random(14)):
            task, start = Task(program.reference, program.task_id), time.perf_counter()
            result = no_program(task) if code is None else pool.evaluate_many([(task, code)])[0]
            line = record(program, sample, turn, code, result, time.perf_counter() - start)
            file.write(line.model_dump_json(exclude_defaults=True) + "\n")
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10)
