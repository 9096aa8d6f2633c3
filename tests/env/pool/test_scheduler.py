# SPDX-License-Identifier: Apache-2.0
"""Who gets which judge."""

import asyncio

import pytest

from tests.env.waiting import soon
from verl_kernel.env.pool.scheduling.scheduler import JudgeScheduler, Ticket
from verl_kernel.errors import InfraError


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_judge_given_to_a_cancelled_request_is_not_lost():
    scheduler = JudgeScheduler(["judge"])
    first = await scheduler.acquire(Ticket())
    waiting = asyncio.ensure_future(scheduler.acquire(Ticket()))
    await settle()
    scheduler.release(first)  # hands it over ...
    waiting.cancel()  # ... before the other side has run
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert scheduler.states() == ["free"]


async def test_a_second_try_goes_elsewhere_even_where_it_must_wait():
    scheduler = JudgeScheduler(["a", "b"])
    assert [await scheduler.acquire(Ticket()) for _ in range(2)] == ["a", "b"]
    again = asyncio.ensure_future(scheduler.acquire(Ticket().again("a")))
    scheduler.release("a")
    await settle()
    assert not again.done()
    assert scheduler.states() == ["free", "busy"]
    scheduler.release("b")
    assert await again == "b"


async def test_quarantines_begin_at_three_failures_and_double():
    scheduler = JudgeScheduler(["a", "b"], quarantine_after=3, quarantine_s=0.02)
    assert [scheduler.note_failure("a") for _ in range(3)] == [0.0, 0.0, 0.02]
    assert scheduler.states() == ["quarantined", "free"]
    await soon(lambda: scheduler.states() == ["free", "free"])
    assert scheduler.note_failure("a") == 0.04  # on probation
    assert scheduler.states() == ["quarantined", "free"]
    await soon(lambda: scheduler.states() == ["free", "free"])
    scheduler.note_success("a")
    assert [scheduler.note_failure("a") for _ in range(3)] == [0.0, 0.0, 0.02]


async def test_quarantine_never_takes_the_last_judge():
    scheduler = JudgeScheduler(["a", "b"], quarantine_after=1, quarantine_s=60)
    assert scheduler.note_failure("a") == 60
    assert scheduler.note_failure("b") == 0
    scheduler.down("b")
    assert await scheduler.acquire(Ticket()) == "a"  # better than nobody


async def test_a_pool_without_judges_says_so_to_everyone():
    scheduler = JudgeScheduler(["a"], down=True)
    waiting = asyncio.ensure_future(scheduler.acquire(Ticket()))
    await settle()
    scheduler.refuse(InfraError("no device"))
    for request in (waiting, scheduler.acquire(Ticket())):
        with pytest.raises(InfraError, match="no device"):
            await request
