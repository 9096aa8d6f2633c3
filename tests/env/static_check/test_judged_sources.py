# SPDX-License-Identifier: Apache-2.0
"""Whole evaluations of what the gate reads: honest programs, and texts made to break whoever reads them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from tests.env.honest_programs import STYLES
from tests.env.programs import HONEST, TASK
from tests.env.static_check.gate_shapes import HOSTILE
from tests.exploits.tasks import TASKS
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Judge, Task, check

OPTIONS = GymOptions(device="cpu", correctness_trials=2, run_timeout_s=20, load_timeout_s=20, memory_mb=512)
IMPATIENT = replace(OPTIONS, run_timeout_s=8, load_timeout_s=2)


@pytest.mark.slow
@settings(max_examples=100)
@given(STYLES)
def test_no_honest_program_is_refused(style):
    source = style.source()
    compile(source, "honest", "exec", dont_inherit=True)
    assert check(source) == []
    assert style.size == "torch.numel(x)" or check(source, "strict") == []


@pytest.mark.processes
@settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))
@given(STYLES)
def test_honest_programs_are_rewarded(judge, style):
    result = judge.evaluate(Task(TASKS["add"], task_id="add"), style.source())
    assert result.rewarded, (result.status, result.error, style.source())


REFUSALS = (EvalStatus.REJECTED_STATIC, EvalStatus.LOAD_ERROR, EvalStatus.CRASH, EvalStatus.TIMEOUT, EvalStatus.OOM)
CASES = [*(("no gate", name) for name in HOSTILE), *(("gate", name) for name in list(HOSTILE)[::6])]
"""Most texts end at the gate, without a process."""


@pytest.fixture(scope="module")
def judges(judge_processes):
    options = {"gate": IMPATIENT, "no gate": replace(IMPATIENT, static_check="off")}
    return {name: Judge(one, seed=1, processes=judge_processes) for name, one in options.items()}


@pytest.mark.processes
@pytest.mark.parametrize("case", thinned(CASES, 9), ids=", ".join)
def test_hostile_text_is_a_verdict(judges, case):
    gate, name = case
    result = judges[gate].evaluate(TASK, HOSTILE[name])
    assert result.status in REFUSALS or (name == "carriage returns" and result.status is EvalStatus.OK)
    assert len(result.model_dump_json()) < 10_000


TAKEN = """class Model(nn.Module):
    def forward(self, x, y): return x * 0
def get_inputs(): return [torch.zeros(8, 64), torch.zeros(8, 64)]
def get_init_inputs(): return [64, 0.0]
"""


@pytest.mark.processes
@pytest.mark.parametrize("gate", ["gate", "no gate"])
def test_redefining_the_task_changes_nothing(judges, gate):
    honest, redefined = (judges[gate].evaluate(TASK, source) for source in (HONEST, HONEST + TAKEN))
    assert (redefined.status, redefined.speedup) == (honest.status, honest.speedup)
    zeros = HONEST.replace("return self.right(x, y)", "return torch.zeros_like(x)") + TAKEN
    assert judges[gate].evaluate(TASK, zeros).status in (EvalStatus.INCORRECT, EvalStatus.REJECTED_STATIC)
