# SPDX-License-Identifier: Apache-2.0
"""Who gets which judge."""

import asyncio

import pytest

from tests.env.waiting import soon
from verl_kernel.env.pool.scheduling.scheduler import Ticket, Turnstile
from verl_kernel.errors import InfraError


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def queue_up(turnstile, names, order):
    """One visitor per name, in order; `v...` is urgent; each notes its turn and leaves at once."""

    async def visit(name):
        judge = await turnstile.enter(Ticket(urgent=name[0] == "v"))
        order.append(name)
        await asyncio.sleep(0)
        turnstile.leave(judge)

    visits = {}
    for name in names:
        visits[name] = asyncio.ensure_future(visit(name))
        await settle()
    return visits


async def test_urgent_requests_pass_and_the_cancelled_are_forgotten():
    turnstile, order = Turnstile(["judge"]), []
    first = await turnstile.enter(Ticket())
    visits = await queue_up(turnstile, ("t1", "t2", "v1", "t3", "v2"), order)
    visits["t2"].cancel()
    await settle()
    assert turnstile.waiting == 4 and turnstile.states() == ["busy"]
    turnstile.leave(first)
    await asyncio.gather(*visits.values(), return_exceptions=True)
    assert turnstile.waiting == 0 and turnstile.states() == ["free"]
    assert order == ["v1", "v2", "t1", "t3"]


async def test_a_waiting_request_can_become_urgent():
    turnstile, order = Turnstile(["judge"]), []
    first, late = await turnstile.enter(Ticket()), Ticket()
    visits = await queue_up(turnstile, ("t1",), order)
    waiting = asyncio.ensure_future(turnstile.enter(late))
    await settle()
    late.urgent = True
    turnstile.leave(first)
    assert await waiting == "judge" and order == []
    turnstile.leave("judge")
    await visits["t1"]


async def test_a_judge_handed_to_a_request_cancelled_in_that_moment_is_not_lost():
    turnstile = Turnstile(["judge"])
    first = await turnstile.enter(Ticket())
    waiting = asyncio.ensure_future(turnstile.enter(Ticket()))
    await settle()
    turnstile.leave(first)  # hands it over ...
    waiting.cancel()  # ... before the other side has run
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert turnstile.states() == ["free"]


async def test_a_second_try_goes_elsewhere_even_where_it_must_wait():
    turnstile = Turnstile(["a", "b"])
    assert [await turnstile.enter(Ticket()) for _ in range(2)] == ["a", "b"]
    again = asyncio.ensure_future(turnstile.enter(Ticket().again("a")))
    turnstile.leave("a")
    await settle()
    assert not again.done() and turnstile.states() == ["free", "busy"]
    turnstile.leave("b")
    assert await again == "b"


async def test_the_same_judge_serves_the_second_try_where_it_is_the_only_one():
    turnstile = Turnstile(["a", "b"])
    turnstile.down("b")
    assert await turnstile.enter(Ticket().again("a")) == "a"


async def test_a_judge_that_is_down_serves_nobody_until_it_is_up():
    turnstile = Turnstile(["a"], down=True)
    waiting = asyncio.ensure_future(turnstile.enter(Ticket()))
    await settle()
    assert turnstile.states() == ["down"] and not waiting.done()
    turnstile.up("a")
    assert await waiting == "a"


async def test_the_third_failure_in_a_row_is_a_quarantine_and_each_next_one_twice_as_long():
    turnstile = Turnstile(["a", "b"], strikes=3, back_off_s=0.02)
    assert [turnstile.blame("a") for _ in range(3)] == [0.0, 0.0, 0.02]
    assert turnstile.states() == ["quarantined", "free"]
    await soon(lambda: turnstile.states() == ["free", "free"])
    assert turnstile.blame("a") == 0.04  # on probation
    assert turnstile.states() == ["quarantined", "free"]
    await soon(lambda: turnstile.states() == ["free", "free"])
    turnstile.well("a")
    assert [turnstile.blame("a") for _ in range(3)] == [0.0, 0.0, 0.02]


async def test_quarantine_never_takes_the_last_judge():
    turnstile = Turnstile(["a", "b"], strikes=1, back_off_s=60)
    assert turnstile.blame("a") == 60 and turnstile.blame("b") == 0
    turnstile.down("b")
    assert await turnstile.enter(Ticket()) == "a"  # better than nobody


async def test_a_pool_without_judges_says_so_to_everyone():
    turnstile = Turnstile(["a"], down=True)
    waiting = asyncio.ensure_future(turnstile.enter(Ticket()))
    await settle()
    turnstile.refuse(InfraError("no device"))
    for request in (waiting, turnstile.enter(Ticket())):
        with pytest.raises(InfraError, match="no device"):
            await request


async def two_models(**options):
    turnstile = Turnstile(["a", "b"], down=True, **options)
    turnstile.up("a", "h100")
    turnstile.up("b", "a100")
    return turnstile


async def test_requests_of_one_pin_get_judges_of_one_model():
    turnstile, first = await two_models(), Ticket()
    assert await turnstile.enter(first) == "a"
    second = asyncio.ensure_future(turnstile.enter(Ticket(pin=first.pin)))
    await settle()
    assert not second.done() and await turnstile.enter(Ticket()) == "b"
    turnstile.leave("b")
    await settle()
    assert not second.done()
    turnstile.leave("a")
    assert await second == "a"


async def test_quarantine_never_takes_the_last_judge_of_a_model():
    turnstile, ticket = await two_models(strikes=1, back_off_s=60), Ticket()
    assert turnstile.blame("a") == 0.0 and turnstile.states() == ["free", "free"]
    assert await turnstile.enter(ticket) == "a"
    turnstile.leave("a")
    assert await turnstile.enter(ticket.again("a")) == "a"


async def test_a_model_is_lost_only_where_its_last_judge_is_away_for_long():
    turnstile, ticket = await two_models(model_wait_s=0.02), Ticket()
    assert await turnstile.enter(ticket) == "a"
    turnstile.down("a")
    turnstile.leave("a")
    turnstile.up("a", "h100")  # in time
    await asyncio.sleep(0.05)
    waiting = [asyncio.ensure_future(turnstile.enter(Ticket(pin=ticket.pin))) for _ in range(2)]
    await settle()
    assert [request.done() for request in waiting] == [True, False]
    turnstile.drain("a", True)
    await asyncio.sleep(0.05)
    assert not waiting[1].done() and turnstile.states() == ["draining", "free"]  # it still serves its last
    turnstile.leave("a")
    assert turnstile.states() == ["drained", "free"]
    assert await asyncio.wait_for(waiting[1], 60) == "b" and ticket.pin.model == "a100"
