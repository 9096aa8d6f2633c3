# SPDX-License-Identifier: Apache-2.0
"""`kernelgym.memory_checks`: reads of what nobody has written, and races."""

from collections.abc import Iterator

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.judge.runner_client import ADDRESS
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

TASK = Task(
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x + x

def get_inputs():
    return [torch.randint(0, 99, (8, 64))]

def get_init_inputs():
    return []
""",
    task_id="twice",
)
SOURCE = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def adding(x, extra, out, n: tl.constexpr):
    place = tl.program_id(0) * n + tl.arange(0, n)
    more = tl.load(extra + place, mask={mask}, other=0)
    tl.store(out + place, 2 * tl.load(x + place) + {rest}){last}

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        extra = {extra}
        {before}
        adding[(8,)](x, extra, out, 64)
        return out
"""


def source(
    *, mask="place >= 0", rest="tl.where(more > (1 << 60), 1, 0)", extra="torch.empty_like(x)", before="pass", last=""
):
    return SOURCE.format(mask=mask, rest=rest, extra=extra, before=before, last=last)


RACING = source(
    extra="torch.zeros_like(x)",
    last="\n    tl.store(out, 1000 + tl.program_id(0))\n    tl.debug_barrier()\n    tl.store(out, 2 * tl.load(x))",
)
WRITTEN = {
    "zeroed": source(before="extra.zero_()"),
    "by_slices": source(before="extra[:4] = 1; extra[4:].fill_(2)"),
    "by_a_view": source(before="extra.view(-1)[:512].copy_(x.view(-1))"),
    "by_out": source(before="torch.add(x, 1, out=extra)"),
    "by_a_kernel": source(before="adding[(8,)](x, x, extra, 64)"),
    "masked": source(mask="place < 0"),
    "in_part": source(mask="place < 256", before="extra[:4].zero_()"),
    "freed_before": source(before="extra = None; extra = torch.zeros_like(x)"),
    "of_another_op": source(extra="x * 3"),
}
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def refusing() -> Iterator[Judge]:
    options = GymOptions(device="cpu", correctness_trials=2, memory_checks="refuse")
    with Judge(options, seed=5) as judge:
        yield judge


@pytest.fixture(scope="module")
def recording() -> Iterator[Judge]:
    options = GymOptions(device="cpu", correctness_trials=2, memory_checks="record")
    with Judge(options, seed=5) as judge:
        yield judge


@pytest.mark.parametrize("name", WRITTEN)
def test_memory_that_was_written_may_be_read(name, refusing):
    result = refusing.evaluate(TASK, WRITTEN[name])
    assert result.status is EvalStatus.OK, result.error
    assert result.memory_findings == ()


@pytest.mark.parametrize("before", ["pass", "extra[1:].zero_()"])
def test_a_read_of_what_nobody_has_written_is_unsafe(before, refusing):
    result = refusing.evaluate(TASK, source(before=before))
    assert result.status is EvalStatus.UNSAFE, result.error
    assert result.error.type == "CompiledUnwritten", result.error
    assert "line 10, in adding" in result.error.message
    assert "nobody has written" in result.error.message


@pytest.mark.parametrize(
    ("program", "kind", "line"), [(source(), "uninitialised_read", 10), (RACING, "race", None)], ids=["read", "race"]
)
def test_what_is_recorded_costs_nothing(program, kind, line, recording):
    result = recording.evaluate(TASK, program)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup > 0, result.error
    found = result.memory_findings[0]
    assert not ADDRESS.search(found.message)  # it is another one in every run
    assert (found.kind, found.kernel) == (kind, "adding")
    assert line in (found.line, None)
    assert found.message


def test_a_finding_in_a_kernel_with_a_long_name_is_recorded(recording):
    found = recording.evaluate(TASK, RACING.replace("adding", "a" * 120)).memory_findings[0]
    assert (found.kind, found.kernel) == ("race", "a" * 100)


def test_a_recorded_race_is_unsafe_under_refuse(refusing):
    result = refusing.evaluate(TASK, RACING)
    assert result.status is EvalStatus.UNSAFE, result.error
    assert result.error.type == "CompiledRace", result.error


LARGE = """
import torch
import triton
import triton.language as tl
from torch import nn

SCRATCH = 160 << 20

@triton.jit
def noting(x, scratch, out, last, n: tl.constexpr):
    place = tl.program_id(0) * n + tl.arange(0, n)
    tl.store(out + place, 2 * tl.load(x + place))
    tl.store(scratch + last - {place}, (tl.program_id(0) + 1).to(tl.int8))

@triton.jit
def counting(x, counter, flag, out, n: tl.constexpr):
    place = tl.program_id(0) * n + tl.arange(0, n)
    is_set = tl.load(flag)
    tl.debug_barrier()
    ticket = tl.atomic_add(counter, 1)
    many = tl.where(is_set > 5, 1, 0)
    tl.store(out + place, 2 * tl.load(x + place, mask=place < 512) + many, mask=place < 512)
    if ticket == tl.num_programs(0) - 1:
        tl.store(flag, 1)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        {launch}
        return out
"""
NOTE = "noting[(8,)](x, torch.empty(SCRATCH, dtype=torch.int8), out, SCRATCH - 1, 64)"
COUNT = (
    "counting[({blocks},)](x, x.new_zeros(1, dtype=torch.int32), x.new_zeros(1, dtype=torch.int32), out, 64, "
    "num_warps={warps})"
)


def large(launch, place="tl.program_id(0)"):
    return LARGE.format(launch=launch, place=place)


def test_a_race_in_memory_that_is_watched_in_parts_is_unsafe(refusing):
    result = refusing.evaluate(TASK, large(NOTE, "0"))
    assert result.status is EvalStatus.UNSAFE, result.error
    assert result.error.type == "CompiledRace", result.error
    assert "in noting" in result.error.message


def test_a_race_in_memory_that_is_watched_in_parts_is_recorded(recording):
    result = recording.evaluate(TASK, large(NOTE, "0"))
    assert result.status is EvalStatus.OK, result.error
    assert "races_not_watched" not in result.env, result.error
    assert [found.kind for found in result.memory_findings] == ["race"]


def test_large_memory_without_a_race_is_paid(refusing):
    result = refusing.evaluate(TASK, large(NOTE))
    assert result.rewarded, result.error
    assert "races_not_watched" not in result.env, result.error


def test_an_unwatchable_launch_is_not_paid(refusing, recording):
    program = large(COUNT.format(blocks=8200, warps=32))
    refused, recorded = refusing.evaluate(TASK, program), recording.evaluate(TASK, program)
    assert refused.status is EvalStatus.UNSAFE, refused.error
    assert refused.error.type == "CompiledNotWatched", refused.error
    assert "what its 8200 blocks know of each other takes too many bytes; launch fewer" in refused.error.message
    assert recorded.status is EvalStatus.OK, recorded.error
    assert recorded.env["races_not_watched"] == [
        "races: what its 8200 blocks know of each other takes too many bytes; launch fewer"
    ]


def test_what_cannot_be_decided_is_paid_and_reported(refusing):
    result = refusing.evaluate(TASK, large(COUNT.format(blocks=8, warps=1)))
    assert result.rewarded, result.error
    assert "one of several blocks" in result.env["races_not_watched"][0]
