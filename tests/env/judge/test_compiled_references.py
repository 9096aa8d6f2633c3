# SPDX-License-Identifier: Apache-2.0
"""References through `torch.compile` without a GPU: what Inductor writes, how it is timed, and what it refuses."""

from contextlib import closing

import pytest

from tests.env.gyms import pretend
from tests.env.programs import HONEST, REFERENCE, reference
from verl_kernel.env import EvalStatus, GymOptions, Task
from verl_kernel.env.judge.compiled_references import CompiledReferences
from verl_kernel.env.judge.processes.inductor import Inductor, NotCompiled
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.errors import EnvironmentNotReady, TaskError

pytestmark = [pytest.mark.processes, pytest.mark.slow]

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=3, compile_for="sm_90", reference_mode="compile"
)


def task(result: str, members: str = "pass") -> Task:
    draw = "torch.randn(64, 256)"
    return Task(reference(result, f"{draw}, {draw}", "x, y", members), task_id="one")


POINTWISE = task("torch.relu(x * 2 + y) - x.abs()")
SOFTMAX = task("F.softmax(x + y, -1)")
LAYER = task("F.gelu(self.n(self.l(x)))", "self.l, self.n = nn.Linear(256, 256), nn.LayerNorm(256)")
DECIDES = Task(REFERENCE.replace("* self.scale", "* (self.scale if x.isfinite().all().item() else 0.0)"), task_id="one")


@pytest.fixture(scope="module")
def inductor():
    with closing(Inductor()) as inductor:
        yield inductor


@pytest.fixture(scope="module")
def programs(inductor):
    return {one.fingerprint: inductor.program(one, "ieee", 600) for one in (POINTWISE, SOFTMAX, LAYER)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("one", [POINTWISE, SOFTMAX], ids=["pointwise", "softmax"])
def test_one_kernel_computes_what_the_reference_does(judge, programs, one):
    """The program without weights is a candidate like any other, and as fast as the reference that it was made of."""
    program = programs[one.fingerprint]
    assert program.graphs == 1
    result = judge.evaluate(one, program.source)
    assert result.status is EvalStatus.OK, result.error
    assert [launch.count for launch in result.launches] == [1]
    assert result.reference_mode == "compile"
    assert result.speedup == pytest.approx(1.0, rel=0.05)


@pytest.mark.exhaustive
def test_products_stay_torchs_and_the_rest_is_fused(judge):
    found = judge.compiled(LAYER)
    assert [(event.kind, event.name) for event in found.events] == [
        ("op", "aten::addmm.out"),
        ("launch", "triton_per_fused_gelu_native_layer_norm_0"),
    ]
    assert set(found.blocks_per_sm) == {"triton_per_fused_gelu_native_layer_norm_0"}
    assert [event.host_us for event in found.events] == [20 + 30, 8]  # a product, the graph; a launch


def test_the_reference_is_timed_by_its_compiled_form(judge):
    fused = Task(REFERENCE, task_id="fused")
    result = judge.evaluate(fused, HONEST)
    found = judge.compiled(fused)
    assert result.rewarded
    assert result.reference_mode == "compile"
    assert result.reference_ms.median == time_ms(found.events, MachineModel.of("h100"), found.blocks_per_sm)


def test_what_is_not_compiled_is_refused_in_a_sentence(judge):
    for _ in range(2):
        with pytest.raises(
            TaskError, match="reference one cannot be timed through torch.compile: its forward"
        ) as caught:
            judge.compiled(DECIDES)
        assert "set kernelgym.reference_mode to best or eager" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.exhaustive
def test_best_falls_back_to_eager_and_says_so(judge_with):
    with judge_with(reference_mode="best") as judge:
        result = judge.evaluate(DECIDES, HONEST)
    assert result.rewarded
    assert result.reference_mode == "eager"
    assert "reads the value of a tensor on the host" in result.env["reference_not_compiled"]


def test_other_sizes_in_each_draw_are_not_compiled(judge):
    with pytest.raises(TaskError, match="other sizes in each draw"):
        judge.compiled(POINTWISE, is_sized=True)


ENDS = {
    "import os; os._exit(3)": "ended with status 3",
    "while True: pass": "takes longer than kernelgym.reference_timeout_s = 2 s",
    "import os; os.kill(os.getpid(), 11)": "ended with status -11",
    "b'x' * (9 << 30)": "MemoryError",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("line", ENDS)
def test_a_bad_end_is_that_of_its_own_process_only(inductor, line):
    with pytest.raises(NotCompiled, match=ENDS[line]):
        inductor.program(Task(f"{POINTWISE.reference}\n{line}\n", task_id="one"), "ieee", 2)
    assert inductor.program(POINTWISE, "ieee", 600).graphs == 1


@pytest.mark.exhaustive
def test_a_torch_with_another_compiler_is_told(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, "import triton.runtime.jit as jit\ndel jit.JITFunction\n")
    with pytest.raises(EnvironmentNotReady, match="set kernelgym.reference_mode to eager"):
        Inductor().program(POINTWISE, "ieee", 60)


@pytest.mark.exhaustive
def test_what_was_found_is_kept_over_restarts(monkeypatch, tmp_path, judge_with):
    with judge_with(reference_cache=str(tmp_path)) as first:
        found = first.compiled(SOFTMAX)
    monkeypatch.setattr(CompiledReferences, "_followed", None)
    with judge_with(reference_cache=str(tmp_path)) as second:
        assert second.compiled(SOFTMAX) == found
    with judge_with(reference_cache=str(tmp_path), compile_for="off") as other, pytest.raises(TypeError):
        other.compiled(SOFTMAX)
