# SPDX-License-Identifier: Apache-2.0
"""What a GPU evaluation says about honest kernels and about dishonest ones, with the gate off."""

import pytest

from tests.env.programs import elementwise, reference
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

from .programs import HONEST, MIXED, REFERENCE, SLOW, candidate


def test_an_honest_fused_kernel(honest):
    assert honest.status == "ok", honest.error
    assert honest.correctness, honest.error
    assert honest.decoy_kernel is False, honest.error
    assert (honest.timing_source, honest.reference_mode) == ("cuda_event", "eager")
    assert honest.times["device"].speedup > 1.5  # four eager kernels against one, 9 passes over memory against 3
    assert set(honest.times) == {"device", "latency"}
    assert 10 <= honest.kernel_ms.n <= 100
    assert honest.kernel_ms.n == honest.reference_ms.n
    assert honest.time_coverage == honest.number_coverage == 1.0
    assert honest.num_custom_kernels == honest.num_total_kernels == 1
    assert (honest.launches[0].name, honest.launches[0].grid) == ("fused", (16384, 1, 1))
    assert honest.hack_flags == ()
    assert honest.fallback_ops == {}


def test_provenance(honest):
    assert honest.env["gpu_name"]
    assert honest.env["gpu_uuid"].startswith("GPU-")
    assert set(honest.env["clocks"]) == {"before", "after"}
    assert 0 < honest.env["floor_ms"] < honest.kernel_ms.median
    assert 0 < honest.env["null_ms"] < 1000


def test_a_slow_kernel_is_slower(honest, evaluate):
    slow = evaluate(SLOW)
    assert slow.status == "ok", slow.error
    assert slow.times["device"].kernel_ms.median > 10 * honest.times["device"].kernel_ms.median
    assert slow.times["device"].speedup < honest.times["device"].speedup / 10
    assert slow.num_custom_kernels == 20


def test_coverage_of_a_mixed_program(evaluate):
    mixed = evaluate(MIXED)
    assert mixed.status == "ok", mixed.error
    assert 0.05 < mixed.time_coverage < 0.6
    assert (mixed.num_custom_kernels, mixed.num_total_kernels, mixed.number_coverage) == (1, 4, 0.25)
    assert sum(mixed.fallback_ops.values()) == 3
    assert len(mixed.top_kernels) >= 2


def test_the_same_verdict_twice(honest, evaluate):
    again = evaluate(HONEST)
    wall = {"kernel_ms", "reference_ms", "speedup", "speedup_low", "times", "stage_seconds", "time_coverage",
            "top_kernels", "env"}  # fmt: skip
    assert again.model_dump(exclude=wall) == honest.model_dump(exclude=wall)
    assert again.times["device"].speedup == pytest.approx(honest.times["device"].speedup, rel=0.1)


def test_an_autotuned_kernel(evaluate):
    before = """
configs = [triton.Config({"BLOCK": size}, num_warps=warps) for size in (512, 1024) for warps in (4, 8)]
tuned = triton.autotune(configs, key=["n"])(triton.jit(fused.fn))
"""
    body = """
out, n = torch.empty_like(x), x.numel()
tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, self.weight, y, out, n, x.shape[-1], self.scale)
return out
"""
    result = evaluate(candidate(body, before))
    assert result.status == "ok", result.error
    assert (result.time_coverage, result.num_total_kernels) == (1.0, 1)
    assert sum(launch.count for launch in result.launches) == 1  # trials of the tuner are no launches of a forward


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_libdevice(evaluate, dtype):
    source = f"from triton.language.extra import libdevice\n{elementwise('libdevice.tanh(v.to(tl.float32))')}"
    result = evaluate(source, reference("torch.tanh(x)", f"torch.randn(1024, 1024, dtype=torch.{dtype})"))
    assert result.status == "ok", result.error


def test_a_wrong_kernel(evaluate):
    result = evaluate(HONEST.replace("* scale, mask", "* (scale + 1), mask"))
    assert result.status == "incorrect"
    assert result.speedup is None


def test_a_kernel_that_does_not_compile(evaluate):
    result = evaluate(HONEST.replace("tl.maximum(v, 0.0)", "tl.no_such_function(v)"))
    assert result.status == "compile_error"
    assert result.compiled is False


def test_a_kernel_that_asks_for_too_much_shared_memory(evaluate):
    before = """
@triton.jit
def greedy(x, M: tl.constexpr, K: tl.constexpr):
    rows, depth = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(x + rows[:, None] * K + depth[None, :])
    b = tl.load(x + depth[:, None] * M + rows[None, :])
    tl.store(x + rows[:, None] * M + rows[None, :], tl.dot(a, b))  # 512 kB, and seconds to compile
"""
    launch = "greedy[(1,)](torch.zeros(64, 1024, device=x.device), M=64, K=1024, num_warps=16)"
    body = f"{launch}\nreturn self.right(x, y)"
    assert evaluate(candidate(body, before)).status == "compile_error"


@pytest.mark.parametrize("body", [
    "return self.torch_only(x, y)",
    "token[(1,)](torch.empty(4, device=x.device), BLOCK=4)\nreturn self.torch_only(x, y)",
])  # fmt: skip
def test_torch_with_and_without_a_token_launch_is_a_decoy(evaluate, body):
    result = evaluate(candidate(body))
    assert result.status == "decoy"
    assert not result.rewarded


def test_unwritten_output_holds_no_earlier_result(evaluate):
    assert evaluate(candidate("self.right(x, y)\nreturn torch.empty_like(x)")).status in ("incorrect", "decoy")


def test_changed_inputs_are_seen(evaluate):
    assert evaluate(candidate("out = self.right(x, y)\nx.zero_()\nreturn out")).status == "incorrect"


def test_a_compiled_reference(judge):
    options = GymOptions(device="cuda", reference_mode="compile", memory_mb=16384, load_timeout_s=60, run_timeout_s=60)
    with Judge(options, seed=1) as compiled:
        result = compiled.evaluate(Task(REFERENCE), HONEST)
    assert (result.status, result.reference_mode) == ("ok", "compile")
    assert result.times["device"].speedup < 1.5  # the compiler fuses the chain as well
