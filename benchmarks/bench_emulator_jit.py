# SPDX-License-Identifier: Apache-2.0
"""How long the emulator takes to make a kernel's native code, phase by phase, and to run it.

Run: python benchmarks/bench_emulator_jit.py [--only sort] [--rounds 5] [--against FOLDER]. Seconds are of the process's
own time, without a cache of native code. `--against` names another checkout of this repository: both run each kernel by
turns, in processes of their own, and the last columns are the ratios of this one's to that one's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
PHASES = ("parse", "write", "library", "code")


def main() -> None:
    """Print the table, or one kernel's numbers where another process asks for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, arguments.rounds)))
        return
    against = arguments.against.resolve() if arguments.against else None
    table = Table("kernel", "instructions", *(f"{name} s" for name in PHASES), "run ms")
    for title in ("code ratio", "run ratio") if against else ():
        table.add_column(title)
    names = json.loads(_python(ROOT, "from benchmarks.emulator_kernels import launches; import json\n"
                                     "print(json.dumps([name for name, _ in launches()]))"))  # fmt: skip
    for name in names:
        if arguments.only in name:
            table.add_row(*_row(name, arguments.rounds, against))
    Console().print(table)


def _row(name: str, rounds: int, against: Path | None) -> list[str]:
    own, other = _least(name, rounds, ROOT), _least(name, rounds, against) if against else None
    if against and other:  # once more, so that what else the machine does meets both
        own = _lower(own, _least(name, rounds, ROOT))
        other = _lower(other, _least(name, rounds, against))
    row = [name, str(own["instructions"]), *(f"{own[phase]:.3f}" for phase in PHASES), f"{1e3 * own['run']:.2f}"]
    return row + [f"{own[key] / other[key]:.2f}" for key in ("code", "run") if other]


def _lower(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {key: min(first[key], second[key]) for key in first}


def _least(name: str, rounds: int, checkout: Path) -> dict[str, Any]:
    """A kernel's numbers by the code of a checkout."""
    words = (str(Path(__file__)), "--measure", name, "--rounds", str(rounds))
    return dict(json.loads(_run(checkout, words)))


def _python(checkout: Path, code: str) -> str:
    return _run(checkout, ("-c", code))


def _run(checkout: Path, words: tuple[str, ...]) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = {**kept, "PYTHONPATH": f"{checkout}:{ROOT}"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, cwd=checkout)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.splitlines()[-1]


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Seconds of each phase, and the least ones of a launch."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from emulator_kernels import launches

    from verl_kernel.env.emulator import code, driver
    from verl_kernel.env.emulator import kernel as kernels
    from verl_kernel.env.emulator.lowering.function import module
    from verl_kernel.env.emulator.ptx.parser import parse

    driver.activate()
    kernel, grid, arguments, options = dict(launches())[name]
    made = kernel.warmup(*arguments, grid=grid, **options)
    ptx, library = made.asm["ptx"], kernels.library()
    text = ptx if isinstance(ptx, str) else ptx.decode()
    found: dict[str, Any] = {}
    program = _timed(found, "parse", lambda: parse(text))
    lowered = _timed(found, "write", lambda: module(program, made.metadata.num_warps))
    _timed(found, "library", lambda: library.need(lowered.library))
    _timed(found, "code", lambda: code.compiled(lowered.text))
    spent: list[float] = []
    launch = kernels.Kernel.launch

    def timed_launch(self: kernels.Kernel, *words: Any, **more: Any) -> Any:
        begun = time.thread_time()
        result = launch(self, *words, **more)
        spent.append(time.thread_time() - begun)
        return result

    kernels.Kernel.launch = timed_launch  # type: ignore[method-assign]
    for _ in range(rounds):
        kernel[grid](*arguments, **options)
    return {"instructions": len(program.instructions), **found, "run": min(spent)}


def _timed(found: dict[str, Any], phase: str, call: Callable[[], Any]) -> Any:
    begun = time.process_time()
    result = call()
    found[phase] = time.process_time() - begun
    return result


if __name__ == "__main__":
    main()
