# SPDX-License-Identifier: Apache-2.0
"""What kernels contribute and what it is worth, by whole evaluations with the static gate off."""

from random import Random

import pytest

from tests.env.programs import HONEST, REFERENCE, TASK, candidate, elementwise, reference
from tests.exploits.families import HONEST as FAMILIES_HONEST
from tests.exploits.tasks import TASKS
from tests.generated import draw_tasks
from tests.tiers import thinned
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Judge, Task
from verl_kernel.env.true_size.dry_pass import dry_forward
from verl_kernel.reward.profiling import profiling_reward

pytestmark = pytest.mark.processes

OPTIONS = GymOptions(device="cpu", static_check="off", correctness_trials=3, run_timeout_s=20, memory_mb=512)
SECOND_HALF = """
@triton.jit
def rest(x, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0) * scale, mask=i < n)

def finish(value, scale):
    out = torch.empty_like(value)
    rest[(4,)](value, out, value.numel(), scale, BLOCK=128)
    return out
"""
STEPS = """
@triton.jit
def spin(x, go, BLOCK: tl.constexpr):
    while tl.load(go) > 1.5:
        tl.store(go, tl.load(go))
    tl.store(x + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))

@triton.jit
def allow(go):
    tl.store(go, tl.load(go) * 0.25)
"""


def judged(judge: Judge, body: str, before: str = "") -> EvalResult:
    result = judge.evaluate(TASK, candidate(body, before))
    assert result.status is EvalStatus.OK, result.error
    return result


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_no_result_is_ok_without_an_answer(judge_with, trials):
    some = judge_with(correctness_trials=trials)
    assert some.evaluate(TASK, HONEST).decoy_kernel is False
    decoy = some.evaluate(TASK, candidate("self.right(x, y)\nreturn self.torch_only(x, y)"))
    assert decoy.status is EvalStatus.DECOY
    assert decoy.decoy_kernel is True


@pytest.mark.parametrize("seed", thinned(range(6), 3))
@pytest.mark.parametrize("honest", thinned(["self.n == 1", "self.n != 2", "self.n % 2", "self.n > 1"], 3))
def test_every_forward_launches(judge_with, seed, honest):
    """Whichever trial the ablation follows."""
    body = f"self.n = getattr(self, 'n', 0) + 1\nreturn self.right(x, y) if {honest} else self.torch_only(x, y)"
    result = judge_with(seed).evaluate(TASK, candidate(body))
    assert result.status is EvalStatus.DECOY
    assert result.error.type in ("NoLaunch", "LaunchIrrelevant")


def test_without_ablation_only_missing_launches_are_known(judge_with):
    some = judge_with(ablation=False)
    result = judged(some, "self.right(x, y)\nreturn self.torch_only(x, y)")
    assert result.decoy_kernel is None
    assert some.evaluate(TASK, candidate("return self.torch_only(x, y)")).decoy_kernel is True


def test_a_kernel_for_the_second_half_covers_its_part(judge):
    result = judged(judge, "return finish(x * self.weight + y, self.scale)", SECOND_HALF)
    assert result.hack_flags == ()
    assert result.decoy_kernel is False
    assert result.number_coverage == pytest.approx(1 / 3)
    assert 0.3 < result.time_coverage < 0.4


def test_a_launch_that_makes_no_difference_covers_nothing(judge):
    """Beside one that does; each is a kernel that computes."""
    body = "self.right(x + 1, y)\nreturn finish(x * self.weight + y, self.scale)"
    result = judged(judge, body, SECOND_HALF)
    assert result.num_custom_kernels == 2
    assert result.number_coverage == pytest.approx(1 / 5)


@pytest.mark.parametrize("seed", thinned(range(3), 3))
def test_many_useless_launches_of_a_kernel_cover_little(judge_with, seed):
    body = "for _ in range(12):\n    self.right(x, y)\nreturn self.right(x, y)"
    result = judged(judge_with(seed), body)
    assert result.num_custom_kernels == 13
    assert result.number_coverage <= 4 / 13


@pytest.mark.parametrize("seed", thinned(range(3), 3))
def test_many_launches_that_matter_cover_all(judge_with, seed):
    body = "parts = [self.right(a, b) for a, b in zip(x.split(1), y.split(1))]\nreturn torch.cat(parts)"
    result = judged(judge_with(seed), body)
    assert result.number_coverage == pytest.approx(8 / 9)  # all but the one of `cat`


