# SPDX-License-Identifier: Apache-2.0
"""Programs that no GPU runs are refused with a line, others compile, and spilled registers are charged.

That the honest ones of the corpus compile: tests/exploits/test_corpus.py.
"""

import re
from collections.abc import Iterator
from inspect import getsource
from random import Random

import pytest

from tests.env.clocks.programs import ONCE
from tests.env.compilation import refused_programs
from tests.env.compilation.test_transposing import multiply
from tests.env.programs import program, reference
from tests.exploits.corpus import REFUSED_BY_AMD, load
from tests.exploits.tasks import TASKS
from tests.generated import draw_tasks
from tests.tiers import one_of_each, thinned
from verl_kernel.env.compilation import translation
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.generated_tasks.answers import right_answers
from verl_kernel.rollout.feedback import format_feedback

BOTH = ["sm_90", "gfx942"]
OPTIONS = GymOptions(device="cpu", compile_for="sm_90", correctness_trials=2, ablation=False)
REFUSED = [case for case in load() if case.name in REFUSED_BY_AMD]
REFERENCES = {name: Task(source, task_id=name) for name, source in refused_programs.TASKS.items()}
pytestmark = pytest.mark.processes
LAUNCH = "once[(x.shape[0],)](x, out, x.shape[1], BLOCK=8192, num_warps={})"


@pytest.fixture(scope="module")
def both(judge_with) -> Iterator[Judge]:
    with judge_with(compile_for=BOTH) as judge:
        yield judge


@pytest.mark.parametrize("case", thinned(REFUSED), ids=lambda case: case.name)
def test_what_amds_compiler_refuses_it_refuses_in_its_words(case, both):
    result = both.evaluate(Task(TASKS[case.task], task_id=case.task), case.source)
    assert result.status is EvalStatus.COMPILE_ERROR, result
    assert "compiled for gfx942: " in result.error.message, result.error
    assert REFUSED_BY_AMD[case.name] in result.error.message, result.error


@pytest.mark.parametrize("number", thinned(range(12), 12))
def test_kernels_of_the_quickstart_compile(number, judge):
    drawn = draw_tasks(12, Random(0))[number]
    task = Task(drawn.reference, drawn.task_id)
    for answer in right_answers(drawn):
        result = judge.evaluate(task, answer.source)
        assert result.status is EvalStatus.OK, (answer.name, result.error)
        assert result.compiled_kernels, (answer.name, result.error)


# `make test` has one program of sums for each way of its launch, and one of products.
KINDS = one_of_each(refused_programs.PROGRAMS, lambda item: item.launch if item.task == "sum" else "products")


@pytest.mark.parametrize("refused", KINDS, ids=lambda item: item.name)
def test_what_a_gpu_refuses_is_a_compile_error_with_a_line(refused, judge):
    result = judge.evaluate(REFERENCES[refused.task], refused.source)
    error = result.error
    assert result.status is EvalStatus.COMPILE_ERROR, error
    assert not result.rewarded
    assert result.compiled is False
    assert result.speedup is None
    assert result.compiled_kernels is None
    for text in (error.message, format_feedback(result)):
        assert f"line {refused.line}, in " in text, text
        assert re.search(refused.words, text), text


def test_the_set_is_large_and_each_program_is_another_one():
    assert len(refused_programs.PROGRAMS) >= 25
    assert len({item.source for item in refused_programs.PROGRAMS}) == len(refused_programs.PROGRAMS)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)  # a warp's 8192 numbers make long code, which a busy machine compiles for minutes
def test_a_kernel_that_spills_takes_longer(judge_with):
    task = Task(reference("torch.softmax(x, -1)", "torch.randn(264, 8192)"))
    bodies = [f"out = torch.empty_like(x)\n{LAUNCH.format(warps)}\nreturn out" for warps in (1, 4, 8)]
    with judge_with(compile_for="off", ablation=True) as judge:
        one, four, eight = (judge.evaluate(task, program(ONCE, body)).kernel_ms.median for body in bodies)
    assert one > 1.05 * four
    assert four == eight


MULTIPLIED = """out = torch.empty_like(x)
n = x.shape[0]
multiply[(n // 64, n // 64)](x, y, out, n, y.stride(0), y.stride(1), M=64, N=64, K=32, num_warps=4, num_stages=3)
return out"""


@pytest.mark.exhaustive
def test_a_float32_factor_by_rows_takes_longer_on_an_h100(judge_with):
    rows, halves = "torch.randn(256, 256)", "torch.randn(256, 256, dtype=torch.float16)"
    factors = (rows, rows), (rows, f"{rows}.T"), (halves, halves)
    tasks = [Task(reference("x @ y", f"{x}, {y}", "x, y")) for x, y in factors]
    times = []
    for target in ("off", "sm_90"):
        with judge_with(compile_for=target, float32="tf32", ablation=False, true_size="off") as judge:
            results = [judge.evaluate(task, program(getsource(multiply.fn), MULTIPLIED, "x, y")) for task in tasks]
        assert [result.status for result in results] == [EvalStatus.OK] * len(tasks), results
        times.append([result.profile.launches[0].ms for result in results])
    (rows_off, *others_off), (rows_on, *others_on) = times
    assert others_on == others_off
    assert rows_on > 1.5 * rows_off


def test_what_fits_is_not_assembled(monkeypatch):
    monkeypatch.setattr(translation.subprocess, "run", lambda *args, **options: pytest.fail("it was assembled"))
    text = ".version 8.7\n.target sm_89\n.address_size 64\n.visible .entry kernel()\n{\nret;\n}\n"
    assert translation.spills(text, parse(text), 4) == 0
