# SPDX-License-Identifier: Apache-2.0
"""Remarks on kernels that the gym really judged stand at the lines that are at fault."""

from random import Random

import pytest

from tests.bench.page.judged import OPTIONS, source
from verl_kernel.bench.page.details import remarks, source_lines
from verl_kernel.env import EvalStatus, LocalPool, Task
from verl_kernel.world.answers import all_answers
from verl_kernel.world.chains import Program, Step

pytestmark = pytest.mark.processes
PROGRAM = Program((Step("abs"), Step("softmax")), (6, 100, 16))
FLAWS = {one.name: one.source for one in all_answers(PROGRAM, Random(14))}
FUSED = next(iter(FLAWS.values()))
ABS, SHAPE, UNBOUND = "h1 = tl.abs(x)", "h1 = x + tl.zeros((BLOCK // 3,), tl.float32)[:1]", "h1 = y"
FAULTS = {
    "outside": (source(PROGRAM, "outside", Random(14)), EvalStatus.CRASH, "error", "x = tl.load("),
    "gate": (FLAWS["syntax"], EvalStatus.REJECTED_STATIC, "error", "class ModelNew(nn.Module)"),
    "launch": (FLAWS["missing_argument"], EvalStatus.RUNTIME_ERROR, "error", "fused_kernel[(rows,)]("),
    "shape": (FUSED.replace(ABS, SHAPE), EvalStatus.COMPILE_ERROR, "error", SHAPE),
    "compiler": (
        FUSED.replace(ABS, f"{ABS}\n    if cols > 4:\n        y = x\n    {UNBOUND}"),
        EvalStatus.COMPILE_ERROR,
        "error",
        UNBOUND,
    ),
}


@pytest.fixture(scope="module")
def verdicts():
    task = Task(PROGRAM.reference, PROGRAM.task_id)
    with LocalPool(OPTIONS, seed=14) as pool:
        results = pool.evaluate_many([(task, code) for code, *_ in FAULTS.values()])
    return dict(zip(FAULTS, results, strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_remark_stands_at_the_line_that_is_at_fault(verdicts, fault):
    code, status, kind, line = FAULTS[fault]
    assert verdicts[fault].status is status, verdicts[fault].error
    found = [one for one in remarks(verdicts[fault], code) if one.kind == kind]
    assert len(found) == 1, found
    assert source_lines(code)[found[0].line - 1].strip().startswith(line), found