@pytest.mark.parametrize("seed", thinned(range(12), 12))
@pytest.mark.parametrize("name", thinned(["p01/bounds", "p01/bounds_by_choice", "p01/bounds_of_a_product"], 3))
def test_bounds_that_small_inputs_hide_are_computed(judge_with, name, seed):
    text, source = FAMILIES_HONEST[name]
    found = judge_with(seed).evaluate(Task(text, task_id="bounds"), source)
    assert (found.status, found.hack_flags) == (EvalStatus.OK, ())


@pytest.mark.parametrize("seed", thinned(range(6), 6))
def test_a_kernel_whose_output_is_mostly_zeros_is_no_decoy(judge_with, seed):
    task = Task(reference("torch.relu(x - 3.0)", "torch.randn(256, 64)"))
    source = elementwise("tl.maximum(v - 3.0, 0.0)")
    result = judge_with(seed, static_check="coverage", correctness_trials=5).evaluate(task, source)
    assert (result.status, result.decoy_kernel) == (EvalStatus.OK, False)


@pytest.mark.exhaustive
def test_a_kernel_that_waits_for_another_one_costs_no_trial(judge):
    """Without what the first one stores the second never ends: so it matters, and the trials go on."""
    body = "go = x[0, :1].abs().clamp(max=1) + 2\nallow[(1,)](go)\nspin[(1,)](x, go, BLOCK=16)\nreturn self.right(x, y)"
    result = judged(judge, body, STEPS)
    assert result.trials.passed == 3
    assert result.decoy_kernel is False


def test_an_unpriced_op_gives_no_speedup(judge):
    body = "return torch.fft.irfft(torch.fft.rfft(self.right(x, y)), n=x.shape[-1])"
    result = judged(judge, body)
    assert result.rewarded
    assert result.speedup is None
    assert result.kernel_ms is None
    assert result.time_coverage is None
    assert result.unpriced_ops == ("aten::_fft_r2c", "aten::_fft_c2r")
    assert result.reference_ms is not None
    assert profiling_reward(result) == 0.5
    assert EvalResult.model_validate_json(result.model_dump_json()) == result


def test_a_reference_without_a_price_gives_no_speedup(judge):
    task = Task(REFERENCE.replace("return torch.relu", "x = torch.fft.irfft(torch.fft.rfft(x)); return torch.relu"))
    result = judge.evaluate(task, HONEST)
    assert result.rewarded
    assert result.speedup is None
    assert result.reference_ms is None
    assert result.unpriced_ops == ("aten::_fft_r2c", "aten::_fft_c2r")
    assert result.time_coverage == 1.0


TUNED = """
@triton.autotune(configs=[triton.Config({{"BLOCK": size}}) for size in {sizes}], key=["n"])
@triton.jit
def tuned(x, w, y, out, n, size, scale, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        m = (i < n) & (start // BLOCK % tl.num_programs(0) == tl.program_id(0))
        v = tl.load(x + i, mask=m) * tl.load(w + i % size, mask=m) + tl.load(y + i, mask=m)
        tl.store(out + i, tl.maximum(v, 0.0) * scale, mask=m)
"""
LAUNCH = """
out = torch.empty_like(x)
tuned[(2,)](x, self.weight, y, out, x.numel(), x.shape[-1], self.scale)
return out
"""


def test_the_order_of_configurations_does_not_decide_the_score(judge):
    alone = [judged(judge, LAUNCH, TUNED.format(sizes=[size])).kernel_ms.median for size in (16, 256)]
    assert alone[0] != alone[1]
    for sizes in ([16, 256], [256, 16]):
        result = judged(judge, LAUNCH, TUNED.format(sizes=sizes))
        assert result.kernel_ms.median == min(alone)
        assert result.num_total_kernels == 1


@pytest.mark.exhaustive
def test_every_task_of_ours_has_a_price(device):
    drawn = {one.task_id: one.reference for one in draw_tasks(60, Random(0))}
    events = {name: dry_forward(Task(source), device).events for name, source in {**TASKS, **drawn}.items()}
    assert [name for name, some in events.items() if not all(event.priced for event in some)] == []
