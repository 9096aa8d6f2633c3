# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel watch RUN_DIR -- COMMAND ...`: run a trainer with its output in a file and its progress on screen."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from verl_kernel.data.files import writing_folder
from verl_kernel.errors import ConfigError
from verl_kernel.reporting.steps import COLUMNS, Step, earlier, read_steps

_TOTAL = re.compile(r"Training Progress:.*?(\d+)/(\d+)")
_RESUMED = re.compile(r"Resuming from (.+), setting global step to (\d+)")
_ABSENT = "Checkpoint tracker file does not exist"
_STAGES = {
    "Started a local Ray instance": "Ray is up",
    "Before FSDP": "loading the policy",
    "vLLMHttpServer": "starting vLLM",
    "Training Progress": "training",
}
_TAIL = 40
"""Lines of the trainer's output that are shown if it fails."""
_HYDRAS = "HYDRA_FULL_ERROR"
"""The last words of Hydra's error about a configuration that does not compose."""


def command(
    run_dir: Annotated[Path, typer.Argument(help="Folder for train.log and metrics.jsonl.")],
    argv: Annotated[list[str], typer.Argument(help="The command, after `--`.")],
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run: keep its log and metrics.")] = False,
) -> None:
    """Run a training command and return its exit code; show its last lines if it fails."""
    if shutil.which(argv[0]) is None:
        raise ConfigError(f"{argv[0]} is no command that can be run here: name the trainer's command after `--`")
    with writing_folder(run_dir, "RUN_DIR"):
        _watch(run_dir, argv, resume)


def _watch(run_dir: Path, argv: list[str], resume: bool) -> None:
    metrics = run_dir / "metrics.jsonl"
    shown = {step["step"]: step for step in read_steps(metrics)} if resume and metrics.is_file() else {}
    _clear_metrics(metrics, resume)
    environment = {
        **os.environ,
        "VERL_FILE_LOGGER_PATH": str(metrics.resolve()),
        "TENSORBOARD_DIR": str((run_dir / "tensorboard").resolve()),
    }
    console = Console(soft_wrap=True)
    console.print(f"training; full output in {run_dir / 'train.log'}")
    started = time.monotonic()
    with (run_dir / "train.log").open("a" if resume else "w", encoding="utf-8") as log:
        code, tail = _follow(argv, environment, log, console, metrics=metrics, shown=shown)
    if code:
        console.print("\n".join(tail), markup=False, highlight=False)
        console.print(f"the trainer ended with exit code {code}; all of its output is in {run_dir / 'train.log'}")
        _explain(argv, tail)
        raise typer.Exit(code if code > 0 else 128 - code)
    console.print(f"trained in {time.monotonic() - started:.0f} s")


def _explain(argv: list[str], tail: Iterable[str]) -> None:
    """Explain Hydra's refusal in our words, if it was Hydra that failed."""
    if not any(_HYDRAS in line for line in tail):
        return
    from verl_kernel.preflight.composing import why_refused

    if why := why_refused(argv):
        typer.echo(f"Error: {why}", err=True)


def _clear_metrics(metrics: Path, resume: bool) -> None:
    """Remove the metrics file, which verl truncates; if the run continues, move its records to another file."""
    earlier_records = earlier(metrics)
    if resume and metrics.is_file():
        with earlier_records.open("a", encoding="utf-8") as file:
            file.write(metrics.read_text(encoding="utf-8"))
    elif not resume:
        earlier_records.unlink(missing_ok=True)
    metrics.unlink(missing_ok=True)


def _follow(
    argv: list[str],
    environment: dict[str, str],
    log: IO[str],
    console: Console,
    *,
    metrics: Path,
    shown: dict[int, Step],
) -> tuple[int, deque[str]]:
    tail: deque[str] = deque(maxlen=_TAIL)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    stop_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop_signals.append(number))  # until a trainer has started
    child = subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    if stop_signals:
        child.terminate()
    assert child.stdout is not None
    with child, Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=None)
        for line in child.stdout:
            log.write(line)
            log.flush()
            tail.append(line.rstrip())
            _show(progress, task, line)
            if match := _RESUMED.search(line):
                text = f"resumed from {match[1]}: step {int(match[2]) + 1} is next, with the data that come after it"
                progress.console.print(text, highlight=False, soft_wrap=True)
            elif _ABSENT in line:
                progress.console.print("no checkpoint yet: the run begins at step 1", highlight=False, soft_wrap=True)
            _report_steps(progress, metrics, shown)
    return child.returncode, tail


def _show(progress: Progress, task: Any, line: str) -> None:
    for mark, stage in _STAGES.items():
        if mark in line:
            progress.update(task, description=stage)
    if match := _TOTAL.search(line):
        progress.update(task, completed=int(match[1]), total=int(match[2]))


def _report_steps(progress: Progress, metrics: Path, shown: dict[int, Step]) -> None:
    """Print the steps that are not shown yet; those trained anew since the last checkpoint are other records."""
    for step in read_steps(metrics) if metrics.is_file() else []:
        if step == shown.get(step["step"]):
            continue
        shown[step["step"]] = step
        facts = [f"{name} {step[key]:.3g}" for name, key in COLUMNS.items() if key in step]
        unvalidated = "unvalidated " * bool(step.get("kernel/unvalidated_clock"))
        facts += [f"{unvalidated}simulated times"] * bool(step.get("kernel/simulated_clock"))
        progress.console.print(f"step {step['step']}: {', '.join(facts)}", highlight=False, soft_wrap=True)
