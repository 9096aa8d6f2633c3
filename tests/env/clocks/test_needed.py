# SPDX-License-Identifier: Apache-2.0
"""What is paid where a reference does what its output does not need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.clocks.needed import bounded, needed_share
from verl_kernel.env.clocks.statistics import timing
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent

H100 = Machine.of("h100")
MEGABYTE = 1 << 20


def op(name, megabytes):
    return TraceEvent("op", f"aten::{name}", (), megabytes * MEGABYTE, 0)


EVENTS = [op("mul.Tensor", 64), op("tanh", 64), op("mul.Scalar", 256), op("add.Tensor", 64)]


def test_all_is_needed_where_nothing_is_flagged():
    assert needed_share(EVENTS, ["constant_inputs"], H100) == 1.0


def test_an_op_that_is_flagged_is_not_needed():
    assert needed_share(EVENTS, ["insensitive:tanh"], H100) == pytest.approx(1 - 64 / 448, abs=0.03)


def test_of_several_with_a_name_the_longest_is_meant():
    assert needed_share(EVENTS, ["insensitive:mul"], H100) == pytest.approx(1 - 256 / 448, abs=0.03)


def test_a_name_that_is_flagged_twice_means_two():
    assert needed_share(EVENTS, ["insensitive:mul"] * 2, H100) == pytest.approx(1 - 320 / 448, abs=0.03)


def test_a_forward_that_does_nothing_needs_all_of_it():
    assert needed_share([], ["insensitive:mul"], H100) == 1.0


@given(st.lists(st.sampled_from(["insensitive:mul", "insensitive:tanh", "insensitive:sin"]), max_size=6))
def test_more_flags_leave_less(flags):
    assert needed_share(EVENTS, [*flags, "insensitive:tanh"], H100) <= needed_share(EVENTS, flags, H100) <= 1.0


def measured(**more):
    return Measurement(timing([1.0]), timing([3.0]), None, **more)


def test_the_speedup_is_bounded():
    assert bounded(measured(), EVENTS, ["insensitive:tanh"], "h100").speedup == pytest.approx(
        3 * (1 - 64 / 448), abs=0.1
    )


def test_the_part_is_told():
    facts = bounded(measured(facts={"a": 1}), EVENTS, ["insensitive:tanh"], "h100").facts
    assert facts.keys() == {"a", "reference_needed"}


def test_nothing_changes_where_all_is_needed():
    assert bounded(measured(), EVENTS, [], "h100") == measured()


REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        idle = x
        for _ in range(6):
            idle = torch.tanh(idle)
        return x.abs() + x.abs() * 1e-9 * idle

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""
LAZY = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def absolute(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.abs(tl.load(x_ptr + at, mask=at < n)), mask=at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        absolute[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


@pytest.mark.processes
def test_leaving_out_idle_work_is_not_paid():
    with Judge(GymOptions(device="cpu", static_check="coverage", compile_for="sm_90"), seed=1) as judge:
        result = judge.evaluate(Task(REFERENCE), LAZY)
    assert (result.status, result.speedup < 2.5) == ("ok", True), (result.speedup, result.task_flags, result.error)
