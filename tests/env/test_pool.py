# SPDX-License-Identifier: Apache-2.0
"""Both pools, with real judges; what must hold for one must hold for the other."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from tests.env.programs import HONEST, REFERENCE, candidate
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool import KernelGym, LocalPool, Turnstile
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import EnvironmentNotReady, InfraError, TaskError

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=2, run_timeout_s=4, reference_timeout_s=6, num_judges=2,
    cpus_per_judge=0.5,
)  # fmt: skip
TASK = Task(REFERENCE, task_id="fused")
JOBS = [
    (TASK, HONEST, "honest"),
    (TASK, candidate("return self.right(x, y) + 1"), "wrong"),
    (TASK, candidate("import os; os._exit(4)"), "crash"),
    (TASK, candidate("return self.torch_only(x, y)"), "decoy"),
    (TASK, "", "empty"),
]
VERDICTS = [EvalStatus.OK, EvalStatus.INCORRECT, EvalStatus.CRASH, EvalStatus.DECOY, EvalStatus.LOAD_ERROR]
HANGING = Task(REFERENCE.replace("return torch.relu", "while True: pass\n        return torch.relu"), task_id="hanging")
CRASHING = Task(REFERENCE.replace("return torch.relu", "import os; os._exit(9)\n        return torch.relu"))


@pytest.fixture(scope="module")
def pool():
    with LocalPool(OPTIONS, seed=5) as pool:
        yield pool


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def wait_for_end(processes: list[psutil.Process]) -> list[psutil.Process]:
    return psutil.wait_procs(processes, timeout=15)[1]


def test_results_come_in_order_with_their_names(pool):
    results = pool.evaluate_many(JOBS)
    assert [result.status for result in results] == VERDICTS
    assert [result.kernel for result in results] == [job[2] for job in JOBS]
    assert all(result.attempts == 1 and result.queue_seconds >= 0 for result in results)


def test_async_calls_share_the_judges(pool):
    async def all_of_them():
        return await asyncio.gather(*(pool.evaluate(task, source, kernel=kernel) for task, source, kernel in JOBS))

    assert [result.status for result in asyncio.run(all_of_them())] == VERDICTS


def test_a_hanging_reference_is_a_task_error_and_the_pool_works_on(pool):
    for _ in range(2):
        with pytest.raises(TaskError, match="reference hanging .*reference_timeout_s = 6 s"):
            asyncio.run(pool.evaluate(HANGING, HONEST))
    assert pool.evaluate_many(JOBS[:1])[0].status is EvalStatus.OK


def test_a_judge_that_dies_twice_is_an_infra_error_not_a_verdict(pool):
    (result,) = pool.evaluate_many([(CRASHING, HONEST, "k")])
    assert (result.status, result.attempts, result.kernel) == (EvalStatus.INFRA_ERROR, 2, "k")
    assert result.correctness is None and "status 9" in result.error.message


def worker_with_a_runner(pool: LocalPool) -> psutil.Process:
    while True:
        for process in (psutil.Process(judge.pid) for judge in pool._judges if judge.pid is not None):
            if any(zygote.children() for zygote in process.children()):
                return process
        time.sleep(0.02)


def test_a_judge_killed_at_work_is_replaced_and_the_job_done_again(pool):
    source = candidate("import time; time.sleep(0.6)\nreturn self.right(x, y)")

    async def kill_while_it_works():
        job = asyncio.ensure_future(pool.evaluate(TASK, source))
        worker = await asyncio.to_thread(worker_with_a_runner, pool)
        descendants = worker.children(recursive=True)
        worker.kill()
        return await job, wait_for_end(descendants)

    result, left = asyncio.run(kill_while_it_works())
    assert (result.status, result.attempts, left) == (EvalStatus.OK, 2, [])


def test_a_closed_pool_leaves_no_process():
    before = {process.pid for process in family(os.getpid())}
    pool = LocalPool(GymOptions(device="cpu"))
    started = [process for process in family(os.getpid()) if process.pid not in before]
    assert len(started) >= 2
    pool.close()
    assert wait_for_end(started) == []


def test_a_judge_that_cannot_work_is_reported_by_the_constructor():
    with pytest.raises(EnvironmentNotReady, match="cuda"):
        LocalPool(GymOptions(device="cuda"))


_OWNER = """
    import sys, threading
    from tests.env.programs import HONEST, REFERENCE, candidate
    from tests.env.test_pool import OPTIONS, TASK
    from verl_kernel.env.pool import {pool}
    {setup}
    source = candidate("while True: pass")
    threading.Thread(target=pool.evaluate_many, args=([(TASK, HONEST, "")],)).start()
    pool.evaluate_many([(TASK, HONEST, "")])
    threading.Thread(target=pool.evaluate_many, args=([(TASK, source, "")] * 2,)).start()
    print("working", flush=True)
    threading.Event().wait()
