# SPDX-License-Identifier: Apache-2.0
"""Who is on a GPU besides judges, by a driver's list that is made up and processes that are real."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.env.waiting import until
from verl_kernel.env.devices.cuda.driver import compute_processes, count_foreign
from verl_kernel.env.devices.cuda.lock import Sharing
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError
from verl_kernel.reward.options import parse_options

ORPHAN = """
import subprocess, sys
command = [sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[1:]]
child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid)
"""


@pytest.fixture
def orphan():
    """Starts processes that do not descend from this one."""
    pids = []

    def start(*words):
        done = subprocess.run([sys.executable, "-c", ORPHAN, *words], capture_output=True, text=True, check=True)
        pids.append(int(done.stdout))
        # A process that has just begun another program has no command line for a moment.
        until(Path(f"/proc/{pids[-1]}/cmdline").read_bytes)
        return pids[-1]

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def driver(nvml):
    """Makes NVML's package say who computes on the GPU named GPU-1."""

    def pretend(*pids):
        def processes(handle):
            if handle != "GPU-1":
                raise LookupError(handle)
            return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in pids]

        nvml(nvmlDeviceGetComputeRunningProcesses=processes)

    return pretend


def test_judges_and_what_they_started_are_no_strangers(driver, orphan):
    runner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        judge, zygote = orphan("verl_kernel.env.pool.judge_worker"), orphan("verl_kernel.env.runner.zygote")
        driver(os.getpid(), runner.pid, judge, zygote)
        assert count_foreign(compute_processes("GPU-1")) == 0
    finally:
        runner.kill()
        runner.wait()


def test_anybody_else_is_foreign(driver, orphan):
    driver(os.getpid(), orphan(), orphan("train.py"), orphan("verl_kernel.env.workers"))
    assert count_foreign(compute_processes("GPU-1")) == 3


def test_who_has_ended_since_is_nobody(driver):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    driver(os.getpid(), gone.pid)
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    assert count_foreign(compute_processes("GPU-1")) == 0  # though it has not been collected
    gone.wait()
    assert count_foreign(compute_processes("GPU-1")) == 0


def test_numbers_of_another_namespace_say_nothing(driver):
    driver(os.getppid())  # this process, which would use the GPU, has another number there
    assert count_foreign(compute_processes("GPU-1")) is None
    driver(os.getpid())
    assert compute_processes("GPU-2") is None
    assert count_foreign(None) is None


def options(folder, **others):
    return GymOptions(device="cuda", lock_dir=str(folder), **others)


def test_the_worst_that_was_seen_counts(tmp_path):
    looks = [{os.getpid()}, {os.getpid(), os.getppid()}, {os.getpid()}, None]
    sharing = Sharing("GPU-1", options(tmp_path), lambda: looks.pop(0))
    for expected in (1, None):
        with sharing.alone():
            pass
        assert sharing.foreign_processes == expected


def test_who_wants_an_idle_gpu_gets_no_time_on_another(tmp_path):
    looks = [{os.getpid()}, {os.getpid(), os.getppid()}, {os.getpid()}, {os.getpid(), os.getppid()}]
    sharing = Sharing("GPU-1", options(tmp_path, require_idle_gpu=True), lambda: looks.pop(0))
    timed = []
    for wanted in ([], [True]):
        with pytest.raises(InfraError, match="was not idle: 1 foreign"), sharing.alone():
            timed.append(True)
        assert timed == wanted


@pytest.mark.parametrize(("folder", "wants_idle", "words"), [
    ("", True, "kernelgym.require_idle_gpu is true.*--pid=host"), ("missing", False, "kernelgym.lock_dir is .*missing"),
])  # fmt: skip
def test_what_cannot_be_is_named_at_start(tmp_path, folder, wants_idle, words):
    with pytest.raises(EnvironmentNotReady, match=words):
        Sharing("GPU-1", options(tmp_path / folder, require_idle_gpu=wants_idle), lambda: {1})


@pytest.mark.parametrize(("key", "value"), [("require_idle_gpu", "yes"), ("lock_dir", "locks"), ("lock_dir", None)])
def test_options_of_another_kind_are_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=f"kernelgym.{key} is "):
        parse_options({key: value})
