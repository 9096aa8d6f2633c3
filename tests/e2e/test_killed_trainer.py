# SPDX-License-Identifier: Apache-2.0
"""Killing the trainer leaves no process behind: not Ray's, not vLLM's, not the gym's."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import TRAINER, environment, overrides

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray]

GRACE_S = 60


def test_nothing_outlives_a_killed_trainer(quickstart: Path, tmp_path: Path):
    command = [*TRAINER, *overrides(tmp_path)]
    with (tmp_path / "train.log").open("w") as log:
        trainer = subprocess.Popen(
            command, cwd=tmp_path, env=environment(tmp_path), stdout=log, stderr=subprocess.STDOUT
        )
    family: set[psutil.Process] = set()
    try:
        metrics = tmp_path / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.stat().st_size or trainer.poll() is not None, seconds=400)
        assert trainer.poll() is None, (tmp_path / "train.log").read_text(errors="replace")[-3000:]
        family = relatives(tmp_path)
        names = " ".join(" ".join(process.cmdline()) for process in family if process.is_running())
        assert "raylet" in names and "verl_kernel.env" in names
    finally:
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
    wait_for(lambda: not alive(family), seconds=GRACE_S)
    assert not [process.cmdline() for process in alive(family)]


def relatives(folder: Path) -> set[psutil.Process]:
    """Processes whose environment names this run's folder: whatever the trainer started, however detached."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("VERL_KERNEL_TEST_RUN") == str(folder):
                found.add(process)
        except psutil.Error:
            continue
    own = psutil.Process()
    return {process for process in found if process != own} | {
        child for process in found for child in descendants(process)
    }


def descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def alive(family: set[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def wait_for(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)
