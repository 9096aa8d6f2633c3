# SPDX-License-Identifier: Apache-2.0
"""Start-up of the CPU recipe: seconds to the beginning of the first training step, and which process spends them.

Runs one training step of this checkout and, with --base, of another one, by turns. Per run a line for every process
that used a second of processor time before the first step: when it started, its seconds, those spent importing.
Usage: python benchmarks/bench_startup.py --quickstart outputs/quickstart [--base CHECKOUT] [--rounds 2]
--python and --base-python name the interpreters of two environments.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "Training Progress"
"""verl's progress bar appears right before the first step."""
POLL_S = 0.3
RECORDER = """
import builtins, os, time
original, depth, spent = builtins.__import__, 0, 0.0
def restart():
    global depth, spent
    depth, spent = 0, 0.0
def recording(*args, **kwargs):
    global depth, spent
    start, depth = time.thread_time(), depth + 1
    try:
        return original(*args, **kwargs)
    finally:
        depth -= 1
        took = time.thread_time() - start
        if depth == 0 and took > 0.001:
            spent += took
            with open(os.path.join(os.environ["BENCH_IMPORTS"], str(os.getpid())), "w") as file:
                file.write(str(spent))
if "BENCH_IMPORTS" in os.environ:
    os.register_at_fork(after_in_child=restart)
    builtins.__import__ = recording
"""
"""A `sitecustomize` that writes down how long the outermost imports of a process take, in its processor time."""


@dataclass
class Process:
    """One process of a run: seconds from the run's start, and of processor time."""

    pid: int
    name: str
    started_s: float
    cpu_s: float = 0.0
    import_s: float = 0.0


@dataclass
class Run:
    """One start of the recipe."""

    begin_s: float
    step_s: float
    processes: list[Process] = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        """Processor time of all processes before the first step."""
        return sum(process.cpu_s for process in self.processes)

    @property
    def import_s(self) -> float:
        """What of it went into imports."""
        return sum(process.import_s for process in self.processes)


def name_of(command: Sequence[str]) -> str:
    """A short name for a command line: the actor of a Ray worker, else the module or script."""
    line = " ".join(command).strip()
    if line.startswith("ray::"):
        return line.split()[0].partition(".")[0].partition("(")[0]
    if "spawn_main" in line:
        return "spawned"
    if "-m" in command:
        return command[command.index("-m") + 1]
    scripts = [Path(word).name for word in command[:4] if word.endswith(".py")]
    return scripts[0] if scripts else Path(command[0]).name if command else "?"


def start(checkout: Path, python: str, quickstart: Path, folder: Path) -> psutil.Popen:
    """Start one step of a checkout's recipe; its output goes to `folder`/train.log."""
    (folder / "sitecustomize.py").write_text(RECORDER)
    (folder / "imports").mkdir()
    environment = {
        **os.environ, "VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{folder}:{checkout}",
        "BENCH_IMPORTS": str(folder / "imports"), "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
    }  # fmt: skip
    command = [
        python, "-m", "verl.trainer.main_ppo", "--config-name=cpu_quickstart", f"quickstart_dir={quickstart}",
        f"hydra.run.dir={folder}/hydra", f"trainer.rollout_data_dir={folder}/rollouts",
        "trainer.total_training_steps=1", "trainer.val_before_train=false", "trainer.test_freq=-1",
        "trainer.save_freq=-1",
    ]  # fmt: skip
    with (folder / "train.log").open("w") as log:
        return psutil.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)


def measure(checkout: Path, python: str, quickstart: Path) -> Run:
    """Run one step and watch its processes until it begins.

    Raises:
        RuntimeError: the trainer failed.
    """
    with tempfile.TemporaryDirectory(prefix="bench_startup_") as name:
        folder, began = Path(name), time.time()
        driver = start(checkout, python, quickstart, folder)
        seen: dict[int, Process] = {}
        while driver.poll() is None and BEGIN not in (folder / "train.log").read_text(errors="replace"):
            watch(driver, began, seen)
            time.sleep(POLL_S)
        begin_s = time.time() - began
        for process in seen.values():
            process.import_s = imported_s(folder / "imports" / str(process.pid))
        if driver.wait():
            raise RuntimeError("".join((folder / "train.log").read_text(errors="replace").splitlines(True)[-30:]))
        return Run(begin_s, step_s((folder / "metrics.jsonl").read_text()), list(seen.values()))


