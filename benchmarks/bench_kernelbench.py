# SPDX-License-Identifier: Apache-2.0
"""Our answers to tasks of KernelBench, right and wrong ones, judged on a CPU as `verl-kernel eval` does.

    python benchmarks/bench_kernelbench.py KERNELBENCH_DIR [--only 1/19 2/51] [--markdown FILE] [--seed N]

Each answer says in its first lines which verdict is right for it. Ends with 1 if a verdict differs. Speedups are by
the simulated clock: no GPU is used.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402  the path comes first
from rich.table import Table  # noqa: E402

from benchmarks.kernelbench.programs import Program, read_programs, reference_of  # noqa: E402
from verl_kernel.env import EvalResult, GymOptions, LocalPool, Task  # noqa: E402
from verl_kernel.errors import DataError  # noqa: E402

OURS = ROOT / "benchmarks" / "kernelbench" / "runs" / "ours"
COLUMNS = ("task", "sample", "verdict", "expected", "speedup", "coverage", "seconds", "remark")
TIMEOUT_S = 60.0
"""Three times the default: a slower or busier machine must not change a verdict."""
OPTIONS = GymOptions(
    device="cpu", compile_for="sm_90", memory_checks="refuse", true_size="auto",
    reference_timeout_s=TIMEOUT_S, load_timeout_s=TIMEOUT_S, run_timeout_s=TIMEOUT_S,
)  # fmt: skip
"""Those of `verl-kernel eval --timeout 60`."""


@dataclass(frozen=True)
class Verdict:
    """What the gym said of a program, and how long that took."""

    program: Program
    task: str
    result: EvalResult
    seconds: float

    @property
    def deviation(self) -> str:
        """In what it differs from what is expected; empty if in nothing."""
        return self.program.deviation(self.result)

    @property
    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        result, reward = self.result, "" if self.result.rewarded or not self.result.correctness else ", no reward"
        return (
            f"{self.program.level}/{self.task}",
            str(self.program.sample),
            result.status.value + (reward if result.status.value == "ok" else ""),
            self.program.named,
            f"{result.speedup:.2f}x" if result.rewarded and result.speedup is not None else "",
            "" if result.time_coverage is None else f"{result.time_coverage:.0%}",
            f"{self.seconds:.1f}",
            f"NOT AS EXPECTED: {self.deviation}; {_remark(result)}" if self.deviation else _remark(result),
        )


def _remark(result: EvalResult) -> str:
    if result.error is not None:
        return f"{result.error.type}: {result.error.message}".splitlines()[0][:120]
    if result.true_size is not None and result.true_size.unknown is not None:
        return f"no time: {result.true_size.unknown}"[:120]
    return ", ".join((*result.task_flags, *result.hack_flags))


def verdicts(folder: Path, programs: list[Program], seed: int | None) -> Iterator[Verdict]:
    """Judge programs one after the other."""
    with LocalPool(OPTIONS, seed) as pool:
        for program in programs:
            path = reference_of(folder, program)
            job = (Task(path.read_text(encoding="utf-8"), path.stem), program.source, program.path.name)
            start = time.perf_counter()
            (result,) = pool.evaluate_many([job])
            yield Verdict(program, path.stem, result, time.perf_counter() - start)


def as_table(found: list[Verdict]) -> Table:
    """For a terminal."""
    table = Table(*COLUMNS, title="times: simulated")
    for one in found:
        table.add_row(*one.cells, style="red" if one.deviation else "")
    return table


def as_markdown(found: list[Verdict]) -> str:
    """For a page of the documentation."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(one.cells for one in found)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def summary(found: list[Verdict]) -> str:
    """In a sentence."""
    tasks, wrong = len({one.task for one in found}), sum(bool(one.deviation) for one in found)
    seconds = sorted(one.seconds for one in found)
    return (
        f"{len(found)} programs for {tasks} tasks, {wrong} not as expected; "
        f"{seconds[len(seconds) // 2]:.1f} s each (median), {sum(seconds):.0f} s in all"
    )


def _chosen(names: list[str] | None) -> set[tuple[int, int]] | None:
    if names is None:
        return None
    try:
        return {(int(level), int(problem)) for level, problem in (name.split("/") for name in names)}
    except ValueError:
        raise DataError("--only takes a level and a problem, as in 1/19") from None


def main() -> int:
    """Print the table; 1 if a verdict is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="KernelBench's tasks, level1/*.py and so on")
    parser.add_argument("--runs", type=Path, default=OURS, help="folder of answers")
    parser.add_argument("--only", nargs="+", metavar="LEVEL/PROBLEM", help="answers to these tasks alone")
    parser.add_argument("--markdown", type=Path, help="also write the table here")
    parser.add_argument("--seed", type=int, help="draw the same inputs and sizes in every run")
    options = parser.parse_args()
    found = []
    try:
        for one in verdicts(options.folder, read_programs(options.runs, _chosen(options.only)), options.seed):
            found.append(one)
            print(*one.cells, sep="  ", file=sys.stderr, flush=True)
    except DataError as exc:
        sys.exit(f"Error: {exc}")
    Console(width=None if sys.stdout.isatty() else 220).print(as_table(found))
    print(summary(found))
    if options.markdown:
        options.markdown.write_text(as_markdown(found) + f"\n{summary(found)}\n")
    return int(any(one.deviation for one in found))


if __name__ == "__main__":
    sys.exit(main())
