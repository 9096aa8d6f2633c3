# SPDX-License-Identifier: Apache-2.0
"""Settings that every test shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import settings

if TYPE_CHECKING:
    from verl_kernel.env.judge.judge_processes import JudgeProcesses

# Several processes share the machine. OpenMP's threads wait for each other by spinning: a judge of small references
# takes five times the processor time with two of them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is no failure, and the suite's budget is shared by all property tests.
settings.register_profile("suite", deadline=None, max_examples=30)
settings.load_profile("suite")

# libyaml's parser in place of Python's: many tests compose verl's configuration from 65 files.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a process of several begin with what takes longest."""
    if hasattr(config, "workerinput"):
        from tests.schedule import rank

        items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files, whatever `--dist` says."""
    from tests.schedule import ByFile

    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int) -> None:
    """Say how many mutants were killed, and what to do about a failure."""
    stats = terminalreporter.stats
    passed, failed = ([report.nodeid for report in stats.get(kind, [])] for kind in ("passed", "failed"))
    killed, survived = (len([node for node in nodes if _is_mutant(node)]) for nodes in (passed, failed))
    if killed or survived:
        terminalreporter.write_line(f"mutants killed: {killed} of {killed + survived}")
    if failed := failed + [report.nodeid for report in stats.get("error", [])]:
        terminalreporter.section("what to do")
        terminalreporter.write_line(_ADVICE.format(node=failed[0]))


_ADVICE = """\
1. Run the first one alone: .venv/bin/python -m pytest '{node}'
2. If it fails again, let `.venv/bin/verl-kernel doctor` say what this machine lacks.
3. If it passes alone, or the machine lacks nothing, it is a defect of ours: report it with the text above."""


def _is_mutant(node: str) -> bool:
    return node.startswith("tests/mutation/") and "::test_without_it" in node


@pytest.fixture(scope="session")
def judge_processes() -> Iterator[JudgeProcesses]:
    """What judges of the CPU device fork from, started once for all files: `Judge(options, processes=judge_processes)`.

    Kernels that one file has compiled are not compiled again. A test that ends these processes, looks for theirs among
    all children or pretends another device has a judge with processes of its own.
    """
    from verl_kernel.env.backends import resolve_device
    from verl_kernel.env.judge.judge_processes import JudgeProcesses

    processes = JudgeProcesses(resolve_device("cpu"), ["sm_90", "gfx942"])
    yield processes
    processes.close()
