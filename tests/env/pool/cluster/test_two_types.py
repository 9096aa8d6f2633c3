# SPDX-License-Identifier: Apache-2.0
"""A pool of two accelerator types, which are custom resources of Ray nodes on this machine."""

import asyncio

import pytest

from tests.env.pool.cluster.nodes import EXPECTED, SOURCES, command, lose, ray_cluster
from tests.env.programs import REFERENCE
from tests.env.waiting import soon
from verl_kernel.env import GymOptions, KernelGym, Task
from verl_kernel.env.pool.scheduling.scheduler import CHANGED
from verl_kernel.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.ray]
GROUPS = [{"resources": {"a": 1}, "num_judges": 1}, {"resources": {"b": 1}, "num_judges": 1}]
TASKS = [Task(f"{REFERENCE}\n# {number}\n", task_id=f"task {number}") for number in range(4)]
NODES = [{"num_cpus": 1, "resources": {kind: 1}} for kind in "aab"]
"""Two with one place for type a each, one for type b."""


def options(model_wait_s):
    return GymOptions(
        device="cpu", static_check="off", correctness_trials=1, num_judges=2, cpus_per_judge=0.5,
        judge_resources=GROUPS, model_wait_s=model_wait_s, quarantine_s=0.5,
    )  # fmt: skip


async def judged(gym, step, meanwhile=None):
    """Four evaluations of every task; results by task. `meanwhile` is called while they are under way."""
    jobs = {task: [f"{SOURCES[turn % 2]}# {step} {turn}\n" for turn in range(4)] for task in TASKS}
    asked = {task: [asyncio.ensure_future(gym.evaluate(task, s, step=step)) for s in jobs[task]] for task in TASKS}
    if meanwhile is not None:
        await soon(lambda: gym.stats().busy == 2)
        await asyncio.to_thread(meanwhile)
    return {task: [await request for request in requests] for task, requests in asked.items()}


def types(results):
    return {result.env["judge_group"] for result in results}


def check_verdicts(results):
    for of_task in results.values():
        assert [result.status for result in of_task] == EXPECTED * 2, [result.error for result in of_task]


def check_types(results, expected):
    """Every prompt on one type and none marked; these types together."""
    check_verdicts(results)
    assert all(len(types(of_task)) == 1 for of_task in results.values())
    assert set.union(*map(types, results.values())) == set(expected)
    assert not any(CHANGED in result.env for of_task in results.values() for result in of_task)


def was_lost(results):
    return any(result.attempts > 1 for of_task in results.values() for result in of_task)


def node_of(gym, kind):
    return next(judge.node for judge in gym.stats().judges if judge.model.endswith(f"({kind})"))


def drain(*arguments):
    done = command("serve-drain", *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.exhaustive
def test_groups_stay_on_their_type_through_losses_and_drains():
    with ray_cluster(*NODES) as (nodes, added):
        by_id = {node.node_id: node for node in added}
        with KernelGym.connect(options(model_wait_s=600), name="patient", seed=1) as gym:
            gym.ready()
            assert [judge.model for judge in gym.stats().judges] == ["h100, simulated (a)", "h100, simulated (b)"]
            check_types(asyncio.run(judged(gym, 1)), "ab")

            lost = node_of(gym, "a")
            assert lost in by_id
            results = asyncio.run(judged(gym, 2, lambda: lose(nodes, by_id.pop(lost))))
            check_types(results, "ab")
            assert was_lost(results)
            new = node_of(gym, "a")
            assert new != lost
            assert new in by_id
            assert gym.stats().alive == 2

        with KernelGym.connect(options(model_wait_s=0.5), name="hasty", seed=1) as gym:
            gym.ready()
            check_draining(gym, nodes.address, node_of(gym, "b"))
            results = asyncio.run(judged(gym, 5, lambda: lose(nodes, by_id.pop(node_of(gym, "a")))))
            check_verdicts(results)
            check_moves(results)
            assert was_lost(results)
            check_types(asyncio.run(judged(gym, 6)), "b")


def check_draining(gym, address, node):
    """A node's judges finish and get nothing new until that is taken back, by command and by handle."""
    where = ["--address", address, "--name", "hasty"]
    assert drain(node[:10], "--wait", *where) == (0, "pool hasty: judges 1 get nothing new; 0 still at work\n")
    assert [judge.state for judge in gym.stats().judges] == ["free", "drained"]
    check_types(asyncio.run(judged(gym, 3)), "a")
    code, said = drain("nowhere", *where)
    assert code == 2
    assert said.startswith("Error: 'nowhere' names 0 nodes of the cluster")
    assert said.count("\n") == 1
    with pytest.raises(ConfigError, match="the pool has no judge 7"):
        gym.drain(judge=7)
    assert gym.undrain(node) == [1]
    check_types(asyncio.run(judged(gym, 4)), "ab")


def check_moves(results):
    """What was judged on the other type before says so, and nothing else."""
    for of_task in results.values():
        marked = [result for result in of_task if CHANGED in result.env]
        others = {"a": "h100, simulated (b)", "b": "h100, simulated (a)"}
        assert all(result.env[CHANGED] == others[result.env["judge_group"]] for result in marked)
        assert bool(marked) == (len(types(of_task)) == 2)
