# SPDX-License-Identifier: Apache-2.0
"""The first hour on a GPU: what the machine is, whether verdicts and times hold there, and a published figure again.

Run: python benchmarks/gpu_hour.py --out DIR [--minutes 60] [--steps NAME ...] [--wheels DIR] [--pretend]
         [--profile h100] [-- --suite=kernelbench:PATH --base-url=URL --model=NAME ...]

The words after `--` are those of `verl-kernel bench`; without them no model is asked. An endpoint on a GPU of its own
leaves the times alone. Each step has minutes of its own, a folder DIR/NAME, DIR/NAME.log and DIR/NAME.json; DIR/page.md
is written after each. The same command goes on with what has not ended well, also after a kill. The status is 0 if no
step failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.bench_gpu import SECTIONS  # noqa: E402  the path comes first
from benchmarks.gpu.setting import PRETENDED_GPU  # noqa: E402
from benchmarks.hour import page  # noqa: E402
from benchmarks.hour.steps import Step, run_steps  # noqa: E402

ALONE = {"environment": 1.0, "isolation": 2.0, "conformance": 4.0, "corpus": 6.0}
"""Minutes of sections of bench_gpu.py that are steps of their own."""
LEVEL = ("--levels=2", "--turns=3", "--float32=tf32")
"""Of the published figures, with the options of the gym of their recipe (verl_kernel/config/drkernel_8b.yaml)."""
PATIENCE = 6
"""How much longer everything may take on a host that pretends: it may be busy."""
DEVICE, PRETENDED_DEVICE = ("--device=cuda", "--memory-mb=36864"), ("--device=cpu",)


def plan(options: argparse.Namespace) -> list[Step]:
    """The steps in order: what later ones build on comes first."""
    patience = PATIENCE if options.pretend else 1
    return [replace(step, minutes=patience * step.minutes) for step in steps_of(options, patience)]


def steps_of(options: argparse.Namespace, patience: int) -> Iterator[Step]:
    """The steps with their minutes on a GPU."""
    out = options.out.resolve()
    platform = {"VERL_PLATFORM": "cpu"} if options.pretend else {}
    yield Step("doctor", 1.0, ("-m", "verl_kernel", "doctor"), with_path("") | platform)
    for name, minutes in ALONE.items():
        yield report_step(options, name, minutes, patience, [name])
    yield report_step(
        options, "bench_gpu", 11.0, patience, [section.name for section in SECTIONS if section.name not in ALONE]
    )
    yield clock_step(options, "clock", ["corpus", "bench_gpu"])
    if options.bench:
        words = (*LEVEL, *(PRETENDED_DEVICE if options.pretend else DEVICE), f"--out={out / 'bench'}", *options.bench)
        path = with_path(str(PRETENDED_GPU) if options.pretend else "")
        yield Step("bench", 20.0, ("-m", "verl_kernel", "bench", *words), path, takes_rest=True)
        yield clock_step(options, "clock of the bench", ["bench"])


def report_step(options: argparse.Namespace, name: str, minutes: float, patience: int, sections: Sequence[str]) -> Step:
    """A run of bench_gpu.py with some of its sections."""
    words = [f"--out={options.out.resolve() / name}", f"--minutes={patience * minutes}", "--sections", *sections]
    words += [f"--wheels={options.wheels.resolve()}"] if options.wheels else []
    words += ["--pretend"] if options.pretend else []
    # It ends by itself within its minutes.
    return Step(name, minutes + 0.5, (str(ROOT / "benchmarks" / "bench_gpu.py"), *words), with_path(""))


def clock_step(options: argparse.Namespace, name: str, sources: Sequence[str]) -> Step:
    """The simulated clock beside the times of other steps' kernels; needs no GPU."""
    out, judges = options.out.resolve(), max(1, (os.cpu_count() or 2) // 2)
    words = (str(out / name / "kernels.parquet"), *(str(out / source) for source in sources))
    choice = ("--", f"--gpu-profile={options.profile}", f"--num-judges={judges}")
    return Step(name, 4.0, ("-m", "benchmarks.hour.clock", *words, *choice), with_path(""), reads=tuple(sources))


def with_path(folder: str) -> dict[str, str]:
    """The environment of a step, which finds this checkout first."""
    paths = (folder, str(ROOT), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}


def main() -> int:
    """Run the steps that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for everything")
    parser.add_argument("--minutes", type=float, help="for all of it; by default 60")
    parser.add_argument("--steps", nargs="+", help="only these")
    parser.add_argument("--wheels", type=Path, help="folder of wheels for what this Python lacks")
    parser.add_argument("--pretend", action="store_true", help="on a pretended GPU")
    parser.add_argument("--profile", default="h100", help="the simulated clock's name of this GPU")
    parser.add_argument("bench", nargs="*", help="words of `verl-kernel bench`, after `--`")
    options = parser.parse_args()
    steps = plan(options)
    if unknown := {*(options.steps or ())} - {step.name for step in steps}:
        parser.error(f"--steps names {', '.join(sorted(unknown))}; there are {', '.join(step.name for step in steps)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [step for step in steps if not options.steps or step.name in options.steps]
    report = partial(page.write, options.out.resolve(), steps, options.pretend)
    minutes = options.minutes or 60 * (PATIENCE if options.pretend else 1)
    has_passed = run_steps(chosen, options.out.resolve(), 60 * minutes, report)
    sys.stdout.write(f"{options.out / page.FILE}\n")
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
