# SPDX-License-Identifier: Apache-2.0
"""What is paid where a reference does what its output does not need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.programs import elementwise, reference
from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.clocks.needed_time import bounded, needed_share
from verl_kernel.env.clocks.statistics import timing
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent

H100 = MachineModel.of("h100")
EVENTS = [
    TraceEvent("op", f"aten::{name}", (), megabytes << 20, 0)
    for name, megabytes in (("mul.Tensor", 64), ("tanh", 64), ("mul.Scalar", 256), ("add.Tensor", 64))
]
IDLE = "def _idle(x):\n    for _ in range(6):\n        x = torch.tanh(x)\n    return x\n"
REFERENCE = reference("x.abs() + x.abs() * 1e-9 * _idle(x)", "torch.randn(512, 1024)") + IDLE
OPTIONS = GymOptions(device="cpu", static_check="coverage", compile_for="sm_90")


@pytest.mark.parametrize(("flags", "idle"), [
    (["constant_inputs"], 0), (["insensitive:tanh"], 64), (["insensitive:mul"] * 2, 320),
    (["insensitive:mul"], 256),  # of several with a name the longest is meant
])  # fmt: skip
def test_an_op_that_is_flagged_is_not_needed(flags, idle):
    assert needed_share(EVENTS, flags, H100) == pytest.approx(1 - idle / 448, abs=0.03 if idle else 1e-12)


@given(st.lists(st.sampled_from(["insensitive:mul", "insensitive:tanh", "insensitive:sin"]), max_size=6))
def test_more_flags_leave_less(flags):
    assert needed_share(EVENTS, [*flags, "insensitive:tanh"], H100) <= needed_share(EVENTS, flags, H100) <= 1.0


def measured(**more):
    return Measurement(timing([1.0]), timing([3.0]), None, **more)


def test_the_speedup_is_bounded_and_the_part_is_told():
    found = bounded(measured(facts={"a": 1}), EVENTS, ["insensitive:tanh"], "h100")
    assert found.speedup == pytest.approx(3 * (1 - 64 / 448), abs=0.1)
    assert found.facts.keys() == {"a", "reference_needed"}
    assert bounded(measured(), EVENTS, [], "h100") == measured()
    assert needed_share([], ["insensitive:mul"], H100) == 1.0


@pytest.mark.exhaustive
@pytest.mark.processes
def test_leaving_out_idle_work_is_not_paid(judge):
    result = judge.evaluate(Task(REFERENCE), elementwise("tl.abs(v)"))
    assert result.status == "ok", result.error
    assert result.speedup < 2.5, result.task_flags
