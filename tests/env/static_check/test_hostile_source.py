# SPDX-License-Identifier: Apache-2.0
"""Texts made to break whoever reads them, through whole evaluations: a verdict each time, and the judge goes on."""

from dataclasses import replace

import pytest

from tests.env.programs import HONEST, REFERENCE
from tests.env.static_check.gate_shapes import text
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", correctness_trials=2, run_timeout_s=8, load_timeout_s=2, memory_mb=512)
TASK = Task(REFERENCE, task_id="fused")
TEXTS = {
    "nothing": "",
    "no class": "x = 1\n",
    "parentheses": "(" * 50_000 + ")" * 50_000,
    "signs": "x = " + "-" * 90_000 + "1",
    "attributes": "x = a" + ".b" * 40_000,
    "lambdas": "lambda: " * 12_000 + "0",
    "calls": "f(" * 30_000 + ")" * 30_000,
    "f-strings": "x = " + "f'{" * 60 + "1" + "}'" * 60,
    "indentation": "".join(" " * depth + "if 1:\n" for depth in range(150)) + " " * 150 + "pass\n",
    "a null": HONEST + "\0",
    "a null in a string": HONEST + "'\0'\n",
    "a surrogate": HONEST + "'\ud800'\n",
    "a cookie": "# -*- coding: utf-7 -*-\n" + HONEST,
    "an unknown cookie": "# coding: no-such-codec\n" + HONEST,
    "a mark of byte order in the middle": HONEST + "\ufeff",
    "a huge integer": HONEST + "N = " + "9" * 90_000 + "\n",
    "a huge power": HONEST + "N = 9 ** 9 ** 9\n",
    "a huge string": HONEST + "N = 'a' * (1 << 40)\n",
    "too long": HONEST + "#" * 200_000,
    "kernels": text("kernels of one name", 1500),
    "aliases": text("aliases that grow", 8000),
    "classes": text("classes of one name", 4000),
    "grids": text("launches with lambdas", 2000),
    "dictionaries": text("launches with one dictionary", 1500),
    "quotes": "x = '" + "\\'" * 40_000,
    "carriage returns": HONEST.replace("\n", "\r"),
    "form feeds": "\f" * 1000 + "class",
}
VERDICTS = {
    *(EvalStatus.REJECTED_STATIC, EvalStatus.LOAD_ERROR, EvalStatus.CRASH, EvalStatus.TIMEOUT, EvalStatus.OOM),
    *(EvalStatus.OK,),
}
HARMLESS = {"carriage returns"}


@pytest.fixture(scope="module")
def judges():
    with Judge(OPTIONS, seed=1) as gated:
        ungated = Judge(replace(OPTIONS, static_check="off"), seed=1)
        ungated._zygote = gated._zygote
        yield {"gate": gated, "no gate": ungated}


@pytest.mark.parametrize("gate", ["gate", "no gate"])
@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_a_verdict(judges, name, gate):
    result = judges[gate].evaluate(TASK, TEXTS[name])
    assert result.status in VERDICTS
    assert result.status is not EvalStatus.INFRA_ERROR
    assert result.status is not EvalStatus.OK or name in HARMLESS
    assert len(result.model_dump_json()) < 10_000


@pytest.mark.parametrize("gate", ["gate", "no gate"])
def test_redefining_the_task_changes_nothing(judges, gate):
    taken = "class Model(nn.Module):\n    def forward(self, x, y): return x * 0\n"
    taken += (
        "def get_inputs(): return [torch.zeros(8, 64), torch.zeros(8, 64)]\ndef get_init_inputs(): return [64, 0.0]\n"
    )
    honest = judges[gate].evaluate(TASK, HONEST.replace("class Base", "class Base", 1))
    redefined = judges[gate].evaluate(TASK, HONEST + taken)
    assert (redefined.status, redefined.speedup) == (honest.status, honest.speedup)
    zeros = HONEST.replace("return self.right(x, y)", "return torch.zeros_like(x)") + taken
    assert judges[gate].evaluate(TASK, zeros).status in (EvalStatus.INCORRECT, EvalStatus.REJECTED_STATIC)
