# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU; they import torch, triton and this package's `env`, nothing of verl."""

from pathlib import Path

import pytest
import torch

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

from .programs import HONEST, REFERENCE


def pytest_collection_modifyitems(items):
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(skip)


@pytest.fixture(scope="session")
def judge():
    """One judge for every test: that a fault of one candidate does not reach the next is part of what is tested."""
    options = GymOptions(
        device="cuda", correctness_trials=3, memory_mb=16384, load_timeout_s=60.0, run_timeout_s=60.0,
        static_check="off",
    )  # fmt: skip
    with Judge(options, seed=1) as judge:
        yield judge


@pytest.fixture(scope="session")
def evaluate(judge):
    """Verdict on a candidate, by default for the reference of `programs`."""
    task = Task(REFERENCE)

    def run(source, reference=None):
        return judge.evaluate(Task(reference) if reference else task, source)

    return run


@pytest.fixture(scope="session")
def honest(evaluate):
    return evaluate(HONEST)
