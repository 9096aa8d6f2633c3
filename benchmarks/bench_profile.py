# SPDX-License-Identifier: Apache-2.0
"""What profiles add to an evaluation that compiles: this checkout and one without them, in turns.

    python benchmarks/bench_profile.py --base ../checkout_without_profiles [--evaluations 6] [--rounds 3]

Both judge the kernels of `bench_memory_checks.py`, each under names of its own, so that every evaluation compiles.
Times are processor time of the judge with all its processes, the mean of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench_memory_checks import CASES, Case, processor_s
from rich.console import Console
from rich.table import Table

from verl_kernel.env import EvalStatus, GymOptions, LocalPool

BAR = 1.1
"""An evaluation with a profile may take this many times one without."""
ROOT = Path(__file__).resolve().parents[1]


def own_source(case: Case, number: int) -> str:
    """Return an answer whose kernel has a name that no other answer's has."""
    return case.source(number).replace("kernel(", f"kernel_{number}(").replace("kernel[", f"kernel_{number}[")


async def spent_ms(pool: LocalPool, case: Case, first: int, count: int) -> float:
    """Return the milliseconds of processor time of an evaluation."""
    await pool.evaluate(case.task, own_source(case, first))  # prepares the reference
    before = processor_s(pool)
    for number in range(first + 1, first + 1 + count):
        result = await pool.evaluate(case.task, own_source(case, number))
        assert result.status is EvalStatus.OK, (case.name, result.error)
    return 1e3 * (processor_s(pool) - before) / count


def judge_all(count: int) -> None:
    """Print a line of JSON: milliseconds of an evaluation, by case."""
    with LocalPool(GymOptions(device="cpu", compile_for="sm_90")) as pool:
        found = {case.name: asyncio.run(spent_ms(pool, case, 1000 * at, count)) for at, case in enumerate(CASES)}
    print(json.dumps(found))


def in_checkout(checkout: Path, count: int) -> dict[str, float]:
    """Run `judge_all` with the package of a checkout."""
    path = f"{checkout}{os.pathsep}{ROOT / 'benchmarks'}"
    command = [sys.executable, __file__, "--evaluations", str(count)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="a checkout without profiles")
    parser.add_argument("--evaluations", type=int, default=6, help="of each kernel in a round")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.base is None:
        judge_all(given.evaluations)
        return
    runs = [
        [in_checkout(checkout.resolve(), given.evaluations) for checkout in (given.base, ROOT)]
        for _ in range(given.rounds)
    ]
    table = Table("kernel", "without, ms", "with, ms", "ratio", f"at most {BAR}", title="profiles")
    for name in [*(case.name for case in CASES), "all"]:
        base, own = (statistics.fmean(_of(run[side], name) for run in runs) for side in (0, 1))
        table.add_row(name, f"{base:.1f}", f"{own:.1f}", f"{own / base:.3f}", "yes" if own / base <= BAR else "NO")
    Console(width=120).print(table)


def _of(run: dict[str, float], name: str) -> float:
    return sum(run.values()) if name == "all" else run[name]


if __name__ == "__main__":
    main()
