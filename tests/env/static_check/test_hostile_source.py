# SPDX-License-Identifier: Apache-2.0
"""Texts made to break whoever reads them, through whole evaluations: a verdict each time, and the judge goes on."""

from dataclasses import replace

import pytest

from tests.env.programs import HONEST, REFERENCE
from tests.env.static_check.gate_shapes import HOSTILE
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Judge, Task

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", correctness_trials=2, run_timeout_s=8, load_timeout_s=2, memory_mb=512)
TASK = Task(REFERENCE, task_id="fused")
REFUSALS = (EvalStatus.REJECTED_STATIC, EvalStatus.LOAD_ERROR, EvalStatus.CRASH, EvalStatus.TIMEOUT, EvalStatus.OOM)
CASES = [*(("no gate", name) for name in HOSTILE), *(("gate", name) for name in list(HOSTILE)[::6])]
"""Most texts end at the gate, without a process."""


@pytest.fixture(scope="module")
def judges(judge_processes):
    options = {"gate": OPTIONS, "no gate": replace(OPTIONS, static_check="off")}
    return {name: Judge(one, seed=1, processes=judge_processes) for name, one in options.items()}


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


@pytest.mark.parametrize("gate", ["gate", "no gate"])
def test_redefining_the_task_changes_nothing(judges, gate):
    honest, redefined = (judges[gate].evaluate(TASK, source) for source in (HONEST, HONEST + TAKEN))
    assert (redefined.status, redefined.speedup) == (honest.status, honest.speedup)
    zeros = HONEST.replace("return self.right(x, y)", "return torch.zeros_like(x)") + TAKEN
    assert judges[gate].evaluate(TASK, zeros).status in (EvalStatus.INCORRECT, EvalStatus.REJECTED_STATIC)
