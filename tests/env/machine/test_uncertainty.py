# SPDX-License-Identifier: Apache-2.0
"""Intervals of predicted times: which class a step has, and how the errors of events combine."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.machine import uncertainty
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.machine.uncertainty import (
    COMPILED_HALF_WIDTHS,
    HALF_WIDTHS,
    ForwardShares,
    bound,
    interval_ms,
    time_by_class,
)
from verl_kernel.env.trace import Step, TraceEvent

H100 = MachineModel.of("h100")
COPY = Step(10**9)
STEPS = {
    "memory": COPY,
    "mixed memory": Step(10**9, access="mixed"),
    "products": Step(10**6, flops=10**12),
    "convolutions": Step(10**6, flops=10**12, unit="direct"),
    "instructions": Step(10**6, instructions=10**12),
    "latency": Step(10**6, blocks=10, in_flight=1024),
}
FIRST, SECOND = (TraceEvent("op", "op", steps=(COPY,), touched=((number, 8, 8),)) for number in (0, 1))


def op(*steps, name="op"):
    return TraceEvent("op", name, steps=steps)


def speedup_interval(reference, candidate, machine, widths=HALF_WIDTHS):
    forwards = (ForwardShares.of(events, machine) for events in (reference, candidate))
    return uncertainty.speedup_interval(*forwards, widths)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_the_class_of_what_takes_its_time(name):
    assert bound(STEPS[name], H100) == name
    (low, high), middle = interval_ms([op(STEPS[name])], H100), time_ms([op(STEPS[name])], H100)
    assert (log(high / middle), log(middle / low)) == pytest.approx((HALF_WIDTHS[name], HALF_WIDTHS[name]))


def test_every_class_has_a_half_width():
    classes = {f"{of}{name}" for of in ("", "launch: ") for name in STEPS}
    assert classes == HALF_WIDTHS.keys() == COMPILED_HALF_WIDTHS.keys()


@pytest.mark.parametrize("name", STEPS)
def test_a_triton_kernels_time_is_less_certain_than_an_ops(name):
    event = TraceEvent("launch", "kernel", steps=(STEPS[name],))
    (low, high), middle = interval_ms([event], H100), time_ms([event], H100)
    half = HALF_WIDTHS[f"launch: {name}"]
    assert (log(high / middle), log(middle / low)) == pytest.approx((half, half))
    assert half > HALF_WIDTHS[name] or name in ("convolutions",)


def test_a_compiled_reference_is_less_certain():
    (low, high), middle = interval_ms([op(COPY)], H100, widths=COMPILED_HALF_WIDTHS), time_ms([op(COPY)], H100)
    half = COMPILED_HALF_WIDTHS["memory"]
    assert (log(middle / low), log(high / middle)) == pytest.approx((half, half))
    other = op(COPY, COPY, name="another")
    low, high = speedup_interval([op(COPY)], [other], H100, COMPILED_HALF_WIDTHS)
    assert log(high / low) / 2 == pytest.approx((half**2 + HALF_WIDTHS["memory"] ** 2) ** 0.5)


def test_what_lies_in_l2_is_no_transfer():
    step = Step(4 * 10**7)
    again = TraceEvent("op", "op", steps=(step,), recent=((step.bytes, 0),))
    assert [*time_by_class([op(step)], H100), *time_by_class([again], H100)] == ["memory", "latency"]


def test_the_host_is_no_faster_for_an_error_of_the_device():
    many = [op(Step())] * 100
    assert interval_ms(many, H100)[0] > 0.9 * time_ms(many, H100)
    assert interval_ms([], H100) == (0.0, 0.0)


@pytest.mark.parametrize("one, other, widths", [
    ([op(step) for step in STEPS.values()], [op(step) for step in STEPS.values()], HALF_WIDTHS),
    ([FIRST], [SECOND], HALF_WIDTHS),  # the same op on another tensor
    ([op(STEPS["convolutions"])], [op(STEPS["convolutions"])], COMPILED_HALF_WIDTHS),
])  # fmt: skip
def test_a_program_is_as_fast_as_itself_for_sure(one, other, widths):
    """What both sides share is wrong in both."""
    assert speedup_interval(one, other, H100, widths) == pytest.approx((1.0, 1.0))


def test_errors_of_two_programs_are_independent():
    half = (HALF_WIDTHS["memory"] ** 2 + HALF_WIDTHS["products"] ** 2) ** 0.5
    reference, candidate = [op(COPY)], [op(STEPS["products"])]
    middle = time_ms(reference, H100) / time_ms(candidate, H100)
    assert speedup_interval(reference, candidate, H100) == pytest.approx((middle * exp(-half), middle * exp(half)))


def test_what_both_run_makes_a_speedup_surer():
    both = op(STEPS["convolutions"])
    kept = speedup_interval([both, op(COPY)], [both], H100)
    other = speedup_interval([both, op(COPY)], [op(STEPS["convolutions"], name="another")], H100)
    assert kept[1] / kept[0] < other[1] / other[0]


@pytest.mark.parametrize("programs", [([], [op(COPY)]), ([op(COPY)], [])])
def test_without_a_time_a_speedup_is_unknown(programs):
    assert speedup_interval(*programs, H100) is None


EVENTS = st.lists(st.sampled_from([op(step, name=name) for name, step in STEPS.items()]), min_size=1, max_size=8)


@given(EVENTS, EVENTS)
def test_an_interval_holds_what_is_predicted(reference, candidate):
    low, high = interval_ms(candidate, H100)
    assert low <= time_ms(candidate, H100) <= high
    low, high = speedup_interval(reference, candidate, H100)
    assert low * (1 - 1e-9) <= time_ms(reference, H100) / time_ms(candidate, H100) <= high * (1 + 1e-9)
