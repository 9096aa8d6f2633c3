# SPDX-License-Identifier: Apache-2.0
"""Makes a small bench whose kernels the gym really judges on a CPU: python -m tests.bench.page.judged FOLDER [TASKS].

Each task's samples go through three turns, from an early mistake to a better kernel or back.
"""

import asyncio
import sys
from importlib.metadata import version
from pathlib import Path
from random import Random

from tests.bench.scripted_run import Scripted, played
from tests.generated import draw_tasks, one_of
from verl_kernel.bench.models.answers import ModelAnswer, Question
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.env import GymOptions, LocalPool, Task
from verl_kernel.generated_tasks.chains import Program
from verl_kernel.generated_tasks.kinds import Kind

OPTIONS = GymOptions(device="cpu", correctness_trials=2, memory_checks="refuse", compile_for="sm_90")
SAMPLES, TURNS = 2, 3
PATHS = (
    *("broken wrong fused", "outside lazy partial", "wrong fused fused", "none broken wrong"),
    *("partial fused outside", "decoy partial fused", "wrong broken broken", "lazy wrong partial"),
)
_WORDS = "The steps from load to store go into one kernel, so that a row is read once.\n\n```python\n{code}\n```\n"
_NONE = ModelAnswer("I need more time to think about the grid.")


def source(program: Program, kind: str, rng: Random) -> str:
    return one_of(program, Kind(kind), rng).source


def answers(programs: list[Program], rng: Random) -> dict[tuple[str, int, int], ModelAnswer]:
    """The answer to every task, sample and turn."""
    found = {}
    for number, (program, sample) in enumerate((program, sample) for program in programs for sample in range(SAMPLES)):
        for turn, kind in enumerate(PATHS[number % len(PATHS)].split(), 1):
            said = _NONE if kind == "none" else ModelAnswer(_WORDS.format(code=source(program, kind, rng)))
            found[program.task_id, sample, turn] = said
    return found


def main(folder: Path, tasks: int) -> None:
    programs = draw_tasks(tasks, Random(14))
    known = answers(programs, Random(14))
    items = (SuiteItem(Task(p.reference, p.task_id), (), level=p.level, family=p.steps[0].op.family) for p in programs)

    def answer(question: Question) -> ModelAnswer:
        return known[question.item.task.task_id, question.sample, question.turn]

    model = Scripted({program.task_id: [answer] * TURNS for program in programs})
    header = {
        "model": "generated kernels", "source": "kernels", "gym": {"memory_checks": "refuse", "compile_for": "sm_90"},
        "versions": {name: version(name) for name in ("verl-kernel", "torch", "triton", "verl")},
    }  # fmt: skip
    options = {"samples": SAMPLES, "turns": TURNS, "seed": 14}
    with LocalPool(OPTIONS, seed=14) as pool:
        asyncio.run(played(folder, Suite("quickstart", tuple(items)), model, pool, header=header, **options))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10)
