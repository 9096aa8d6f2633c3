# SPDX-License-Identifier: Apache-2.0
"""Folders of benches as tests need them, without a gym."""

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from tests.bench import recorded
from tests.generated import draw_tasks
from verl_kernel.bench.records import BenchTurn, RunHeader, SuiteTask
from verl_kernel.env import EvalResult, EvalStatus, Task, Timing
from verl_kernel.generated_tasks.answers import all_answers
from verl_kernel.generated_tasks.verdicts import expected_verdict

HOSTILE = (
    "</script></style></pre><script>window.hostile = 1</script><img src=x onerror='window.hostile = 2'> & '\" "
    "{{ 7 * 7 }} {% raw %} <!--<script>"
)
"""What a page must show as text."""


def header(tasks: int, **changes: Any) -> RunHeader:
    own = {"source": "vllm", "turns": 3, "context": "top_w", "window": 4, "tasks": tasks, "model": "a-model"}
    return RunHeader(**recorded.HEADER | own | changes)


def answer(task: str = "t1", sample: int = 0, turn: int = 1, **changes: Any) -> BenchTurn:
    """An answer; keywords that are no fields of it are the result's."""
    own = {key: changes.pop(key) for key in list(changes) if key in BenchTurn.model_fields}
    result = EvalResult(**{"task_id": task, "status": EvalStatus.INCORRECT} | changes)
    return BenchTurn(**{"task_id": task, "task_hash": "h", "sample": sample, "turn": turn, "result": result,
                        "reward": 0.0} | own)  # fmt: skip


def right(task: str = "t1", sample: int = 0, turn: int = 1, speedup: float = 1.5, **changes: Any) -> BenchTurn:
    """A correct answer on the simulated clock."""
    times = {"kernel_ms": timing(0.01), "reference_ms": timing(0.01 * speedup)}
    facts = {"status": EvalStatus.OK, "compiled": True, "correctness": True, "speedup": speedup}
    return answer(task, sample, turn, **facts | times | {"timing_source": "simulated", "code": "pass"} | changes)


def timing(median: float, spread: float = 0.05) -> Timing:
    return Timing(median=median, p20=median * (1 - spread), p80=median * (1 + spread), mean=median, n=100)


def tasks_of(turns: Iterable[BenchTurn]) -> Iterable[SuiteTask]:
    """Their tasks, in the order of their first answers."""
    first: dict[str, BenchTurn] = {}
    for one in turns:
        first.setdefault(one.task_id, one)
    fields = {"task_id", "task_hash", "level", "family"}
    return [SuiteTask(**one.model_dump(include=fields), reference=f"class Model: {HOSTILE}") for one in first.values()]


def write_run(folder: Path, turns: Iterable[BenchTurn], head: RunHeader | None = None) -> Path:
    tasks = list(tasks_of(turns := list(turns)))
    return recorded.write_run(folder, turns, tasks, **dict(head or header(len(tasks))))


def generated(tasks: int, samples: int, turns: int, seed: int = 0) -> list[BenchTurn]:
    """Answers with generated kernels and the verdicts that they would get, each with some thinking around it."""
    rng, found = Random(seed), []
    for program in draw_tasks(tasks, rng):
        task, known = Task(program.reference, program.task_id), all_answers(program, rng)
        for sample in range(samples):
            for turn in range(1, turns + 1):
                variant = rng.choice(known)
                result = expected_verdict(variant, rng)
                if result.rewarded:
                    spent, low = timing(0.004 / (result.speedup or 1.0)), (result.speedup or 1.0) * 0.97
                    times = {"kernel_ms": spent, "reference_ms": timing(0.004), "speedup_low": low}
                    result = result.model_copy(update=times | {"timing_source": "simulated", "compiled": True})
                thinking = " ".join(rng.choice(_WORDS) for _ in range(600))
                found.append(BenchTurn(
                    task_id=task.task_id, task_hash=task.text_hash, sample=sample, turn=turn, result=result,
                    reward=result.speedup or 0.0, code=variant.source, shown=tuple(range(1, turn)),
                    completion=f"<think>{thinking}</think>\n```python\n{variant.source}```", prompt_tokens=400 * turn,
                    completion_tokens=900, generate_s=7.5, judge_s=1.2, level=program.level,
                    family=program.steps[0].op.family,
                ))  # fmt: skip
    return found


_WORDS = [
    *"the kernel should load one row of x into registers and reduce it with tl.sum before it stores".split(),
    *"mask offsets BLOCK program_id grid tile stride pointer float32 accumulator occupancy launch overhead".split(),
    *(f"x{number} = tl.load(x_ptr + {number} * cols)" for number in range(200)),
]
