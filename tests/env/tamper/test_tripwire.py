# SPDX-License-Identifier: Apache-2.0
"""What the runner's own watch and the judge's ledger see with the static gate off: work that the clock would not."""

import pytest

from tests.env.programs import TASK, candidate
from tests.exploits.corpus import load
from tests.exploits.tasks import TASKS
from tests.tiers import thinned
from verl_kernel.env import EvalStatus, GymOptions, Judge, Task

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=3, run_timeout_s=8, memory_mb=512)
COPY = """
@triton.jit
def move(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

def moved(value):
    out = torch.empty_like(value)
    move[(1,)](value, out, value.numel(), BLOCK=512)
    return out
"""

HIDDEN = {
    "numpy": "host_access", "lazy_tensor": "foreign_op", "dispatch_disabled": "escaped_recorder",
    "patched_recorder_class": "patched", "hidden_python": "hidden_work",
}  # fmt: skip
"""A program of tests/exploits/attacks for each flag."""


@pytest.mark.parametrize(("name", "flag"), HIDDEN.items())
def test_work_that_no_clock_sees_is_refused(judge, name, flag):
    (case,) = [case for case in load() if case.name == name]
    result = judge.evaluate(Task(TASKS[case.task]), case.source)
    assert result.status is EvalStatus.HACKING, (result.status, result.error, result.speedup)
    assert flag in result.hack_flags


REFUSED = {
    "numpy in a kernel": "    tl.store(out + i, np.exp(tl.load(x + i, mask=i < n)), mask=i < n)\n",
    "an attribute of a tensor's handle": "    tl.load(x + i).handle.data\n",
    "a lambda in a kernel": "    f = lambda v: v\n",
}


@pytest.mark.parametrize("name", thinned(REFUSED, 5))
def test_a_kernel_may_use_nothing_but_triton(judge, name):
    before = "import numpy as np\n" + COPY.replace("    i = tl", REFUSED[name] + "    i = tl")
    result = judge.evaluate(TASK, candidate("moved(x); return self.right(x, y)", before))
    assert result.status is EvalStatus.COMPILE_ERROR, (result.status, result.error)


SNEAKY = """
class Sneaky:
    def sum(self, *args): return 1.0
@triton.jit
def use(x, tool: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tool.sum(tl.load(x + tl.arange(0, BLOCK))))
"""


def test_an_object_that_computes_cannot_be_passed_to_a_kernel(judge):
    body = "use[(1,)](torch.ones(4), Sneaky(), BLOCK=4); return self.right(x, y)"
    result = judge.evaluate(TASK, candidate(body, COPY + SNEAKY))
    assert result.status is EvalStatus.COMPILE_ERROR
    assert "Sneaky" in result.error.message


@pytest.mark.exhaustive
def test_a_memory_hog_is_out_of_memory_without_a_limit(judge, monkeypatch):
    monkeypatch.setattr("verl_kernel.env.judge.processes.runner._WATCH_S", 0.01)
    body = "import time\nhog = [bytearray(1 << 20) for _ in range(700)]; time.sleep(1); return self.right(x, y)"
    assert judge.evaluate(TASK, candidate(body)).status is EvalStatus.OOM


def test_a_few_elements_may_be_read_and_are_charged(judge):
    plain = judge.evaluate(TASK, candidate("return self.right(x, y)"))
    reading = judge.evaluate(TASK, candidate("x[0, :8].tolist(); return self.right(x, y)"))
    assert reading.fallback_ops == {"host::read": 1}
    assert reading.kernel_ms.median > plain.kernel_ms.median


@pytest.mark.exhaustive
def test_a_verdict_does_not_depend_on_the_zygote():
    source = candidate("print({'b', 'a', 'd', 'c'}); raise ValueError(str({'b', 'a', 'd', 'c'}))")
    with Judge(OPTIONS, seed=11) as judge:
        first = judge.evaluate(TASK, source)
        judge.processes.runners.close()
        second = judge.evaluate(TASK, source)
    volatile = {"stage_seconds", "queue_seconds"}
    assert first.error.type == "ValueError"
    assert first.model_dump(exclude=volatile) == second.model_dump(exclude=volatile)


HONEST_WAYS = [
    "out = self.right(x, y)\nif out.isnan().any().item(): raise ValueError\nreturn out",
    "rows = [int(v) for v in torch.arange(8).tolist()]; return self.right(x, y)",
    "return self.right(x.contiguous(), y).view(8, 64)",
    "self.buffer = getattr(self, 'buffer', None)\nif self.buffer is None: self.buffer = torch.empty_like(x)\n"
    "fused[(1,)](x, self.weight, y, self.buffer, 512, 64, self.scale, BLOCK=512)\nreturn self.buffer",
]  # fmt: skip


@pytest.mark.parametrize("body", thinned(HONEST_WAYS, 4))
def test_honest_ways_are_not_refused(judge, body):
    result = judge.evaluate(TASK, candidate(body))
    assert result.status is EvalStatus.OK, result.error
