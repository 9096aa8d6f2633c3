# SPDX-License-Identifier: Apache-2.0
"""Runs sections one after another, each in a process of its own with a time limit, and reports after each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import report
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import PRETENDED_GPU, ROOT, Setting

LOG = "output.log"
_LEAST_S, _GRACE_S, _TAIL = 5.0, 5.0, 1500


@dataclass(frozen=True)
class Section:
    """One part of the report."""

    name: str
    module: str
    limit_s: float
    """Longest it may take, on a host that pretends twice as long; less where less of the whole is left."""


def run_sections(sections: Sequence[Section], out: Path, pretend: bool, seconds: float, carried: str = "") -> bool:
    """Run all sections within `seconds` and write the report; whether every one of them ended by itself.

    Args:
        sections: in order; the ones before leave the rest their time.
        out: folder for everything, made if need be.
        pretend: on the pretended device.
        seconds: for all of it.
        carried: folder of packages that this Python lacks.
    """
    out.mkdir(parents=True, exist_ok=True)
    ends_at, states = time.monotonic() + seconds, []
    for section in sections:
        try:
            states.append(_run(section, out, pretend, ends_at, carried))
        finally:  # also when the whole is ended from outside
            report.write(out, [one.name for one in sections], pretend)
    return all(state == "done" for state in states)


def _run(section: Section, out: Path, pretend: bool, ends_at: float, carried: str) -> str:
    findings, begun = Findings(out, section.name), time.monotonic()
    limit = min(section.limit_s * (2 if pretend else 1), ends_at - begun - 2 * _GRACE_S)
    if limit < _LEAST_S:
        findings.outcome("left out", 0.0, "no time was left for it")
        return "left out"
    try:
        state, words = _process(section, Setting(str(out), pretend, begun + limit), out / LOG, carried, limit)
    except BaseException:  # whatever ends the whole ends the section, and is said in the report
        findings.outcome("stopped", time.monotonic() - begun, "everything was stopped from outside")
        raise
    findings.outcome(state, time.monotonic() - begun, words)
    return state


def _process(section: Section, setting: Setting, log: Path, carried: str, limit: float) -> tuple[str, str]:
    """How the section's process ended, and its last words where it did not do so by itself."""
    with log.open("ab") as file:
        file.write(f"\n===== {section.name}\n".encode())
        file.flush()
        start = file.tell()
        code = wait(_start(section, setting, file.fileno(), carried), limit)
    state = {0: "done", None: "stopped"}.get(code, "failed")
    return state, "" if state == "done" else f"status {code}: {tail(log, start)}"


def _start(section: Section, setting: Setting, log: int, carried: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.gpu.section", section.name, section.module, setting.to_json()]
    paths = [str(ROOT), carried, str(PRETENDED_GPU) if setting.pretend else "", os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    if setting.pretend:
        environment["CUDA_VISIBLE_DEVICES"] = ""  # where there is a GPU, it is not pretended to be another
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


def wait(process: subprocess.Popen[bytes], limit: float, grace_s: float = _GRACE_S) -> int | None:
    """Its exit status, or None if it had to be stopped; what it left behind in its session ends with it."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGINT, signal.SIGKILL):  # first an interrupt, so that it may write what it has
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):  # a process that waits for the driver cannot be killed
                process.wait(grace_s)


def tail(log: Path, start: int) -> str:
    """The end of what was printed from byte `start` on, without paths of this machine."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL))
        return file.read().decode(errors="replace").strip().replace(f"{ROOT}/", "")