def watch(driver: psutil.Process, began: float, seen: dict[int, Process]) -> None:
    """Note name and processor time of all processes of the run."""
    for process in [driver, *driver.children(recursive=True)]:
        try:
            times, command = process.cpu_times(), process.cmdline()
            entry = seen.setdefault(process.pid, Process(process.pid, "", process.create_time() - began))
        except psutil.Error:
            continue
        entry.name = name_of(command) if command else entry.name
        entry.cpu_s = times.user + times.system


def imported_s(path: Path) -> float:
    """Seconds that the recorder has written down for a process."""
    text = path.read_text() if path.exists() else ""
    return float(text or 0)


def step_s(metrics: str) -> float:
    """Seconds of the first training step, from the lines of verl's file logger."""
    steps = (json.loads(line)["data"] for line in metrics.splitlines())
    return float(next(step["timing_s/step"] for step in steps if "timing_s/step" in step))


def table(run: Run, least_s: float = 1.0) -> str:
    """The processes of a run in the order of their starts, and what the small ones add up to."""
    lines = [f"{'process':34} {'starts':>7} {'cpu s':>7} {'imports':>8}"]
    shown = sorted((p for p in run.processes if p.cpu_s >= least_s), key=lambda p: p.started_s)
    lines += [f"{p.name[:34]:34} {p.started_s:7.1f} {p.cpu_s:7.1f} {p.import_s:8.1f}" for p in shown]
    rest = [p for p in run.processes if p.cpu_s < least_s]
    lines.append(f"{f'{len(rest)} others':34} {'':7} {sum(p.cpu_s for p in rest):7.1f}")
    lines.append(f"{'all':34} {'':7} {run.cpu_s:7.1f} {run.import_s:8.1f}")
    return "\n".join(lines)


def summary(label: str, runs: Sequence[Run]) -> str:
    """The medians of several runs in one line."""
    begin, cpu, step = (statistics.median(getattr(run, key) for run in runs) for key in ("begin_s", "cpu_s", "step_s"))
    return f"{label}: first step begins after {begin:.1f} s ({cpu:.1f} s of processor time) and takes {step:.1f} s"


def ratios(ours: Sequence[Run], base: Sequence[Run]) -> str:
    """Ours over the base's: seconds to the first step, processor time, and seconds of the first step."""
    keys = {"start-up": "begin_s", "processor time": "cpu_s", "first step": "step_s"}
    quotient = {
        what: statistics.median(getattr(run, key) for run in ours)
        / statistics.median(getattr(run, key) for run in base)
        for what, key in keys.items()
    }
    return "ours / base: " + ", ".join(f"{what} {value:.2f}" for what, value in quotient.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quickstart", type=Path, required=True, help="folder of `verl-kernel data quickstart`")
    parser.add_argument("--base", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--base-python", default=sys.executable)
    options = parser.parse_args()
    checkouts = {"ours": (ROOT, options.python)}
    if options.base:
        checkouts["base"] = (options.base.resolve(), options.base_python)
    runs: dict[str, list[Run]] = {label: [] for label in checkouts}
    for _ in range(options.rounds):
        for label, (checkout, python) in checkouts.items():
            run = measure(checkout, python, options.quickstart.resolve())
            runs[label].append(run)
            print(f"{summary(label, [run])}\n{table(run)}\n", flush=True)
    for label in runs:
        print(summary(label, runs[label]))
    if options.base:
        print(ratios(runs["ours"], runs["base"]))


if __name__ == "__main__":
    main()
