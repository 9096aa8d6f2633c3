# SPDX-License-Identifier: Apache-2.0
"""How much faster the emulator runs kernels than Triton's interpreter: the same launches, in turns, each in a process.

Run: python benchmarks/bench_emulator.py [--only softmax] [--rounds 3] [--blocks 64] [--json FILE]. Seconds are of the
process's own time, on one thread. `first` is the first launch in a process without any cache: Triton's compiler, the
emulator's library, the kernel's native code, and the run. `new` is a launch that makes the kernel's native code anew,
`cached` the least of those that have it. The emulator checks and counts every access; the interpreter, Triton's own
without the gym's hooks, checks none. It runs the first blocks of the grid only, and the time of all is theirs times the
number of blocks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
KERNELS = (
    "add, 4 million", "softmax 4096x1024", "softmax, 4096 a row", "layernorm 4096x1024", "layernorm, 8192 a row",
    "matmul 1024 fp16 64x64x32", "matmul 512 fp16 128x128x64", "matmul 512 tf32 64x64x32", "sin + erf + log",
    "attention 8x1024x64",
)  # fmt: skip
"""Ten, of the sizes that published tasks have."""


def main() -> None:
    """Print the table, or one kernel's numbers where another process asks for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=64, help="how many blocks the interpreter runs at most")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure = interpreted if os.environ.get("TRITON_INTERPRET") else executed
        print(json.dumps(measure(arguments.measure, arguments.rounds, arguments.blocks)))
        return
    rows = [_row(name, arguments) for name in KERNELS if arguments.only in name]
    table = Table("kernel", "interpreter s", "of blocks", "first s", "new s", "cached ms", "x new", "x cached")
    for row in rows:
        table.add_row(
            row["kernel"], f"{row['interpreter']:.2f}", row["share"], f"{row['first']:.2f}",
            f"{row['new']:.2f}", f"{1e3 * row['cached']:.1f}",
            f"{row['interpreter'] / row['new']:.0f}", f"{row['interpreter'] / row['cached']:.0f}",
        )  # fmt: skip
    means = [statistics.geometric_mean(row["interpreter"] / row[key] for row in rows) for key in ("new", "cached")]
    table.add_row("geometric mean", *[""] * 5, *(f"{mean:.0f}" for mean in means))
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def _row(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """By turns, so that what else the machine does meets both."""
    turns = [{**_process(name, arguments, True), **_process(name, arguments, False)} for _ in range(2)]
    least = {key: min(turn[key] for turn in turns) for key in ("interpreter", "first", "new", "cached")}
    return {"kernel": name, "share": turns[0]["share"], **least}


def _process(name: str, arguments: argparse.Namespace, is_interpreted: bool) -> dict[str, Any]:
    """A kernel's numbers from a process without a cache."""
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    words = [sys.executable, __file__, "--measure", name]
    words += ["--rounds", str(arguments.rounds), "--blocks", str(arguments.blocks)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**kept, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
        environment |= {"OPENBLAS_NUM_THREADS": "1"} | ({"TRITON_INTERPRET": "1"} if is_interpreted else {})
        done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _launch(name: str) -> Any:
    from benchmarks.emulator_kernels import launches

    return dict(launches())[name]


def executed(name: str, rounds: int, blocks: int) -> dict[str, Any]:
    """Seconds of the first launch, and the least ones of later ones."""
    from verl_kernel.env.emulator import driver

    kernel, grid, arguments, options = _launch(name)
    driver.activate()
    driver._cache = lambda: None  # type: ignore[assignment]  # no native code is kept

    def seconds() -> float:
        return _seconds(lambda: kernel[grid](*arguments, **options))

    first, cached, new = seconds(), min(seconds() for _ in range(rounds)), []
    for _ in range(rounds):
        driver.ready.cache_clear()
        new.append(seconds())
    return {"first": first, "new": min(new), "cached": cached}


def interpreted(name: str, rounds: int, blocks: int) -> dict[str, Any]:
    """The least seconds of a launch of the whole grid, by its first blocks."""
    kernel, grid, arguments, options = _launch(name)
    rest = math.prod(grid[1:])
    some = (min(grid[0], max(1, blocks // rest)), *grid[1:])
    seconds = min(_seconds(lambda: kernel[some](*arguments, **options)) for _ in range(2))
    return {"interpreter": seconds * grid[0] / some[0], "share": f"{some[0] * rest} of {grid[0] * rest}"}


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
