# SPDX-License-Identifier: Apache-2.0
"""The rules of a pool, with judges that do as they are told."""

import asyncio
import logging
from contextlib import asynccontextmanager, nullcontext

import pytest

from tests.env.programs import TASK
from verl_kernel.env import EvalResult, EvalStatus, GymOptions
from verl_kernel.env.pool.dispatcher import Dispatcher, Observer
from verl_kernel.env.pool.scheduling.judges import Placement
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import EnvironmentNotReady, InfraError, TaskError


class Actor:
    """A judge that follows a script: an exception per evaluation, or None for a verdict."""

    def __init__(self, *script, start=None, gate=None, node="here", model="gpu"):
        self.script, self.start, self.gate = list(script), start, gate
        self.place = Placement(node, 7, model)
        self.seen, self.revivals = [], 0

    async def judge(self, request):
        self.seen.append(request.source)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        trouble = self.script.pop(0) if self.script else None
        if trouble is not None:
            raise trouble
        env = {"judged_on": self.place.model}
        return EvalResult(task_id=request.task.task_id, status=EvalStatus.OK, correctness=True, env=env)

    async def revive(self):
        self.revivals += 1
        if self.start is not None:
            raise self.start

    def describe(self):
        return self.place


@asynccontextmanager
async def pool(*judges, observer=None, **options):
    dispatcher = Dispatcher(judges, GymOptions(**options), observer)
    yield dispatcher
    await dispatcher.close()


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def ask(dispatcher, source, **options):
    return asyncio.ensure_future(dispatcher.judge(EvalRequest(TASK, source, f"name of {source}", **options)))


async def test_a_failure_of_ours_is_tried_again_on_another_judge(caplog):
    bad, good = Actor(InfraError("boom")), Actor()
    async with pool(bad, good) as dispatcher:
        with caplog.at_level(logging.WARNING):
            result = await ask(dispatcher, "x")
        assert (result.status, result.attempts) == (EvalStatus.OK, 2)
        assert (bad.seen, good.seen) == (["x"], ["x"])
        assert "judge 0 failed on task fused (attempt 1, on to the next): boom" in caplog.text
        await settle()
        stats = await dispatcher.stats()
        assert bad.revivals == 2
        assert (stats.retries, stats.infra_errors, stats.alive) == (1, 0, 2)


async def test_one_judge_that_starts_is_enough_to_begin():
    refused, failed = Actor(start=EnvironmentNotReady("no jail")), Actor(start=InfraError("no place"))
    for judges, said in (((refused, failed, Actor()), ""), ((refused,), "no jail"), ((refused, failed), "no place")):
        async with pool(*judges) as dispatcher:
            with pytest.raises((EnvironmentNotReady, InfraError), match=said) if said else nullcontext():
                await dispatcher.one_ready()


async def test_what_the_pool_knows_is_added_to_every_answer():
    judge = Actor(InfraError("boom"))
    async with pool(judge) as dispatcher:
        first = await dispatcher.judge(EvalRequest(TASK, "x", step=1), lost=2)
        again = await dispatcher.judge(EvalRequest(TASK, "x", step=1))
    assert first.env == again.env == {"judged_on": "gpu"}
    assert first.task_hash == again.task_hash == TASK.text_hash
    assert (first.attempts, again.attempts) == (4, 2)
    assert first.queue_seconds == again.queue_seconds > 0


async def test_two_failures_are_an_infra_error_with_the_reason():
    async with pool(Actor(InfraError("one")), Actor(InfraError("two"))) as dispatcher:
        result = await ask(dispatcher, "x")
        assert (result.status, result.attempts, result.correctness) == (EvalStatus.INFRA_ERROR, 2, None)
        assert result.error.message == "two"
        assert result.kernel == "name of x"
        assert result.task_hash == TASK.text_hash
        assert (await dispatcher.stats()).infra_errors == 1
        assert (await ask(dispatcher, "x")).status is EvalStatus.OK  # it is not remembered


async def test_a_reference_that_cannot_serve_is_tried_once():
    judge = Actor(TaskError("unfit"))
    async with pool(judge) as dispatcher:
        for source in ("x", "y"):
            with pytest.raises(TaskError, match="^unfit$"):
                await ask(dispatcher, source)
        assert judge.seen == ["x"]
        assert (await dispatcher.stats()).busy == 0


async def test_a_source_is_judged_once_within_a_step():
    judge = Actor()
    async with pool(judge) as dispatcher:
        await asyncio.gather(*(ask(dispatcher, "x", step=1) for _ in range(3)))
        assert (await dispatcher.judge(EvalRequest(TASK, "x", "mine", step=1))).kernel == "mine"
        assert judge.seen == ["x"]
        assert (await dispatcher.stats()).remembered == 3
        await ask(dispatcher, "x", step=2)
        await ask(dispatcher, "x")
        assert judge.seen == ["x"] * 3
        await dispatcher.forget()
        await ask(dispatcher, "x")
        assert judge.seen == ["x"] * 4


