# SPDX-License-Identifier: Apache-2.0
"""A result has the profile of the forward that it was timed by, and nothing but texts reads it."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

import verl_kernel
from tests.env.clocks.test_simulated import session_of
from tests.env.programs import elementwise, reference
from verl_kernel.env.clocks.simulated import SimulatedClock
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent

DOUBLE = elementwise("v * 2.0")
OPTIONS = GymOptions(device="cpu", correctness_trials=3, ablation=False)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_where_sizes_vary_it_is_that_of_the_typical_trial(judge):
    result = judge.evaluate(Task(reference("x * 2.0", "torch.randn(64 * int(torch.randint(1, 30, (1,))), 64)")), DOUBLE)
    assert result.rewarded, result.error
    assert result.profile.ms == result.kernel_ms.median
    (launch,) = result.profile.launches
    assert launch.grid == result.launches[0].grid
    assert launch.dram_bytes in range(launch.grid[0] * 8192 - 8192, launch.grid[0] * 8192 + 1)
    assert result.profile.least_bytes is None


@pytest.mark.processes
def test_without_a_compiler_resources_are_unknown(judge):
    (launch,) = judge.evaluate(Task(reference("x * 2.0", "torch.randn(64, 64)")), DOUBLE).profile.launches
    assert (launch.registers, launch.spills, launch.shared, launch.limit) == (None, None, None, None)
    assert launch.waves > 0


def test_an_account_that_cannot_be_read_changes_no_time():
    event = TraceEvent("launch", "k", (1,), bytes=10**9)
    forged, usual = session_of([[event]], [event]), session_of([[event]], [event])
    forged.own_launches = lambda number: [SimpleNamespace(explained={"names": 3})]
    measured = SimulatedClock("h100").measure(forged)
    assert measured.forward is None
    assert measured.kernel_ms == SimulatedClock("h100").measure(usual).kernel_ms


def reads_a_profile(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(node, ast.Attribute) and node.attr == "profile" for node in nodes)


@pytest.mark.parametrize("folder, readers", [
    *((folder, set()) for folder in ("reward", "sampler", "advantage", "loss", "world")),
    ("figures", {"profile_lines.py"}),
])  # fmt: skip
def test_no_reward_reads_a_profile_and_of_figures_only_texts(folder, readers):
    files = (Path(verl_kernel.__file__).parent / folder).rglob("*.py")
    assert {path.name for path in files if reads_a_profile(path)} == readers
