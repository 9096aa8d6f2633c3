# SPDX-License-Identifier: Apache-2.0
"""One GPU model per prompt: pins by themselves."""

from tests.env.programs import REFERENCE
from verl_kernel.env.pool.scheduling.scheduler import CHANGED, Pin, Pins
from verl_kernel.env.pool.verdict_cache import verdict_key
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.task import Task

TASK, OTHER = Task(REFERENCE), Task(REFERENCE + "\n# other\n")
REQUEST = EvalRequest(TASK, "x", step=1)


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


def test_verdicts_of_two_models_have_two_keys():
    pin = Pin()
    first = verdict_key(REQUEST, pin)
    pin.take("h100")
    assert verdict_key(REQUEST, pin) == first  # chosen only now, changed never
    pin.take("a100")
    assert verdict_key(REQUEST, pin) != first
    assert verdict_key(REQUEST, Pin()) not in (first, verdict_key(REQUEST, pin))
