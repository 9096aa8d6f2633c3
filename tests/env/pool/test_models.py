# SPDX-License-Identifier: Apache-2.0
"""A pool of several GPU models, with judges that do as they are told: no prompt is judged on two."""

import asyncio
import logging
from collections import defaultdict
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.pool.test_dispatcher import Actor, settle
from tests.env.pool.test_dispatcher import pool as dispatcher_of
from tests.env.programs import REFERENCE
from verl_kernel.env import EvalStatus, GymOptions, Task
from verl_kernel.env.pool.dispatcher import Dispatcher
from verl_kernel.env.pool.scheduling.judges import JudgeLost, Placement
from verl_kernel.env.pool.scheduling.scheduler import CHANGED
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import InfraError

TASKS = [Task(f"{REFERENCE}\n# {number}\n", task_id=f"task {number}") for number in range(6)]


@asynccontextmanager
async def pool(*judges, **options):
    async with dispatcher_of(*judges, **options) as dispatcher:
        await dispatcher.ready()
        yield dispatcher


def ask(dispatcher, task, source, step=1):
    return asyncio.ensure_future(asyncio.wait_for(dispatcher.judge(EvalRequest(task, source, step=step)), 300))


def models(results):
    return {result.env["judged_on"] for result in results}


async def test_a_prompt_stays_with_its_model():
    judges = [Actor(model="h100"), Actor(model="a100"), Actor(model="h100"), Actor(model="a100")]
    async with pool(*judges) as dispatcher:
        asked = {task: [ask(dispatcher, task, str(turn)) for turn in range(8)] for task in TASKS}
        seen = [models([await request for request in requests]) for requests in asked.values()]
        assert all(len(found) == 1 for found in seen)
        assert set.union(*seen) == {"h100", "a100"}
        for task, first in zip(TASKS, seen, strict=True):  # a later turn of the same step
            assert models([await ask(dispatcher, task, "later")]) == first


async def test_an_idle_model_leaves_others_requests_alone():
    slow = Actor(model="h100", gate=asyncio.Event())
    async with pool(slow, Actor(model="a100")) as dispatcher:
        first, second = ask(dispatcher, TASKS[0], "x"), ask(dispatcher, TASKS[0], "y")
        other = await ask(dispatcher, TASKS[1], "x")
        await settle()
        assert models([other]) == {"a100"}
        assert (first.done(), second.done()) == (False, False)
        slow.gate.set()
        assert models([await first, await second]) == {"h100"}


async def test_another_step_may_choose_another_model():
    slow = Actor(model="h100", gate=asyncio.Event())
    async with pool(slow, Actor(model="a100")) as dispatcher:
        first = ask(dispatcher, TASKS[0], "x", step=1)
        await settle()
        assert models([await ask(dispatcher, TASKS[0], "x", step=2)]) == {"a100"}
        slow.gate.set()
        assert models([await first]) == {"h100"}


async def test_a_second_try_stays_with_the_model():
    judges = [Actor(InfraError("boom"), model="h100"), Actor(model="a100"), Actor(model="h100")]
    async with pool(*judges) as dispatcher:
        result = await ask(dispatcher, TASKS[0], "x")
        assert (result.attempts, models([result]), len(judges[2].seen)) == (2, {"h100"}, 1)


async def test_the_only_judge_of_a_model_is_asked_again():
    bad = Actor(InfraError("boom"), model="h100")
    async with pool(bad, Actor(model="a100")) as dispatcher:
        result = await ask(dispatcher, TASKS[0], "x")
        assert (result.attempts, models([result]), bad.seen) == (2, {"h100"}, ["x", "x"])


async def test_prompts_of_a_lost_model_move_after_a_while_and_say_so(caplog):
    lost, other = Actor(model="h100"), Actor(model="a100")
    async with pool(lost, other, model_wait_s=0.05) as dispatcher:
        before = await ask(dispatcher, TASKS[0], "x")
        assert models([before]) == {"h100"}
        assert CHANGED not in before.env
        lost.script, lost.start = [JudgeLost("its node is gone")], InfraError("no place")
        with caplog.at_level(logging.WARNING):
            after = await ask(dispatcher, TASKS[0], "y")
        assert (after.status, after.attempts, models([after])) == (EvalStatus.OK, 2, {"a100"})
        assert after.env[CHANGED] == "h100"
        assert "no judge of h100 for 0.05 s: its prompts go to a100" in caplog.text
        again = await ask(dispatcher, TASKS[0], "x")  # the verdict of the other model is not given out any more
        assert models([again]) == {"a100"}
        assert other.seen == ["y", "x"]


async def test_a_model_that_comes_back_in_time_keeps_its_prompts():
    judge, other = Actor(model="h100"), Actor(model="a100")
    async with pool(judge, other, model_wait_s=60) as dispatcher:
        await ask(dispatcher, TASKS[0], "x")
        judge.script = [JudgeLost("restarted")]
        result = await ask(dispatcher, TASKS[0], "y")
        assert (result.attempts, models([result]), CHANGED in result.env) == (2, {"h100"}, False)


async def test_a_judge_on_another_gpu_serves_its_new_model():
    judge, other = Actor(model="h100"), Actor(model="a100")
    async with pool(judge, other, model_wait_s=0.05) as dispatcher:
        await ask(dispatcher, TASKS[0], "x")
        judge.script, judge.place = [JudgeLost("moved")], Placement("there", 8, "a100")
        result = await ask(dispatcher, TASKS[0], "y")
        assert models([result]) == {"a100"}
        assert result.env[CHANGED] == "h100"


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
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from([False, False, False, True]), max_size=12)),
             min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2)), min_size=1, max_size=40),
    st.lists(st.integers(0, 4), max_size=3),
)  # fmt: skip
def test_no_prompt_meets_two_models(makers, requests, drains):
    async def scene():
        judges = [
            Actor(*(JudgeLost("lost") if is_lost else None for is_lost in failures), node=f"node {number}", model=model)
            for number, (model, failures) in enumerate(makers)
        ]
        dispatcher = Dispatcher(judges, GymOptions(queue_size=8, model_wait_s=60))
        await dispatcher.ready()
        asked = [(prompt, ask(dispatcher, TASKS[prompt[0]], f"{n}", prompt[1])) for n, prompt in enumerate(requests)]
        numbers = [number for number in drains if number < len(judges)]
        await dispatcher.drain((), numbers, True)
        await settle()
        await dispatcher.drain((), numbers, False)
        found = defaultdict(list)
        for prompt, request in asked:
            found[prompt].append(await request)
        await dispatcher.close()
        return found

    for results in asyncio.run(scene()).values():
        judged = [result for result in results if result.status is EvalStatus.OK]
        assert len(models(judged)) <= 1
        assert not any(CHANGED in result.env for result in judged)
        assert all(result.attempts == 4 for result in results if result not in judged)


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
