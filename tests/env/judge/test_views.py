# SPDX-License-Identifier: Apache-2.0
"""`kernelgym.memory_checks`: accesses that leave the views which a launch was given, and stay in their storage."""

from collections.abc import Iterator

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

TASK = Task(
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return []
""",
    task_id="double",
)
SOURCE = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def double(x, o, x_row, o_row, n: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, 128)
{fore}    value = tl.load(x + row * x_row + c, mask=c < {read}, other=0.0) + 0.0 * {more}
    tl.store(o + row * o_row + c, tl.where(c < n, value * 2, 0.0), mask=c < {written})

class ModelNew(nn.Module):
    def forward(self, x):
        {before}
        double[(8,)](x, o, {steps}, 64)
        return o
"""
ROOM = "room = torch.zeros(1024); o = room[:512].view(8, 64)"
FILLED = "room = torch.zeros(1024); room[:512] = x.view(-1); x = room[:512].view(8, 64); o = torch.empty_like(x)"
WIDE = "wide = torch.zeros(8, 128); wide[:, :64] = x; x, o = wide[:, :64], torch.empty_like(x)"
SHIFTED = "room = torch.zeros(600); o = room[8:520].view(8, 64)"
BOTH = "both = torch.cat([x, x]); x = both[:8]; "
FORE = "    tl.store(o - 8 + c, 0.0, mask=c < 8 - 8 * row)\n"


def source(before="o = torch.empty_like(x)", steps="64, 64", read="64", written="64", more="0.0", fore=""):
    return SOURCE.format(before=before, steps=steps, read=read, written=written, more=more, fore=fore)


OUTSIDE = {
    "writes behind a view": source(ROOM, written="64 + 2 * (row == 7)"),
    "writes before a view": source(SHIFTED, fore=FORE),
    "reads behind a view": source(FILLED, read="64 + 2 * (row == 7)"),
    "reads behind the last row": source(WIDE, steps="128, 64", read="128"),
    "reads another chunk": source(BOTH + "o = torch.empty_like(x)", read="64 + (row == 7)"),
    "reads before a row": source(BOTH + "x = both[8:]; o = torch.empty_like(x)", more="tl.load(x - 1)"),
}
INSIDE = {
    "the storage": source(),
    "a view": source(ROOM),
    "a view in the middle": source(SHIFTED),
    "columns of a wider tensor": source(WIDE, steps="128, 64"),
    "between the columns of a wider tensor": source(WIDE, steps="128, 64", read="128 - 64 * (row == 7)"),
    "both chunks": source(BOTH + "o = both[8:]"),
    "between two given chunks": source("all = torch.cat([x, x, x]); x, o = all[:8], all[16:]", read="64 + (row == 7)"),
}
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judges() -> Iterator[dict[str, Judge]]:
    options = [GymOptions(device="cpu", correctness_trials=2, memory_checks=how) for how in ("refuse", "record")]
    with Judge(options[0], seed=5) as refusing, Judge(options[1], seed=5) as recording:
        yield {"refuse": refusing, "record": recording}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_access_beyond_a_view_is_unsafe(name, judges):
    result = judges["refuse"].evaluate(TASK, OUTSIDE[name])
    assert (result.status, result.error.type) == (EvalStatus.UNSAFE, "CompiledOutsideView"), result.error


@pytest.mark.parametrize("name", INSIDE)
def test_an_access_inside_of_a_view_is_none(name, judges):
    result = judges["refuse"].evaluate(TASK, INSIDE[name])
    assert result.status is EvalStatus.OK, result.error
    assert result.memory_findings == (), result.error


def test_the_sentence_names_the_element_of_the_view(judges):
    message = judges["refuse"].evaluate(TASK, OUTSIDE["reads behind a view"]).error.message
    assert "though inside their storage, at element 512 of x: check the mask" in message


def test_it_is_recorded_at_no_cost(judges):
    result = judges["record"].evaluate(TASK, OUTSIDE["reads behind a view"])
    assert result.rewarded, result.error
    assert [found.kind for found in result.memory_findings] == ["outside_view"], result.error
