# SPDX-License-Identifier: Apache-2.0
"""The pool without Ray, with real judges; what both pools promise is in `test_conformance.py`."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.env.gyms import family, named, survivors
from tests.env.programs import HONEST, REFERENCE, TASK, candidate
from tests.env.waiting import until
from verl_kernel.env import EvalStatus, GymOptions, LocalPool, Task
from verl_kernel.errors import ConfigError, EnvironmentNotReady, InfraError

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=2, run_timeout_s=4, reference_timeout_s=6, num_judges=2,
    cpus_per_judge=0.5,
)  # fmt: skip
REASONS = {
    GymOptions(device="cuda"): (EnvironmentNotReady, "cuda"),
    GymOptions(device="cpu", reference_cache="/dev/null/x"): (ConfigError, "kernelgym.reference_cache"),
}
"""Why no judge can work with these options."""
SLOW = candidate("import time; time.sleep(0.6)\nreturn self.right(x, y)")


@pytest.fixture(scope="module")
def pool():
    with LocalPool(OPTIONS, seed=5) as pool:
        yield pool


def zygotes(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    others = [*named("env.execution.", children), *named("env.compilation.", children)]
    return [child for child in children if child not in others]


def runners(pids: list[int]) -> list[psutil.Process]:
    return until(lambda: [runner for pid in pids for zygote in zygotes(pid) for runner in zygote.children()])


def has_ended(process: psutil.Process) -> bool:
    """Also where nobody has asked for its exit code yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def evaluate_and(pool: LocalPool, source: str, interfere):
    """Result of a slow evaluation during which `interfere` is called, and what that returned."""

    async def scene():
        job = asyncio.ensure_future(pool.evaluate(TASK, source))
        seen = await asyncio.to_thread(interfere)
        return await job, seen

    return asyncio.run(scene())


def test_a_judge_killed_at_work_is_replaced(pool):
    def kill_the_judge():
        (runner,) = runners(pool.pids())
        judge = runner.parent().parent()
        descendants = judge.children(recursive=True)
        judge.kill()
        return descendants

    result, descendants = evaluate_and(pool, SLOW, kill_the_judge)
    assert (result.status, result.attempts, survivors(descendants)) == (EvalStatus.OK, 2, [])


@pytest.mark.exhaustive
def test_a_zygote_killed_at_rest_is_replaced(pool):
    # Processes that an earlier test's zygote has forked may still be there.
    (killed,) = until(lambda: len(found := zygotes(pool.pids()[0])) == 1 and found)
    killed.kill()
    other = until(lambda: [one for one in zygotes(pool.pids()[0]) if one != killed])[0]
    assert survivors([killed]) == []
    assert other.is_running()


@pytest.mark.exhaustive
def test_a_runner_killed_without_evidence_is_a_crash(pool):
    """A candidate can arrange its own SIGKILL, so one proves nothing against the machine."""
    before = pool.pids()

    def kill_the_runner():
        runner = runners(before)[0]
        until(lambda: (Path(f"/proc/{runner.pid}/cwd") / "begun").exists())
        runner.kill()

    begun = SLOW.replace("import time;", "import time; open('begun', 'w').close();")
    result, _ = evaluate_and(pool, begun, kill_the_runner)
    assert (result.status, result.attempts, result.error.signal) == (EvalStatus.CRASH, 1, signal.SIGKILL)
    assert pool.pids() == before


def test_two_judges_lost_are_an_infra_error_that_says_so(pool):
    def kill_twice():
        for _ in range(2):
            (runner,) = runners(pool.pids())
            zygote = runner.parent()
            zygote.kill()
            until(lambda runner=runner: has_ended(runner))

    result, _ = evaluate_and(pool, SLOW + "# twice\n", kill_twice)
    assert (result.status, result.attempts) == (EvalStatus.INFRA_ERROR, 2)
    assert "zygote does not answer" in result.error.message


@pytest.mark.exhaustive
def test_a_deadline_does_not_count_the_queue(pool):
    source = candidate("import time; time.sleep(0.8)\nreturn self.right(x, y)")
    results = pool.evaluate_many([(TASK, f"{source}# {number}\n", "") for number in range(6)])
    assert max(result.queue_seconds for result in results) > OPTIONS.run_timeout_s
    assert {result.status for result in results} == {EvalStatus.OK}


