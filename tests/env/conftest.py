# SPDX-License-Identifier: Apache-2.0
"""The device of tests without a GPU, and judges by the `OPTIONS` of a test's module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from verl_kernel.env.devices.base import DeviceBackend
    from verl_kernel.env.judge.judge import Judge
    from verl_kernel.env.judge.judge_processes import JudgeProcesses


@pytest.fixture(scope="session")
def device() -> DeviceBackend:
    from verl_kernel.env.backends import resolve_device

    device = resolve_device("cpu")
    device.setup()
    return device


@pytest.fixture(scope="module")
def judge_with(request: pytest.FixtureRequest, judge_processes: JudgeProcesses) -> Callable[..., Judge]:
    """Makes a judge by the module's `OPTIONS` with changes: `judge_with(seed=3, decoys="record")`."""
    from verl_kernel.env.judge.judge import Judge

    def made(seed: int | None = 7, **changes: object) -> Judge:
        return Judge(replace(request.module.OPTIONS, **changes), seed, processes=judge_processes)

    return made


@pytest.fixture(scope="module")
def judge(judge_with: Callable[..., Judge]) -> Iterator[Judge]:
    """A judge by the module's `OPTIONS`, which forks from the processes of all files (`judge_processes`)."""
    with judge_with() as judge:
        yield judge
