# SPDX-License-Identifier: Apache-2.0
"""The pool on a cluster of two nodes: two raylets on this machine, by Ray's own utility for that."""

import asyncio

import pytest

from tests.env.pool.cluster.nodes import EXPECTED, SOURCES, lose, ray_cluster
from tests.env.programs import REFERENCE
from tests.env.waiting import soon, until
from verl_kernel.env import GymOptions, KernelGym, Task

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=1, num_judges=2, cpus_per_judge=1.0, quarantine_s=0.5
)
TASK = Task(REFERENCE, task_id="nodes")


def verdicts(gym, count, mark):
    jobs = [(TASK, f"{SOURCES[number % 2]}# {mark} {number}\n", "") for number in range(count)]
    return [result.status for result in gym.evaluate_many(jobs)]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.ray
def test_a_pool_spreads_over_nodes_and_survives_the_loss_of_one():
    pytest.importorskip("ray")
    with ray_cluster({"num_cpus": 1}) as (cluster, (second,)):
        gym = KernelGym.connect(OPTIONS, name="nodes", seed=1)
        gym.ready()
        assert len({judge.node for judge in gym.stats().judges}) == 2
        assert verdicts(gym, 12, "both") == EXPECTED * 6

        async def lose_one():
            before = gym.stats().evaluations
            work = asyncio.ensure_future(asyncio.to_thread(verdicts, gym, 40, "loss"))
            await soon(lambda: (stats := gym.stats()).evaluations > before and stats.busy == 2)
            await asyncio.to_thread(lose, cluster, second)
            return await work

        assert asyncio.run(lose_one()) == EXPECTED * 20
        assert verdicts(gym, 12, "one") == EXPECTED * 6
        until(lambda: gym.stats().alive == 1)

        cluster.add_node(num_cpus=1)
        until(lambda: gym.stats().alive == 2)
        assert verdicts(gym, 12, "again") == EXPECTED * 6
        gym.close()


class Owner:
    """Has made a pool, which lives on its node and as long as it does."""

    def __init__(self):
        self.gym = KernelGym.connect(OPTIONS, name="elsewhere", seed=1)

    def ready(self):
        self.gym.ready()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.ray
def test_a_pool_of_a_lost_node_is_made_again(caplog):
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with ray_cluster({"num_cpus": 1}) as (cluster, (second,)):
        there = NodeAffinitySchedulingStrategy(second.node_id, soft=False)
        owner = ray.remote(num_cpus=0)(Owner).options(scheduling_strategy=there).remote()
        ray.get(owner.ready.remote())
        gym = KernelGym.connect(OPTIONS, name="elsewhere", seed=1)
        assert verdicts(gym, 2, "there") == EXPECTED
        lose(cluster, second)
        cluster.add_node(num_cpus=1)
        assert verdicts(gym, 2, "here") == EXPECTED
        assert "the pool elsewhere is gone" in caplog.text
        gym.close()
