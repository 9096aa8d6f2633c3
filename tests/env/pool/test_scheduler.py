# SPDX-License-Identifier: Apache-2.0
"""Who gets which judge, and one GPU model per prompt."""

import asyncio

import pytest

from tests.env.programs import REFERENCE
from tests.env.waiting import soon
from verl_kernel.env import Task
from verl_kernel.env.pool.scheduling.scheduler import _MOST_PASSED, CHANGED, JudgeScheduler, Pin, Pins, Ticket
from verl_kernel.errors import InfraError

TASK, OTHER = Task(REFERENCE), Task(REFERENCE + "\n# other\n")


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


def two_models(**options):
    scheduler = JudgeScheduler(["a", "b"], down=True, **options)
    scheduler.up("a", "h100")
    scheduler.up("b", "a100")
    return scheduler


async def test_quarantine_never_takes_the_last_judge_of_a_model():
    scheduler, ticket = two_models(quarantine_after=1, quarantine_s=60), Ticket()
    assert scheduler.note_failure("a") == 0.0
    assert scheduler.states() == ["free", "free"]
    assert await scheduler.acquire(ticket) == "a"
    scheduler.release("a")
    assert await scheduler.acquire(ticket.again("a")) == "a"


async def test_a_model_is_lost_when_its_last_judge_stays_away():
    scheduler, ticket = two_models(model_wait_s=0.02), Ticket()
    assert await scheduler.acquire(ticket) == "a"
    scheduler.down("a")
    scheduler.release("a")
    scheduler.up("a", "h100")  # in time
    await asyncio.sleep(0.05)
    waiting = [asyncio.ensure_future(scheduler.acquire(Ticket(pin=ticket.pin))) for _ in range(2)]
    await settle()
    assert [request.done() for request in waiting] == [True, False]
    scheduler.drain("a", True)
    await asyncio.sleep(0.05)
    assert not waiting[1].done()
    assert scheduler.states() == ["draining", "free"]  # it still serves its last
    scheduler.release("a")
    assert scheduler.states() == ["drained", "free"]
    assert await asyncio.wait_for(waiting[1], 300) == "b"
    assert ticket.pin.model == "a100"


async def test_a_free_judge_takes_candidates_of_its_reference_first():
    scheduler, (one, two) = JudgeScheduler(["a", "b"]), (Pin(), Pin())
    assert [await scheduler.acquire(Ticket(pin=pin)) for pin in (one, two)] == ["a", "b"]
    waiting = [asyncio.ensure_future(scheduler.acquire(Ticket(pin=pin))) for pin in (one, one, two, two, Pin())]
    await settle()
    for number, judge in ((2, "b"), (3, "b"), (4, "b"), (0, "a")):  # a reference that nobody has before the other's
        scheduler.release(judge)
        await settle()
        assert waiting[number].result() == judge
    scheduler.release("b")  # no judge waits while there is work
    await settle()
    assert waiting[1].result() == "b"
    assert one.holders == {*scheduler._slots}


async def test_of_two_free_judges_the_one_with_the_reference_is_asked():
    scheduler, pin = JudgeScheduler(["a", "b"]), Pin()
    scheduler.drain("a", True)
    assert await scheduler.acquire(Ticket(pin=pin)) == "b"
    scheduler.release("b")
    scheduler.drain("a", False)
    assert await scheduler.acquire(Ticket(pin=pin)) == "b"
    assert await scheduler.acquire(Ticket(pin=pin, urgent=True)) == "a"


async def test_a_request_is_passed_over_so_often_and_no_more():
    scheduler, pin = JudgeScheduler(["a", "b"]), Pin()
    for other in (pin, Pin()):
        await scheduler.acquire(Ticket(pin=other))
    waiting = asyncio.ensure_future(scheduler.acquire(Ticket(pin=pin)))
    # Each with a reference that no judge has.
    others = [asyncio.ensure_future(scheduler.acquire(Ticket())) for _ in range(_MOST_PASSED + 1)]
    for _ in range(_MOST_PASSED + 1):
        assert not waiting.done()
        await settle()
        scheduler.release("b")
    assert await waiting == "b"
    assert [other.done() for other in others] == [True] * _MOST_PASSED + [False]


def test_a_prompt_is_a_task_in_a_step():
    pins = Pins()
    assert pins.of(TASK, 1) is pins.of(Task(REFERENCE, task_id="alias"), 1)
    assert len({id(pins.of(task, step)) for task in (TASK, OTHER) for step in (None, 1, 2)}) == 6


def test_the_pins_used_least_recently_are_forgotten():
    pins = Pins(capacity=2)
    one, two = pins.of(TASK, 1), pins.of(TASK, 2)
    assert pins.of(TASK, 1) is one
    pins.of(TASK, 3)
    assert pins.of(TASK, 1) is one
    assert pins.of(TASK, 2) is not two


def test_a_change_of_model_is_told_where_another_has_judged():
    pin = Pin()
    pin.take("h100")
    pin.take("a100")  # before anything was judged
    assert pin.note("a100") == {}
    assert pin.note("a100") == {}
    pin.take("l40")
    assert pin.note("l40") == {CHANGED: "a100"}
    pin.take("b200")
    assert pin.note("b200") == {CHANGED: "l40"}


def test_a_late_answer_from_the_old_model_counts():
    pin = Pin()
    pin.take("h100")
    pin.take("a100")  # while a judge of h100 is still at work
    assert pin.note("h100") == {}
    assert pin.note("a100") == {CHANGED: "h100"}
