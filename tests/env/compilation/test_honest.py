# SPDX-License-Identifier: Apache-2.0
"""Honest programs compile: every control of the exploit corpus, every kind of kernel of the quickstart."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.exploits.corpus import load
from tests.exploits.tasks import TASKS
from tests.quickstart.test_tasks import CHAINS, make_program
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.quickstart.variants import Kind, variants

CONTROLS = [case for case in load() if case.honest]
CORRECT = (Kind.FUSED, Kind.PARTIAL, Kind.LAZY)

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    options = GymOptions(device="cpu", compile_for="sm_90", correctness_trials=2, ablation=False)
    with Judge(options, seed=3) as judge:
        yield judge


@pytest.mark.parametrize("case", CONTROLS, ids=lambda case: case.name)
def test_controls_compile(case, judge):
    result = judge.evaluate(Task(TASKS[case.task], task_id=case.task), case.source)
    assert result.status is EvalStatus.OK, result.error
    assert result.compiled_for == "sm_90", result.error
    assert {kernel.name for kernel in result.compiled_kernels} >= {launch.name for launch in result.launches}
    for kernel in result.compiled_kernels:
        assert 0 < kernel.registers <= 255, kernel
        assert kernel.spills == 0, kernel
        assert 1 <= kernel.blocks_per_sm <= 32, kernel


@pytest.mark.parametrize(("family", "chain"), CHAINS)
def test_kernels_of_the_quickstart_compile(family, chain, judge):
    program = make_program(family, chain, Random(0))
    task = Task(program.reference, program.task_id)
    for variant in variants(program, Random(0)):
        if variant.kind in CORRECT:
            result = judge.evaluate(task, variant.source)
            assert result.status is EvalStatus.OK, (variant.flaw, result.error)
            assert result.compiled_kernels, (variant.flaw, result.error)
