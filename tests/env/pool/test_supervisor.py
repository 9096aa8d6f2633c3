# SPDX-License-Identifier: Apache-2.0
"""Lost and drained judges, and one GPU model per pool, with judges that do as they are told."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.pool.test_dispatcher import Actor, settle
from tests.env.pool.test_dispatcher import pool as dispatcher_of
from tests.env.programs import REFERENCE
from verl_kernel.env import EvalStatus, GymOptions, Task
from verl_kernel.env.pool.dispatcher import Dispatcher
from verl_kernel.env.pool.scheduling.judges import JudgeLost, Placement
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import EnvironmentNotReady, InfraError

TASKS = [Task(f"{REFERENCE}\n# {number}\n", task_id=f"task {number}") for number in range(6)]


@asynccontextmanager
async def pool(*judges, **options):
    """A pool whose judges have said which model they have."""
    async with dispatcher_of(*judges, **options) as dispatcher:
        await dispatcher.ready()
        yield dispatcher


def ask(dispatcher, task, source, step=1):
    return asyncio.ensure_future(asyncio.wait_for(dispatcher.judge(EvalRequest(task, source, step=step)), 300))


async def test_the_only_judge_is_asked_again():
    bad = Actor(InfraError("boom"))
    async with pool(bad) as dispatcher:
        result = await ask(dispatcher, TASKS[0], "x")
        assert (result.status, result.attempts, bad.seen) == (EvalStatus.OK, 2, ["x", "x"])


async def test_a_judge_on_another_gpu_model_is_refused():
    judge, other = Actor(model="h100"), Actor(model="a100")
    async with dispatcher_of(judge, other) as dispatcher:
        with pytest.raises(EnvironmentNotReady, match="its GPU is a100 and the pool's is h100"):
            await dispatcher.ready()
        assert [each.state for each in (await dispatcher.stats()).judges] == ["free", "down"]
        judge.script, judge.place = [JudgeLost("moved")], Placement("there", 8, "a100")
        with pytest.raises(EnvironmentNotReady, match="times of two models cannot be compared"):
            await ask(dispatcher, TASKS[0], "x")
        assert other.seen == []


async def test_a_node_that_goes_down_judge_by_judge_loses_nothing():
    doomed = [Actor(*[JudgeLost("gone")] * 9, node="n1") for _ in range(4)]
    async with pool(*doomed, Actor(node="n2")) as dispatcher:
        for judge in doomed[1:]:
            judge.start = InfraError("no place")
        result = await ask(dispatcher, TASKS[0], "x")
        assert (result.status, result.attempts) == (EvalStatus.OK, 2)
        assert sum(len(judge.seen) for judge in doomed) == 1  # its neighbours were asked first whether they are there


async def test_what_takes_every_judge_along_ends_as_an_infra_error():
    judges = [Actor(*[JudgeLost("gone")] * 9, node=f"n{number}") for number in range(9)]
    async with dispatcher_of(*judges) as dispatcher:
        result = await ask(dispatcher, TASKS[0], "x")
        assert (result.status, result.attempts) == (EvalStatus.INFRA_ERROR, 4)
        assert sum(len(judge.seen) for judge in judges) == 4


async def test_a_drained_judge_gets_nothing_new():
    drained, other = Actor(gate=asyncio.Event(), node="n1"), Actor(node="n2")
    async with pool(drained, other) as dispatcher:
        last = ask(dispatcher, TASKS[0], "last")
        await settle()
        assert await dispatcher.drain({"n1"}, (), True) == [0]
        stats = await dispatcher.stats()
        assert [judge.state for judge in stats.judges] == ["draining", "free"]
        assert (stats.busy, stats.drained) == (1, 1)
        for number in range(3):
            await ask(dispatcher, TASKS[0], str(number))
        drained.gate.set()
        assert (await last).status is EvalStatus.OK
        assert [judge.state for judge in (await dispatcher.stats()).judges] == ["drained", "free"]
        await asyncio.gather(*(ask(dispatcher, TASKS[1], str(number)) for number in range(3)))
        assert drained.seen == ["last"]
        assert len(other.seen) == 6
        assert await dispatcher.drain({"n1"}, (), False) == [0]
        await asyncio.gather(*(ask(dispatcher, TASKS[2], str(number)) for number in range(4)))
        assert len(drained.seen) > 1


async def test_a_pool_that_is_drained_waits():
    judge = Actor()
    async with pool(judge) as dispatcher:
        assert await dispatcher.drain((), {0}, True) == [0]
        request = ask(dispatcher, TASKS[0], "x")
        await settle()
        assert not request.done()
        assert (await dispatcher.stats()).queue == 1
        await dispatcher.drain((), {0}, False)
        assert (await request).status is EvalStatus.OK


async def test_a_judge_that_leaves_its_drained_node_serves_again(monkeypatch):
    monkeypatch.setattr("verl_kernel.env.pool.supervisor._WATCH_S", 0.01)
    judge = Actor(node="n1")
    async with pool(judge) as dispatcher:
        await dispatcher.drain({"n1"}, (), True)
        request = ask(dispatcher, TASKS[0], "x")
        await asyncio.sleep(0.05)
        assert not request.done()  # asked, it answered from the drained node
        judge.place = Placement("n2", 8, "gpu")
        assert (await request).status is EvalStatus.OK
        assert [judge.state for judge in (await dispatcher.stats()).judges] == ["free"]


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from([False, False, False, True]), max_size=12), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2)), min_size=1, max_size=40),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_losses_and_drains_lose_no_request(makers, requests, drains):
    async def scene():
        judges = [
            Actor(*(JudgeLost("lost") if is_lost else None for is_lost in failures), node=f"node {number}")
            for number, failures in enumerate(makers)
        ]
        dispatcher = Dispatcher(judges, GymOptions(queue_size=8))
        await dispatcher.ready()
        asked = [ask(dispatcher, TASKS[prompt], f"{n}", step) for n, (prompt, step) in enumerate(requests)]
        numbers = [number for number in drains if number < len(judges)]
        await dispatcher.drain((), numbers, True)
        await settle()
        await dispatcher.drain((), numbers, False)
        results = [await request for request in asked]
        await dispatcher.close()
        return results

    results = asyncio.run(scene())
    assert all(result.attempts == 4 for result in results if result.status is not EvalStatus.OK)


async def test_a_pool_that_loses_all_judges_loses_nothing(monkeypatch):
    monkeypatch.setattr("verl_kernel.env.pool.supervisor._REVIVAL_S", 0.01)
    judges = [Actor(*[JudgeLost("gone")] * 2) for _ in range(2)]
    async with pool(*judges) as dispatcher:
        for judge in judges:
            judge.start = JudgeLost("not placed yet")
        requests = [ask(dispatcher, TASKS[0], str(number)) for number in range(4)]
        await asyncio.sleep(0.05)
        assert all(judge.revivals > 2 for judge in judges)
        assert not any(request.done() for request in requests)
        for judge in judges:
            judge.start = None
        assert [(await request).status for request in requests] == [EvalStatus.OK] * 4
