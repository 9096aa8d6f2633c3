# SPDX-License-Identifier: Apache-2.0
"""Judges that share a GPU, through real processes on a pretended one: who uses it while somebody takes time on it."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.env.gyms import PRETEND, pretend, pretend_cuda
from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env import EvalStatus, GymOptions, JudgeProcess, Task
from verl_kernel.env.devices.cuda.lock import FOLDER, DeviceLock
from verl_kernel.env.judge import judge as judges
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import InfraError

pytestmark = pytest.mark.processes
TASK = Task(REFERENCE)
OPTIONS = {"device": "cuda", "correctness_trials": 3, "static_check": "off", "run_timeout_s": 1.0}


@pytest.mark.exhaustive
def test_two_judges_never_use_the_gpu_while_one_of_them_times(tmp_path, monkeypatch):
    """Started as pools start them; their device is the pretended one."""
    sys.path.insert(0, PRETEND)
    from locked_gpu import read

    uuid, journal = pretend_cuda(monkeypatch, tmp_path)
    sources = [HONEST, candidate("return self.right(x, y) * 2"), HONEST, HONEST]

    def judged(seed):
        with closing(JudgeProcess(GymOptions(**OPTIONS), seed)) as process:
            tasks = [Task(f"{REFERENCE}\n# {seed} {at}") for at in range(len(sources))]
            return [process.judge(EvalRequest(*one)) for one in zip(tasks, sources, strict=True)]

    try:
        with ThreadPoolExecutor(2) as threads:
            results = [result for results in threads.map(judged, (1, 2)) for result in results]
    finally:
        for part in ("gate", "device"):
            Path(FOLDER, f"verl_kernel_{uuid.replace('-', '_')}.{part}.lock").unlink(missing_ok=True)
    statuses = [result.status for result in results]
    assert statuses == [EvalStatus.OK, EvalStatus.INCORRECT, EvalStatus.OK, EvalStatus.OK] * 2, results
    clocked, turns = None, 0
    for _, pid, what in read(journal):
        assert clocked in (None, pid), f"{what} by {pid} while {clocked} takes time"
        clocked = {"clock begins": pid, "clock ends": None}.get(what, clocked)
        turns += what == "clock begins"
    assert turns == 6
    assert sum(result.stage_seconds.get("wait", 0.0) for result in results) > 0.1, "they never met"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """A judge in this process on a pretended GPU, and the lock of that GPU as another process has it."""
    folder = str(tmp_path_factory.mktemp("locks"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PRETEND)
        pretend(patch)
        from locked_gpu import LockedGpu, backend

        patch.setattr(judges, "resolve_backend", lambda name: backend())
        options = GymOptions(**OPTIONS | {"device": "cpu"}, lock_dir=folder)
        with judges.Judge(options, seed=3) as judge:
            yield judge, lambda timeout_s=0.0: DeviceLock(LockedGpu.uuid, timeout_s, folder)


def state(lock) -> str:
    """What another process could do now."""
    for kind, then in (("exclusive", "free"), ("shared", "shared")):
        try:
            with getattr(lock(), kind)():
                return then
        except InfraError:
            continue
    return "alone"


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", [HONEST, candidate("time = self.right(x, y)\nimport os\nos._exit(3)")])
def test_every_request_to_a_runner_finds_the_gpu_locked(gpu, monkeypatch, source):
    judge, lock = gpu
    seen: dict[str, set[str]] = {}

    def spied(method, kind):
        def call(self, *args):
            seen.setdefault(kind(*args), set()).add(state(lock))
            return method(self, *args)

        return call

    monkeypatch.setattr(
        RunnerProcess, "ask", spied(RunnerProcess.ask, lambda request, _: next(iter(request)) if request else "start")
    )
    monkeypatch.setattr(RunnerProcess, "finish", spied(RunnerProcess.finish, lambda: "exit"))
    device = type(judge._device)
    monkeypatch.setattr(device, "to_device", spied(device.to_device, lambda _: "draw"))
    judge.evaluate(Task(f"{REFERENCE}# {len(source)}"), source)
    assert seen.pop("draw") <= {"shared", "alone"}
    for request in ("translate", "native", "report"):  # of processes that compile and execute for a pretended GPU
        assert seen.pop(request, {"shared"}) <= {"shared", "alone"}
    timed = {"time": {"alone"}, "exit": {"shared"}} if source == HONEST else {}
    assert seen == {"start": {"shared"}, "load": {"shared"}, "run": {"shared"}, **timed}
    assert state(lock) == "free"


@pytest.mark.exhaustive
def test_waiting_for_the_gpu_is_charged_to_nobody(gpu):
    judge, lock = gpu
    judge.evaluate(TASK, HONEST)
    held, done = threading.Event(), threading.Event()

    def neighbour():
        with lock(5.0).exclusive():
            held.set()
            done.wait(4.0)

    thread = threading.Thread(target=neighbour)
    thread.start()
    held.wait()
    start = time.monotonic()
    result = judge.evaluate(TASK, HONEST)
    thread.join()
    seconds = time.monotonic() - start
    assert result.status is EvalStatus.OK, result.error
    assert result.stage_seconds["wait"] > 2 * OPTIONS["run_timeout_s"]
    assert sum(result.stage_seconds.values()) <= seconds, "no other stage holds the wait too"
    assert judge.evaluate(TASK, HONEST).stage_seconds.get("wait", 0.0) < 1.0  # it is counted anew


def test_an_evaluation_says_who_shared_the_gpu(gpu, monkeypatch):
    judge, _ = gpu
    assert judge.evaluate(TASK, HONEST).env["foreign_processes"] is None  # nobody can tell
    sharing = judge._device.sharing
    monkeypatch.setattr(sharing, "_census", lambda: {os.getpid(), os.getppid(), judge.processes.runners.pid})
    assert judge.evaluate(TASK, HONEST).env["foreign_processes"] == 1
    monkeypatch.setattr(sharing, "_wants_idle", True)
    with pytest.raises(InfraError, match="the GPU was not idle: 1 foreign .*kernelgym.require_idle_gpu"):
        judge.evaluate(TASK, HONEST)
    wrong = judge.evaluate(TASK, candidate("return self.right(x, y) * 2"))
    assert wrong.status is EvalStatus.INCORRECT  # nothing was timed
    monkeypatch.setattr(sharing, "_census", lambda: {os.getpid()})
    assert judge.evaluate(TASK, HONEST).env["foreign_processes"] == 0
