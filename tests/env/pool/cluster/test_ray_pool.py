# SPDX-License-Identifier: Apache-2.0
"""The pool of a Ray cluster, with real actors; what both pools promise is in `test_conformance.py`."""

import asyncio
import pickle
from dataclasses import replace

import pytest

from tests.env.gyms import below, named, ray_gym, survivors
from tests.env.pool.cluster.nodes import command
from tests.env.pool.test_local import OPTIONS, TASK, kill_an_owner
from tests.env.programs import HONEST, REFERENCE, candidate
from tests.env.waiting import soon, until
from verl_kernel.env import EvalStatus, KernelGym, LocalPool, PoolStats, Task
from verl_kernel.errors import ConfigError

pytestmark = pytest.mark.ray
MADE_FROM = replace(OPTIONS, queue_size=3)
SLEEPER = candidate("import time; time.sleep(0.5)\nreturn self.right(x, y)")


@pytest.fixture(scope="module")
def gym():
    pytest.importorskip("ray")
    with ray_gym(MADE_FROM, "test", seed=5) as gym:
        yield gym


def runners_of_actors():
    return below(named("ray::JudgeActor"), levels=3)


def statuses(gym, sources):
    return [result.status for result in gym.evaluate_many([(TASK, source, "") for source in sources])]


@pytest.mark.exhaustive
def test_both_pools_give_the_same_results(gym):
    jobs = [(TASK, HONEST, "a"), (TASK, candidate("return self.right(x, y) + 1"), "b"), (TASK, "", "c")]

    def plain(results):
        gone = {"stage_seconds": {}, "queue_seconds": None}
        return [result.model_copy(update=gone) for result in results]

    with LocalPool(replace(OPTIONS, num_judges=1), seed=5) as local:
        assert plain(gym.evaluate_many(jobs)) == plain(local.evaluate_many(jobs))


def test_one_name_is_one_pool_and_handles_travel(gym):
    import ray

    @ray.remote(num_cpus=0)
    def elsewhere(handle):
        return asyncio.run(handle.evaluate(TASK, HONEST, kernel="there")).kernel, len(handle.stats().judges)

    copy = pickle.loads(pickle.dumps(gym))
    before = copy.stats().evaluations
    answers = ray.get([elsewhere.remote(gym), elsewhere.remote(KernelGym.connect(MADE_FROM, name="test"))])
    assert answers == [("there", 2)] * 2
    assert gym.stats().evaluations - before <= 1  # the same source for the same task is judged once


def test_a_pool_refuses_a_caller_with_other_options(gym):
    text = r"'test' was made from other options \(kernelgym.memory_checks is 'off' there and 'refuse' here\): connect"
    with pytest.raises(ConfigError, match=text):
        KernelGym.connect(replace(MADE_FROM, memory_checks="refuse"), name="test")


def test_a_pool_refuses_a_caller_with_another_seed(gym):
    with pytest.raises(ConfigError, match="seed is 5 there and 6 here"):
        KernelGym.connect(MADE_FROM, name="test", seed=6)


@pytest.mark.exhaustive
def test_a_relative_path_is_the_same_from_every_folder(gym, tmp_path, monkeypatch):
    with KernelGym.connect(replace(MADE_FROM, num_judges=1, reference_cache="kept"), name="folder"):
        monkeypatch.chdir(tmp_path)
        KernelGym.connect(replace(MADE_FROM, num_judges=1, reference_cache="kept"), name="folder")


@pytest.mark.exhaustive
def test_validation_overtakes_training(gym):
    async def scene():
        order = []

        async def ask(name, validate):
            await gym.evaluate(TASK, f"{SLEEPER}# order {name}\n", validate=validate)
            order.append(name)

        training = [asyncio.ensure_future(ask(f"t{number}", False)) for number in range(9)]
        await soon(lambda: (stats := gym.stats()).busy == 2 and stats.queue == 3)
        await asyncio.gather(*training, ask("v", True))
        return order

    assert asyncio.run(scene()).index("v") < 5


