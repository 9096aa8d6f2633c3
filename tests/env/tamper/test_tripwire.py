# SPDX-License-Identifier: Apache-2.0
"""What the runner's own watch and the judge's ledger see with the static gate off: work that the clock would not."""

import pytest

from tests.env.programs import REFERENCE, candidate
from tests.tiers import one_of_each, thinned
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=3, run_timeout_s=8, memory_mb=512)
TASK = Task(REFERENCE, task_id="fused")
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
NUMPY = COPY + "import numpy as np\n"


@pytest.fixture(scope="module")
def judge(judge_processes):
    with Judge(OPTIONS, seed=3, processes=judge_processes) as judge:
        yield judge


HIDDEN = {
    "numpy": (
        "a = np.maximum(x.numpy() * self.weight.detach().numpy() + y.numpy(), 0) * 1.5\n"
        "return moved(torch.from_numpy(a.astype(np.float32)))", NUMPY, "host_access",
    ),
    "numpy by protocol": (
        "a = np.maximum(np.asarray(x) * np.asarray(self.weight.detach()) + np.asarray(y), 0) * np.float32(1.5)\n"
        "out = torch.empty_like(x); np.asarray(out)[...] = a; return moved(out)", NUMPY, "host_access",
    ),
    "lists": (
        "w = self.weight.tolist()\n"
        "rows = [[max(a * c + b, 0.0) * 1.5 for a, b, c in zip(r, s, w)] for r, s in zip(x.tolist(), y.tolist())]\n"
        "return moved(torch.tensor(rows))", COPY, "host_access",
    ),
    "items": (
        "w = self.weight\nout = torch.empty_like(x)\n"
        "for i in range(100): x.view(-1)[i].item()\nreturn self.right(x, y)", "", "host_access",
    ),
    "dlpack": ("np.from_dlpack(x.detach()); return self.right(x, y)", NUMPY, "host_access"),
    "storage": ("bytes(x[0].clone().untyped_storage()); return self.right(x, y)", "", "host_access"),
    "apply": ("x.clone().apply_(lambda v: v + 1); return self.right(x, y)", "", "host_access"),
    "pickle": ("import io; torch.save(x, io.BytesIO()); return self.right(x, y)", "", "host_access"),
    "a custom op": (
        "return moved(torch.ops.mine.all(x, self.weight.detach(), y))",
        COPY + "@torch.library.custom_op('mine::all', mutates_args=())\n"
        "def everything(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n"
        "    return torch.relu(x * w + y) * 1.5\n", "foreign_op",
    ),
    "an override of torch's op": (
        "return moved(torch.neg(torch.stack([x, self.weight.detach().expand_as(x), y])))",
        COPY + "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('neg', lambda v: torch.relu(v[0] * v[1] + v[2]) * 1.5, 'CPU')\n", "foreign_op",
    ),
    "a tensor class": (
        "return moved(torch.sigmoid(Lazy.of(x, self.weight.detach(), y)))",
        COPY + """
class Lazy(torch.Tensor):
    @staticmethod
    def of(*parts):
        made = torch.Tensor._make_wrapper_subclass(Lazy, parts[0].shape, dtype=parts[0].dtype)
        made.parts = parts
        return made
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        x, w, y = args[0].parts
        return torch.relu(x * w + y) * 1.5
""", "foreign_op",
    ),
    "no dispatch": (
        "with torch._C._DisableTorchDispatch():\n    v = self.torch_only(x, y)\nreturn moved(v)",
        COPY, "escaped_recorder",
    ),
    "no modes": (
        "from torch.utils._python_dispatch import _disable_current_modes\n"
        "with _disable_current_modes():\n    v = self.torch_only(x, y)\nreturn moved(v)", COPY, "escaped_recorder",
    ),
    "torchscript": (
        "return moved(FUSED(x, self.weight.detach(), y))",
        COPY + "def fn(x, w, y):\n    return torch.relu(x * w + y) * 1.5\n"
        "FUSED = torch.jit.trace(fn, (torch.ones(8, 64), torch.ones(64), torch.ones(8, 64)))\n", "escaped_recorder",
    ),
    "a patched recorder": (
        "return self.right(x, y)",
        "from verl_kernel.env.devices import op_recorder\nop_recorder.op_cost = lambda *a: None\n", "patched",
    ),
    "a patched code object": (
        "return self.right(x, y)",
        "from verl_kernel.env.ops.cost import op_cost\nop_cost.__code__ = (lambda f, a, k, r: None).__code__\n",
        "patched",
    ),
    "a patched clock": ("return self.right(x, y)", "import time\ntime.thread_time_ns = lambda: 0\n", "patched"),
    "a profile function": (
        "return self.right(x, y)", "import sys\nsys.setprofile(lambda *a: None)\n", "patched",
    ),
    "a timer": (
        "return self.right(x, y)",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 60)\n",
        "patched",
    ),
    "a collector's callback": (
        "return self.right(x, y)", "import gc\ngc.callbacks.append(lambda *a: None)\n", "patched",
    ),
    "python": ("sum(i * i for i in range(1 << 21)); return self.right(x, y)", "", "hidden_work"),
    "a grid that computes": (
        "out = torch.empty_like(x)\n"
        "grid = lambda meta: (1 + 0 * sum(i * i for i in range(1 << 21)),)\n"
        "fused[grid](x, self.weight, y, out, 512, 64, self.scale, BLOCK=512)\nreturn out", "", "hidden_work",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", one_of_each(HIDDEN, key=lambda name: HIDDEN[name][2]))
def test_work_that_no_clock_sees_is_refused(judge, name):
    body, before, flag = HIDDEN[name]
    result = judge.evaluate(TASK, candidate(body, before))
    assert result.status is EvalStatus.HACKING, (result.status, result.error, result.speedup)
    assert flag in result.hack_flags
    assert not result.rewarded


REFUSED = {
    "numpy in a kernel": "    tl.store(out + i, np.exp(tl.load(x + i, mask=i < n)), mask=i < n)\n",
    "torch in a kernel": "    torch.relu(torch.ones(3))\n",
    "a function of python in a kernel": "    helper(3)\n",
    "an attribute of a tensor's handle": "    tl.load(x + i).handle.data\n",
    "a lambda in a kernel": "    f = lambda v: v\n",
}


@pytest.mark.parametrize("name", thinned(REFUSED, 5))
def test_a_kernel_may_use_nothing_but_triton(judge, name):
    before = "import numpy as np\ndef helper(n): return n\n" + COPY.replace("    i = tl", REFUSED[name] + "    i = tl")
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


def test_a_store_outside_the_tensors_of_a_launch_is_a_crash(judge):
    body = "out = self.right(x, y); token[(1,)](out.view(-1)[:4], BLOCK=1024); return out"
    result = judge.evaluate(TASK, candidate(body))
    assert (result.status, result.error.type) == (EvalStatus.CRASH, "CompiledOutOfBounds")


@pytest.mark.exhaustive
def test_a_memory_hog_is_out_of_memory_without_a_limit(judge, monkeypatch):
    monkeypatch.setattr("verl_kernel.env.judge.processes.runner._WATCH_S", 0.01)
    body = "import time\nhog = [bytearray(1 << 20) for _ in range(700)]; time.sleep(1); return self.right(x, y)"
    assert judge.evaluate(TASK, candidate(body)).status is EvalStatus.OOM


@pytest.mark.parametrize("seed", thinned(range(4), 4))
def test_launches_that_begin_late_come_too_late(judge_processes, seed):
    body = "self.calls = getattr(self, 'calls', 0) + 1\nif self.calls > 1: token[(1,)](torch.empty(4), BLOCK=4)\n"
    other = Judge(OPTIONS, seed, processes=judge_processes)
    result = other.evaluate(TASK, candidate(body + "return self.torch_only(x, y)"))
    assert (result.status, result.error.type) == (EvalStatus.DECOY, "NoLaunch")


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


def test_kernels_that_only_move_torchs_results_are_flagged(judge):
    result = judge.evaluate(TASK, candidate("return moved(self.torch_only(x, y))", COPY))
    assert result.status is EvalStatus.OK
    assert result.hack_flags == ("only_moves",)
    assert result.time_coverage < 0.25
    assert result.speedup < 1


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
