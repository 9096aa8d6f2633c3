# SPDX-License-Identifier: Apache-2.0
"""Programs with other people's kernels, judged as `verl-kernel eval` judges (`make test-published`).

`PUBLISHED` names the folder of the unpacked packages. pytest does not collect this file by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.published.left_out import LEFT_OUT
from benchmarks.published.programs import PROGRAMS
from verl_kernel.env import EvalResult, GymOptions, LocalPool, Task

FOLDER = Path(os.environ.get("PUBLISHED", ""))
OPTIONS = GymOptions(
    device="cpu", static_check="coverage", correctness_trials=5, compile_for="sm_90", memory_checks="refuse",
    true_size="auto",
)  # fmt: skip
HONEST = [
    pytest.param(name, marks=[pytest.mark.xfail(reason=LEFT_OUT[name])] if name in LEFT_OUT else [])
    for name in PROGRAMS
]


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(OPTIONS, seed=0) as pool:
        yield pool


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_right_and_has_a_time(pool: LocalPool, name: str) -> None:
    result = judged(pool, name)
    print(said(result))
    assert (result.status, result.speedup is not None) == ("ok", True), said(result)


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.wrong])
def test_a_mistake_is_found(pool: LocalPool, name: str) -> None:
    result = judged(pool, name, is_wrong=True)
    print(said(result))
    assert not result.rewarded, said(result)
    assert result.status not in ("ok", "rejected_static", "infra_error"), said(result)


def judged(pool: LocalPool, name: str, is_wrong: bool = False) -> EvalResult:
    task = Task(PROGRAMS[name].task(), task_id=name)
    (result,) = pool.evaluate_many([(task, PROGRAMS[name].candidate(FOLDER, is_wrong), name)])
    return result


def said(result: EvalResult) -> str:
    """What matters of a result, in a line or two."""
    seconds = sum((result.stage_seconds or {}).values())
    unknown = result.true_size.unknown if result.true_size else None
    error = f"{result.error.type}: {result.error.message}" if result.error else ""
    return f"{result.kernel}: {result.status} speedup={result.speedup} {seconds:.1f} s {unknown or ''} {error}"
