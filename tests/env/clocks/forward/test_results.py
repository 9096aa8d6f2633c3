# SPDX-License-Identifier: Apache-2.0
"""A result has the profile of the forward that it was timed by, and nothing but texts reads it."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

import verl_kernel
from tests.env.clocks.programs import program, task
from tests.env.clocks.test_simulated import session_of
from verl_kernel.env.clocks.simulated import SimulatedClock
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent

KERNEL = """
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)
"""
HOST = "out = torch.empty_like(x)\ndouble[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)\nreturn out"
DOUBLE = program(KERNEL, HOST)
SIZED = "torch.randn(64 * int(torch.randint(1, 30, (1,))), 64)"


@pytest.fixture(scope="module")
def judge(judge_processes):
    options = GymOptions(device="cpu", correctness_trials=3, ablation=False)
    with Judge(options, seed=3, processes=judge_processes) as judge:
        yield judge


@pytest.mark.exhaustive
@pytest.mark.processes
def test_where_sizes_vary_it_is_that_of_the_typical_trial(judge):
    result = judge.evaluate(Task(task("x * 2.0", SIZED)), DOUBLE)
    assert result.rewarded, result.error
    assert result.profile.ms == result.kernel_ms.median
    (launch,) = result.profile.launches
    assert launch.grid == result.launches[0].grid
    assert launch.dram_bytes in range(launch.grid[0] * 8192 - 8192, launch.grid[0] * 8192 + 1)
    assert result.profile.least_bytes is None


@pytest.mark.processes
def test_without_a_compiler_resources_are_unknown(judge):
    result = judge.evaluate(Task(task("x * 2.0", "torch.randn(64, 64)")), DOUBLE)
    (launch,) = result.profile.launches
    assert (launch.registers, launch.spills, launch.shared, launch.limit) == (None, None, None, None)
    assert launch.waves > 0


def test_an_account_that_cannot_be_read_changes_no_time():
    event = TraceEvent("launch", "k", (1,), bytes=10**9)
    session, usual = session_of([[event]], [event]), session_of([[event]], [event])

    def forged(number):
        return [SimpleNamespace(explained={"names": 3})]

    session.own_launches = forged
    measured = SimulatedClock("h100").measure(session)
    assert measured.forward is None
    assert measured.kernel_ms == SimulatedClock("h100").measure(usual).kernel_ms


def readers(folder):
    """Files of a package that read an attribute `profile` of something."""
    root = Path(verl_kernel.__file__).parent / folder
    trees = {path.name: ast.parse(path.read_text()) for path in root.rglob("*.py")}
    return {
        name
        for name, tree in trees.items()
        if any(isinstance(node, ast.Attribute) and node.attr == "profile" for node in ast.walk(tree))
    }


@pytest.mark.parametrize("folder", ["reward", "sampler", "advantage", "loss", "world"])
def test_no_reward_reads_a_profile(folder):
    assert readers(folder) == set()


def test_of_the_figures_only_the_texts_read_a_profile():
    assert readers("figures") == {"profile_lines.py"}