def test_a_judge_actor_killed_at_work_costs_a_second_attempt(gym):
    async def scene():
        request = asyncio.ensure_future(gym.evaluate(TASK, SLEEPER + "# killed\n"))
        runners = await soon(runners_of_actors)
        actor = runners[0].parent().parent().parent()  # above zygote and judge
        family = actor.children(recursive=True)
        name = actor.name()
        actor.kill()
        return name, await request, family

    name, result, family = asyncio.run(scene())
    assert "JudgeActor" in name
    assert (result.status, result.attempts) == (EvalStatus.OK, 2)
    assert survivors(family) == []
    until(lambda: gym.stats().alive == 2)


@pytest.mark.exhaustive
def test_everything_killed_at_once_comes_back(gym):
    async def scene():
        request = asyncio.ensure_future(gym.evaluate(TASK, SLEEPER + "# everything\n"))
        await soon(runners_of_actors)
        pool = named("ray::Router") + named("ray::JudgeActor") + named("verl_kernel.env")
        assert len(pool) >= 5
        for process in pool:
            process.kill()
        return await request, pool

    result, pool = asyncio.run(scene())
    assert (result.status, result.attempts, survivors(pool)) == (EvalStatus.OK, 2, [])
    assert statuses(gym, [HONEST]) == [EvalStatus.OK]
    assert len(gym.ready()) == 2


@pytest.mark.exhaustive
def test_a_pool_that_was_closed_is_made_again(gym):
    options = replace(OPTIONS, num_judges=1, cpus_per_judge=0.1)
    handle = KernelGym.connect(options, name="mortal")
    (judge,) = handle.ready()
    handle.close()
    assert statuses(handle, [HONEST]) == [EvalStatus.OK]
    assert handle.ready() != [judge]
    handle.close()


@pytest.mark.exhaustive
def test_figures_reach_rays_metrics_endpoint(gym):
    import urllib.request

    import ray

    statuses(gym, [HONEST, ""])
    (node,) = [node for node in ray.nodes() if node["Alive"]]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    wanted = {"verl_kernel_gym_results", "verl_kernel_gym_queue", "verl_kernel_gym_alive", "verl_kernel_gym_seconds"}

    def figures() -> str:
        text = urllib.request.urlopen(url, timeout=300).read().decode()
        return text if all(name in text for name in wanted) else ""

    text = until(figures)
    assert 'status="ok"' in text
    assert 'pool="test"' in text.replace("Pool", "pool")


@pytest.mark.exhaustive
def test_killing_the_driver_leaves_nothing_behind(gym):
    setup = (
        "import ray; ray.init(address='local', num_cpus=2, include_dashboard=False, log_to_driver=False)"
        "; pool = KernelGym.connect(OPTIONS); pool.ready()"
    )
    assert kill_an_owner("KernelGym", setup) == []


def test_an_alias_of_a_task_shares_its_verdicts(gym):
    alias = Task(REFERENCE, task_id="alias")
    source, before = HONEST + "# alias\n", gym.stats()
    one, other = gym.evaluate_many([(TASK, source, "a"), (alias, source, "b")])
    after = gym.stats()
    assert after.evaluations - before.evaluations == 1
    assert after.remembered - before.remembered == 1
    assert (one.task_id, other.task_id, other.kernel) == ("fused", "alias", "b")


def test_the_command_line_shows_a_running_pool(gym):
    import ray

    words = ("serve-status", "--address", ray.get_runtime_context().gcs_address, "--name")
    statuses(gym, [HONEST])
    done = command(*words, "test", "--json")
    shown = PoolStats.model_validate_json(done.stdout)
    assert done.returncode == 0
    assert shown.statuses["ok"] >= 1
    assert len(shown.judges) == 2
    done = command(*words, "nobody")
    assert done.returncode == 2
    assert "the cluster has no pool called nobody" in done.stderr
