# SPDX-License-Identifier: Apache-2.0
"""A judge process and the zygote forked from it."""

import os
import signal
from pathlib import Path

import psutil
import pytest
import torch

from tests.env.gyms import below
from tests.env.judge.test_judge import BLIND, MARKED
from tests.env.programs import HONEST
from tests.env.waiting import until
from verl_kernel.env import EvalStatus, GymOptions, LocalPool

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def pool():
    with LocalPool(GymOptions(device="cpu", static_check="off", correctness_trials=1)) as pool:
        yield pool


def zygote(pool) -> psutil.Process:
    others = ("verl_kernel.env.compilation.zygote", "verl_kernel.env.execution.zygote")
    processes = below([psutil.Process(pool.pids()[0])], levels=1)
    (found,) = [one for one in processes if not set(others) & set(one.cmdline())]
    return found


def test_an_idle_judge_needs_little_more_than_one_torch(pool):
    limit = 450 if torch.version.cuda is None else 750  # a CUDA build maps its libraries, GPU or not
    processes = [psutil.Process(pool.pids()[0]), zygote(pool)]
    until(lambda: megabytes(processes) < limit)  # what starting has used is given back after a while


def megabytes(processes: list[psutil.Process]) -> float:
    """Private memory of all, and what they share counted once, whoever else maps it."""
    own = sum(process.memory_full_info().uss for process in processes)
    return (own + max(process.memory_info().rss for process in processes)) / 1e6


def test_the_zygote_shares_no_descriptor_with_the_judge(pool):
    links = [str(link.readlink()) for link in Path(f"/proc/{zygote(pool).pid}/fd").iterdir()]
    assert len([link for link in links if link.startswith("socket:")]) == 1


def test_a_runner_sees_nothing_of_the_judge(pool):
    for _ in range(2):
        (result,) = pool.evaluate_many([(MARKED, BLIND, "")])
        assert result.status is EvalStatus.OK, result.error
        pool.forget()


@pytest.mark.exhaustive
def test_a_dead_zygote_is_replaced_by_a_new_process(pool):
    first = zygote(pool)
    os.kill(first.pid, signal.SIGKILL)
    (result,) = pool.evaluate_many([(MARKED, HONEST + "# again", "")])
    assert result.status is EvalStatus.OK
    assert zygote(pool).pid != first.pid
    assert "verl_kernel.env.runner.zygote" in " ".join(zygote(pool).cmdline())
