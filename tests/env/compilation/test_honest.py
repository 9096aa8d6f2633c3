# SPDX-License-Identifier: Apache-2.0
"""Honest programs compile: every control of the exploit corpus, every kind of kernel of the quickstart."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.exploits.corpus import Case, load
from tests.exploits.tasks import TASKS
from tests.generated import draw_tasks
from tests.thinned import thinned
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.world.answers import right_answers

CONTROLS = [case for case in load() if case.honest]
REFUSED_BY_AMD = {
    "libdevice_cuda": "__nv_tanhf device function",
    "two_tensors_one_load": "the compiler's pass TritonAMDGPUCanonicalizePointers failed",
}
"""What AMD's compiler says of controls that it refuses, as it does on a machine with its GPU: CUDA's own library, and a
fault of a pass over the addresses of two tensors."""

BOTH = ["sm_90", "gfx942"]

pytestmark = pytest.mark.processes


def judge_for(*targets: str) -> Judge:
    return Judge(GymOptions(device="cpu", compile_for=list(targets), correctness_trials=2, ablation=False), seed=3)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with judge_for("sm_90") as judge:
        yield judge


@pytest.fixture(scope="module")
def both() -> Iterator[Judge]:
    with judge_for(*BOTH) as judge:
        yield judge


def task_of(case: Case) -> Task:
    return Task(TASKS[case.task], task_id=case.task)


def assert_compiled(result: EvalResult, targets: list[str]) -> None:
    assert result.status is EvalStatus.OK, result.error
    launched = {launch.name for launch in result.launches}
    for target in targets:
        kernels = [kernel for kernel in result.compiled_kernels if kernel.target == target]
        assert {kernel.name for kernel in kernels} >= launched, target
        for kernel in kernels:
            assert 0 < kernel.registers <= (255 if target == "sm_90" else 512), kernel
            assert kernel.spills == 0, kernel
            assert 1 <= kernel.blocks_per_sm <= 32, kernel


@pytest.mark.parametrize(
    "case", thinned(case for case in CONTROLS if case.name not in REFUSED_BY_AMD), ids=lambda case: case.name
)
def test_controls_compile(case, both):
    assert_compiled(both.evaluate(task_of(case), case.source), BOTH)


@pytest.mark.parametrize("case", [case for case in CONTROLS if case.name in REFUSED_BY_AMD], ids=lambda case: case.name)
def test_what_amds_compiler_refuses_it_refuses_in_its_words(case, judge, both):
    assert_compiled(judge.evaluate(task_of(case), case.source), ["sm_90"])
    result = both.evaluate(task_of(case), case.source)
    assert result.status is EvalStatus.COMPILE_ERROR, result
    assert "compiled for gfx942: " in result.error.message, result.error
    assert REFUSED_BY_AMD[case.name] in result.error.message, result.error


@pytest.mark.parametrize("program", draw_tasks(12, Random(0)), ids=lambda program: program.task_id)
def test_kernels_of_the_quickstart_compile(program, judge):
    task = Task(program.reference, program.task_id)
    for answer in right_answers(program):
        result = judge.evaluate(task, answer.source)
        assert result.status is EvalStatus.OK, (answer.name, result.error)
        assert result.compiled_kernels, (answer.name, result.error)