async def test_a_full_queue_makes_callers_wait_and_drops_nothing():
    judge = Actor(gate=asyncio.Event())
    async with pool(judge, queue_size=2) as dispatcher:
        requests = [ask(dispatcher, str(number)) for number in range(10)]
        await settle()
        stats = await dispatcher.stats()
        assert (stats.busy, stats.queue, stats.held_back) == (1, 2, 7)
        judge.gate.set()
        assert {result.status for result in await asyncio.gather(*requests)} == {EvalStatus.OK}
        stats = await dispatcher.stats()
        assert (stats.queue, stats.held_back, stats.busy) == (0, 0, 0)
        assert judge.seen == list("0123456789")


async def test_validation_precedes_training_even_in_a_full_queue():
    judge = Actor(gate=asyncio.Event())
    async with pool(judge, queue_size=2) as dispatcher:
        requests = [ask(dispatcher, f"t{number}") for number in range(5)]
        await settle()
        requests += [ask(dispatcher, "v", validate=True), ask(dispatcher, "t2", validate=True)]
        await settle()
        judge.gate.set()
        await asyncio.gather(*requests)
        assert judge.seen == ["t0", "t2", "v", "t1", "t3", "t4"]  # t2 was in the queue already and became urgent


async def test_a_request_nobody_waits_for_any_more_is_not_started():
    judge = Actor(gate=asyncio.Event())
    async with pool(judge, queue_size=2) as dispatcher:
        running, queued, held = (ask(dispatcher, name) for name in ("running", "queued", "held"))
        others = [ask(dispatcher, "shared"), ask(dispatcher, "shared")]
        await settle()
        for request in (running, queued, others[0]):
            request.cancel()
        await settle()
        assert (await dispatcher.stats()).queue == 2
        judge.gate.set()
        assert [(await request).status for request in (held, others[1])] == [EvalStatus.OK] * 2
        assert judge.seen == ["running", "held", "shared"]
        assert (await ask(dispatcher, "running")).status is EvalStatus.OK
        assert judge.seen.count("running") == 1
        assert (await ask(dispatcher, "queued")).status is EvalStatus.OK


async def test_a_judge_that_fails_where_others_serve_is_quarantined(caplog):
    bad, good = Actor(*[InfraError("gpu")] * 9), Actor()
    async with pool(bad, good, quarantine_after=2, quarantine_s=60) as dispatcher:
        for number in range(6):
            assert (await ask(dispatcher, str(number))).status is EvalStatus.OK
            await settle()
        stats = await dispatcher.stats()
        assert [judge.state for judge in stats.judges] == ["quarantined", "free"]
        assert stats.quarantines == 1
        assert len(bad.seen) == 2
        assert "judge 0 keeps failing: out of rotation for 60 s" in caplog.text


async def test_a_job_that_fails_everywhere_is_held_against_no_judge():
    judges = [Actor(*[InfraError("the job")] * 9) for _ in range(2)]
    async with pool(*judges, quarantine_after=1, quarantine_s=60) as dispatcher:
        for number in range(3):
            assert (await ask(dispatcher, str(number))).status is EvalStatus.INFRA_ERROR
            await settle()
        assert [judge.state for judge in (await dispatcher.stats()).judges] == ["free", "free"]


async def test_where_no_judge_can_work_every_request_learns_why():
    async with pool(*(Actor(start=EnvironmentNotReady("no gpu")) for _ in range(2))) as dispatcher:
        with pytest.raises(EnvironmentNotReady, match="no gpu"):
            await dispatcher.ready()
        with pytest.raises(EnvironmentNotReady, match="no gpu"):
            await ask(dispatcher, "x")


async def test_one_judge_that_can_work_is_enough():
    async with pool(Actor(start=EnvironmentNotReady("no gpu")), Actor()) as dispatcher:
        assert (await ask(dispatcher, "x")).status is EvalStatus.OK
        assert (await dispatcher.stats()).alive == 1


async def test_a_judge_that_does_not_start_is_tried():
    async with pool(Actor(InfraError("dead"), InfraError("dead"), start=InfraError("no start"))) as dispatcher:
        result = await ask(dispatcher, "x")
        assert (result.status, result.error.message) == (EvalStatus.INFRA_ERROR, "dead")


async def test_the_observer_hears_of_every_result():
    class Ear(Observer):
        def __init__(self):
            self.heard = []

        def result(self, outcome, seconds):
            self.heard.append((outcome.result.status, seconds >= outcome.queue_seconds > 0))

        def state(self, stats):
            self.heard.append(stats.queue)

    async with pool(Actor(), observer=(ear := Ear())) as dispatcher:
        await ask(dispatcher, "x")
    assert ear.heard == [(EvalStatus.OK, True), 0]