"""


def kill_an_owner(pool: str, setup: str) -> tuple[list[str], list[psutil.Process]]:
    """Command lines of an owner's descendants while a candidate runs, and those alive after its SIGKILL."""
    program = textwrap.dedent(_OWNER).format(pool=pool, setup=setup)
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    while "working" not in (line := owner.stdout.readline()):
        assert line, "the owner died"
    time.sleep(1.5)
    descendants = family(owner.pid)
    commands = [" ".join(process.cmdline()) for process in descendants]
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    return commands, wait_for_end(descendants)


def test_killing_the_owner_leaves_nothing_behind():
    commands, alive = kill_an_owner("LocalPool", "pool = LocalPool(OPTIONS)")
    assert sum("env.worker" in command for command in commands) == 2
    assert sum("env.zygote" in command for command in commands) >= 3  # a runner carries its zygote's command line
    assert alive == []


def test_the_turnstile_lets_urgent_requests_pass_and_forgets_the_cancelled():
    async def scene():
        turnstile, order = Turnstile(["judge"]), []

        async def visit(name, urgent):
            judge = await turnstile.enter(urgent)
            order.append(name)
            await asyncio.sleep(0)
            turnstile.leave(judge)

        first = await turnstile.enter(False)
        visits = {name: asyncio.ensure_future(visit(name, name[0] == "v")) for name in ("t1", "t2", "v1", "t3", "v2")}
        await asyncio.sleep(0)
        visits["t2"].cancel()
        await asyncio.sleep(0)
        assert turnstile.waiting == 4 and turnstile.free == 0
        turnstile.leave(first)
        await asyncio.gather(*visits.values(), return_exceptions=True)
        assert turnstile.waiting == 0 and turnstile.free == 1
        return order

    assert asyncio.run(scene()) == ["v1", "v2", "t1", "t3"]


@pytest.fixture(scope="module")
def gym():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    with KernelGym.connect(OPTIONS, name="test", seed=5) as gym:
        assert len(gym.ready()) == 2
        yield gym
    ray.shutdown()


@pytest.mark.ray
def test_both_pools_give_the_same_results(gym, pool):
    def plain(results):
        gone = {"stage_seconds": {}, "queue_seconds": None}
        return [result.model_copy(update=gone) for result in results]

    assert plain(gym.evaluate_many(JOBS)) == plain(pool.evaluate_many(JOBS))


@pytest.mark.ray
def test_one_name_is_one_pool_and_handles_travel(gym):
    import ray

    @ray.remote(num_cpus=0)
    def elsewhere(handle):
        return asyncio.run(handle.evaluate(TASK, HONEST, kernel="there")).kernel, handle.stats()["judges"]

    copy = pickle.loads(pickle.dumps(gym))
    before = copy.stats()["evaluations"]
    answers = ray.get([elsewhere.remote(gym), elsewhere.remote(KernelGym.connect(OPTIONS, name="test"))])
    assert answers == [("there", 2)] * 2
    assert gym.stats()["evaluations"] - before <= 1  # the same source for the same task is judged once


@pytest.mark.ray
def test_verdicts_are_remembered_under_the_callers_names(gym):
    before = gym.stats()
    source = HONEST + "# remember me\n"
    results = gym.evaluate_many(
        [(TASK, source, "a"), (TASK, source, "b"), (Task(REFERENCE, task_id="alias"), source, "c")]
    )
    after = gym.stats()
    assert after["evaluations"] - before["evaluations"] == 1 and after["remembered"] - before["remembered"] == 2
    assert [(result.task_id, result.kernel) for result in results] == [("fused", "a"), ("fused", "b"), ("alias", "c")]


@pytest.mark.ray
def test_errors_of_ours_arrive_as_they_were_raised(gym):
    with pytest.raises(TaskError, match="^reference hanging") as caught:
        gym.evaluate_many([(HANGING, HONEST, "")])
    assert type(caught.value) is TaskError
    (result,) = gym.evaluate_many([(CRASHING, HONEST, "")])
    assert (result.status, result.attempts) == (EvalStatus.INFRA_ERROR, 2)
    assert gym.evaluate_many(JOBS[:1])[0].status is EvalStatus.OK
    assert gym.stats()["queue"] == gym.stats()["busy"] == 0


@pytest.mark.ray
def test_a_pool_that_was_killed_is_made_again(gym):
    import ray

    handle = KernelGym.connect(GymOptions(device="cpu", static_check="off", cpus_per_judge=0.1), name="mortal")
    (judge,) = handle.ready()
    ray.kill(handle._router)
    assert handle.evaluate_many(JOBS[:1])[0].status is EvalStatus.OK
    assert wait_for_end([psutil.Process(judge)] if psutil.pid_exists(judge) else []) == []
    handle.close()


@pytest.mark.ray
def test_killing_the_driver_leaves_nothing_behind():
    setup = (
        "import ray; ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)"
        "; pool = KernelGym.connect(OPTIONS); pool.ready()"
    )
    commands, alive = kill_an_owner("KernelGym", setup)
    assert sum("env.worker" in command for command in commands) == 2
    assert [p for p in alive if "verl_kernel.env" in " ".join(p.cmdline())] == []


def test_infra_errors_can_be_pickled():
    assert str(pickle.loads(pickle.dumps(InfraError("why")))) == "why"