@pytest.mark.exhaustive
def test_a_restarted_judge_finds_its_references_on_disk(tmp_path):
    options = replace(OPTIONS, num_judges=1, reference_cache=str(tmp_path / "references"))
    counting = Task(
        f"import pathlib\nMARKS = pathlib.Path({str(tmp_path)!r}, 'marks')\n"
        + REFERENCE.replace("return torch.relu", "MARKS.open('a').write('x'); return torch.relu")
    )

    def forwards() -> int:
        before = len((tmp_path / "marks").read_text()) if (tmp_path / "marks").exists() else 0
        (result,) = pool.evaluate_many([(counting, f"{HONEST}# {time.monotonic()}\n", "")])
        assert result.status is EvalStatus.OK, result.error
        return len((tmp_path / "marks").read_text()) - before

    with LocalPool(options, seed=1) as pool:
        first, warm = forwards(), forwards()
        os.kill(pool.pids()[0], signal.SIGKILL)
        again = forwards()
    assert again == warm < first


@pytest.mark.exhaustive
def test_a_closed_pool_leaves_no_process_and_answers_nobody():
    before = {process.pid for process in family()}
    pool = LocalPool(GymOptions(device="cpu", run_timeout_s=60, static_check="off"))
    started = [process for process in family() if process.pid not in before]
    assert len(started) >= 2
    with pytest.raises(InfraError, match="closed"):
        evaluate_and(pool, candidate("while True: pass"), lambda: (runners(pool.pids()), pool.close()))
    pool.close()
    assert survivors(started) == []
    with pytest.raises(InfraError, match="closed"):
        pool.evaluate_many([(TASK, HONEST, "")])


@pytest.mark.parametrize("options", REASONS)
def test_a_judge_that_cannot_work_fails_the_constructor(options):
    error, reason = REASONS[options]
    with pytest.raises(error, match=reason):
        LocalPool(options)


def test_folders_are_those_of_whoever_named_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = replace(OPTIONS, num_judges=1, reference_cache="references", verdict_cache="verdicts")
    monkeypatch.chdir("/")
    with LocalPool(options) as pool:
        (first,) = pool.evaluate_many([(TASK, HONEST, "")])
    with LocalPool(options) as pool:
        (second,) = pool.evaluate_many([(TASK, HONEST, "")])
    assert first.status is EvalStatus.OK
    assert first.stage_seconds
    assert not second.stage_seconds
    assert list((tmp_path / "references").glob("*.json"))
    assert list((tmp_path / "verdicts").rglob("*.json"))


_OWNER = """
    import sys, threading
    from tests.env.programs import HONEST, candidate
    from tests.env.pool.test_local import OPTIONS, TASK
    from verl_kernel.env import {pool}
    {setup}
    pool.evaluate_many([(TASK, HONEST, "")])
    jobs = [(TASK, candidate("while True: pass") + "#" * n, "") for n in range(2)]
    threading.Thread(target=pool.evaluate_many, args=(jobs,)).start()
    print("working", flush=True)
    threading.Event().wait()
"""


def kill_an_owner(pool: str, setup: str) -> list[psutil.Process]:
    """The gym's processes that outlive the SIGKILL of their owner while candidates run.

    Ray's own agents are not asked after: they look for their parent once a minute.
    """
    program = textwrap.dedent(_OWNER).format(pool=pool, setup=setup)
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    while "working" not in (line := owner.stdout.readline()):
        assert line, "the owner died"
    until(lambda: len(named("pool.judge_worker", family(owner.pid))) >= 5)  # two judges, two zygotes, a runner
    ours = named("verl_kernel.env", family(owner.pid))
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    return survivors(ours)


@pytest.mark.exhaustive
def test_killing_the_owner_leaves_nothing_behind():
    assert kill_an_owner("LocalPool", "pool = LocalPool(OPTIONS)") == []


def test_infra_errors_can_be_pickled():
    assert str(pickle.loads(pickle.dumps(InfraError("why")))) == "why"
