# SPDX-License-Identifier: Apache-2.0
"""What the compile stage adds to an evaluation, off, cold and with outcomes that are remembered.

Run: python benchmarks/bench_compile.py [--kernels 12] [--target sm_90]. Each candidate is a kernel of another text, of
the quickstart's kinds; the three evaluations of a candidate follow each other, so that what else the machine does
meets all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from random import Random

from rich.console import Console
from rich.table import Table

from verl_kernel.env import GymOptions, Judge, Task
from verl_kernel.generated_tasks.answers import right_answers
from verl_kernel.generated_tasks.difficulty import read_difficulty
from verl_kernel.generated_tasks.generator import World

OFF = GymOptions(device="cpu", correctness_trials=2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=12)
    parser.add_argument("--target", default="sm_90")
    arguments = parser.parse_args()
    rows, start_s = measured(arguments.kernels, arguments.target)
    table = Table(
        "evaluation", "median s", "added s", "waited for the compiler s", title=f"{arguments.kernels} candidates"
    )
    base = statistics.median(seconds for seconds, _ in rows["off"])
    for name, pairs in rows.items():
        median, waited = (statistics.median(column) for column in zip(*pairs, strict=True))
        table.add_row(name, f"{median:.3f}", f"{median - base:+.3f}", f"{waited:.3f}")
    Console().print(table)
    Console().print(f"a judge's compile zygote starts in {start_s:.1f} s, beside the other one")


def measured(count: int, target: str) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """Seconds of each evaluation and of its stage `compile`, and seconds of the start of the compile zygote."""
    rng = Random(0)
    programs = World(read_difficulty("easy")).tasks(count, rng, set())
    rows: dict[str, list[tuple[float, float]]] = {"off": [], "cold": [], "remembered": []}
    with Judge(replace(OFF, compile_for=target), seed=0) as on, Judge(OFF, seed=0) as off:
        begun = time.perf_counter()
        on.processes.compiling.start()
        start_s = time.perf_counter() - begun
        on.warm_up()
        off.warm_up()
        for program in programs:
            source = right_answers(program)[0].source
            task = Task(program.reference, program.task_id)
            for judge in (on, off):
                judge._reference(task)
            for name, judge in (("off", off), ("cold", on), ("remembered", on)):
                rows[name].append(timed(judge, task, f"# {name}\n{source}"))
    return rows, start_s


def timed(judge: Judge, task: Task, source: str) -> tuple[float, float]:
    """One evaluation, which must be right."""
    begun = time.perf_counter()
    result = judge.evaluate(task, source)
    assert result.rewarded, result.error
    return time.perf_counter() - begun, result.stage_seconds.get("compile", 0.0)


if __name__ == "__main__":
    main()
