# SPDX-License-Identifier: Apache-2.0
"""Runs commands one after another, each within its minutes, and goes on with those that have not ended well.

A step leaves its files in a folder of its name, what it printed in `NAME.log`, and how it ended in `NAME.json`, which
is written last: a step that was killed has none, and is run again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.gpu.driver import tail, wait
from benchmarks.gpu.setting import ROOT
from verl_kernel.env.sandbox.libc import PR_SET_PDEATHSIG, prctl

SHORTEST_S = 5.0
"""A step for which less is left is left out."""
GRACE_S = 20.0
"""For the tables of a step that is interrupted."""


@dataclass(frozen=True)
class Step:
    """A command and its limit."""

    name: str
    minutes: float
    command: Sequence[str]
    """Its arguments after Python's own name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    """Steps whose files it reads: it runs again after any of them did."""
    takes_rest: bool = False
    """It may last until only the minutes of later steps remain; its end is then no failure, and its folder is kept."""


@dataclass(frozen=True)
class StepResult:
    """How a step ended."""

    state: str
    """`done`, `failed`, `stopped` (its minutes were over), `left out` (none were left) or `not begun`."""
    seconds: float = 0.0
    last_words: str = ""


def run_steps(steps: Sequence[Step], out: Path, seconds: float, report: Callable[[], object]) -> bool:
    """Run what is missing within `seconds`, report after each step, and return whether no step failed."""
    out.mkdir(parents=True, exist_ok=True)
    lock = (out / "lock").open("w")  # steps inherit it: one of an hour that was killed may still be ending
    fcntl.flock(lock, fcntl.LOCK_EX)
    ends_at, ran = time.monotonic() + seconds, set[str]()
    for number, step in enumerate(steps):
        if result_of(out, step.name).state == "done" and not ran & {*step.reads}:
            continue
        ran.add(step.name)
        later = sum(60 * after.minutes for after in steps[number + 1 :] if step.takes_rest)
        left = ends_at - time.monotonic()
        try:
            _run(step, out, left - later if step.takes_rest else min(left, 60 * step.minutes), lock.fileno())
        finally:  # also when all is ended from outside
            report()
    return all(result_of(out, step.name).state != "failed" for step in steps)


def result_of(out: Path, name: str) -> StepResult:
    """How a step ended last."""
    path = out / f"{name}.json"
    return StepResult(**json.loads(path.read_text())) if path.exists() else StepResult("not begun")


def _run(step: Step, out: Path, limit: float, lock: int) -> None:
    folder, begun = out / step.name, time.monotonic()
    (out / f"{step.name}.json").unlink(missing_ok=True)
    if not step.takes_rest:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    if limit < SHORTEST_S:
        _write(out, step.name, StepResult("left out", 0.0, "no time was left for it"))
        return
    with (out / f"{step.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *step.command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, **step.environment}, start_new_session=True, preexec_fn=_ends_as_it_should,
            pass_fds=[lock],
        )  # fmt: skip
        code = wait(process, limit, GRACE_S)
    state = {0: "done", None: "stopped"}.get(code, "failed")
    words = "" if state == "done" else f"status {code}: {tail(Path(log.name), 0)}"
    _write(out, step.name, StepResult(state, round(time.monotonic() - begun, 1), words))


def _ends_as_it_should() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # where the whole is killed: the next one must not meet this step
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it


def _write(out: Path, name: str, result: StepResult) -> None:
    part = out / f"{name}.json.part"
    part.write_text(json.dumps(asdict(result), indent=1))
    part.replace(out / f"{name}.json")
