# SPDX-License-Identifier: Apache-2.0
"""Honest programs, compiled for a GPU of AMD: what its compiler takes, with what the kernels use, and what it refuses.

Run: python benchmarks/bench_amd.py [--target gfx942] [--only WORD]. The programs are the controls of the exploit corpus
and right answers to tasks of the quickstart; each must be right on a CPU. Ends with 1 if one has another verdict than
`ok` and a `compile_error` for the target.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.exploits.corpus import load
from tests.exploits.tasks import TASKS
from tests.generated import draw_tasks
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Judge, Task
from verl_kernel.generated_tasks.answers import right_answers

DRAWN = 12
"""Tasks of the quickstart."""


def programs() -> Iterator[tuple[str, Task, str]]:
    """Name, task and source of each program."""
    for case in load():
        if case.honest:
            yield case.name, Task(TASKS[case.task], task_id=case.task), case.source
    for program in draw_tasks(DRAWN, Random(0)):
        for answer in right_answers(program):
            yield f"{program.task_id}/{answer.name}", Task(program.reference, program.task_id), answer.source


def told(result: EvalResult) -> str:
    """The verdict, and what each kernel uses or why there is none."""
    if result.error is not None:
        return f"{result.status.value}: {result.error.type}: {result.error.message}"
    return "; ".join([result.status.value, *(
        f"{one.name}: {one.registers} registers, {one.spills} bytes spilled, {one.shared} bytes of LDS, "
        f"{'' if one.matrix else 'no '}matrix instructions, {one.blocks_per_sm} blocks a compute unit"
        for one in result.compiled_kernels or ()
    )])  # fmt: skip


def is_signed(result: EvalResult) -> bool:
    """Whether AMD's compiler refused the program."""
    text = "" if result.error is None else result.error.message
    return result.status is EvalStatus.COMPILE_ERROR and f"compiled for {result.compiled_for}: " in text


def main() -> int:
    """Judge all and print what comes of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="gfx942")
    parser.add_argument("--only", default="", help="judge programs whose names hold this word")
    given = parser.parse_args()
    options = GymOptions(
        device="cpu", compile_for=given.target, correctness_trials=2, ablation=False, run_timeout_s=60
    )  # fmt: skip
    counts = {"compile": 0, "are refused by AMD's compiler": 0, "have another verdict": 0}
    with Judge(options, seed=3) as judge:
        for name, task, source in programs():
            if given.only not in name:
                continue
            result = judge.evaluate(task, source)
            refused, other = list(counts)[1:]
            key = "compile" if result.status is EvalStatus.OK else refused if is_signed(result) else other
            counts[key] += 1
            print(f"{name}: {told(result)}", flush=True)
    print(f"for {given.target}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    return 1 if counts["have another verdict"] else 0


if __name__ == "__main__":
    sys.exit(main())
