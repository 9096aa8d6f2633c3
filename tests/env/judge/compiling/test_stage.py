# SPDX-License-Identifier: Apache-2.0
"""The stage as a whole: which kernels are compiled, how often, for which targets, and what a candidate can do there."""

from collections.abc import Callable
from dataclasses import replace
from textwrap import indent

import pytest

from tests.env import programs
from tests.env.compilation.refused_programs import TASKS
from tests.tiers import thinned
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, Judge, Task
from verl_kernel.env.compilation import nvidia
from verl_kernel.env.judge.compiling import code
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.compiling.process import CompilingProcess
from verl_kernel.env.judge.compiling.stage import CompileStage
from verl_kernel.env.request import EvalRequest

TASK = Task(TASKS["sum"], task_id="sum")
OPTIONS = GymOptions(device="cpu", correctness_trials=3, compile_for="sm_90", run_timeout_s=60)
KERNEL = """
{decorators}@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n), tl.load(y_ptr + i, mask=i < n)
    {body}
"""
STORE, LAUNCH = "tl.store(o_ptr + i, x + y, mask=i < n)", "k[(1,)](x, y, out, 256, BLOCK=256)"
UNROLLED = """s = x + y
    if n < 0:
        for step in tl.static_range(100000):
            s = s * 1.5 + step
    tl.store(o_ptr + i, s, mask=i < n)"""
"""Runs in no time, for nothing of the loop is run, and is compiled for hours."""

pytestmark = pytest.mark.processes


def program(body: str = STORE, launch: str = LAUNCH, decorators: str = "") -> str:
    kernel = KERNEL.format(body=body, decorators=decorators)
    return programs.program(kernel, f"out = torch.empty_like(x)\n{launch}\nreturn out", "x, y")


@pytest.fixture(scope="module")
def of(judge_with: Callable[..., Judge]) -> Callable[..., Judge]:
    """Makes a judge for some targets, or for none."""
    return lambda *names, **changes: judge_with(compile_for=names or "off", **changes)


def right(judge: Judge, source: str) -> EvalResult:
    result = judge.evaluate(TASK, source)
    assert result.status is EvalStatus.OK, result.error
    return result


def test_each_distinct_launch_is_compiled_once(judge):
    """Sizes of one class share a kernel; another class, dtype, alignment, constant or number of warps needs its own."""
    launches = [
        *(f"k[(1,)](x, y, out, {size}, BLOCK=256)" for size in (256, 512, 1024)),
        "k[(1,)](x, y, out, 257, BLOCK=256)",
        "k[(1,)](x, y, out, 1, BLOCK=256)",
        "k[(1,)](x, y, out, 2**40, BLOCK=256)",
        "k[(1,)](x, y, out.to(torch.float64), 256, BLOCK=256)",
        "k[(2,)](x[1:], y, torch.empty(256), 250, BLOCK=128)",
        "k[(1,)](x, y, out, 256, BLOCK=256, num_warps=8)",
        "k[(1,)](x, y, out, n=256, BLOCK=256)",
    ]
    result = right(judge, program(launch="\n".join(launches)))
    assert [kernel.name for kernel in result.compiled_kernels] == ["k"] * 8
    assert sorted(kernel.warps for kernel in result.compiled_kernels) == [4] * 7 + [8]
    assert result.stage_seconds["compile"] >= 0
    assert result.compiled_for == "sm_90"


def test_what_is_known_is_not_compiled_again(judge, monkeypatch):
    first = judge.evaluate(TASK, program())
    monkeypatch.setattr(CompilingProcess, "outcome", lambda *args: pytest.fail("it was compiled again"))
    again = judge.evaluate(TASK, "# the same kernel, one line further down\n" + program())
    assert first.status is again.status is EvalStatus.OK
    assert first.compiled_kernels == again.compiled_kernels


def test_a_known_refusal_is_told_with_the_line_of_this_source(judge):
    refused = program("both = {0: x, 1: y}\n    tl.store(o_ptr + i, both[0] + both[1], mask=i < n)")
    first, again = judge.evaluate(TASK, refused), judge.evaluate(TASK, "\n\n" + refused)
    assert "line 11, in k" in first.error.message
    assert "line 13, in k" in again.error.message


def test_the_configuration_that_the_autotuner_chose_is_compiled(judge):
    result = right(judge, tuned((64, 1), (256, 8)))
    (kernel,) = result.compiled_kernels
    (grid,) = [item.grid for item in result.launches]
    assert kernel.warps == {4: 1, 1: 8}[grid[0]]


TUNED = "k[lambda meta: (triton.cdiv(256, meta['BLOCK']),)](x, y, out, 256)"
SLOW = """if BLOCK < 128:
        z = x
        for step in range(3000):
            z = z * 0.5 + 1.0
        tl.store(o_ptr + i, z, mask=z < -9.0)
    tl.store(o_ptr + i, x + y, mask=i < n)"""
"""Right in any case, and slow in blocks that are not large."""


def tuned(*configs: tuple[int, int], body: str = STORE) -> str:
    listed = ", ".join(f"triton.Config({{'BLOCK': {size}}}, num_warps={warps})" for size, warps in configs)
    return program(body, TUNED, f"@triton.autotune(configs=[{listed}], key=['n'])\n")


def test_an_autotuner_passes_over_what_does_not_fit_the_target(judge):
    """The simulated clock prefers the first two, which need 2048 threads."""
    result = right(judge, tuned((256, 64), (128, 64), (64, 2), body=SLOW))
    assert [kernel.warps for kernel in result.compiled_kernels] == [2]
    assert result.launches[0].grid == (4, 1, 1)
    assert result.decoy_kernel is False
    assert result.trials.passed == OPTIONS.correctness_trials


@pytest.mark.exhaustive
def test_an_autotuner_without_a_fitting_config_is_refused(judge):
    for configs in ([(256, 64), (128, 64)], [(256, 64), (128, 64), (64, 64), (32, 64), (16, 64)], [(256, 64)]):
        result = judge.evaluate(TASK, tuned(*configs))
        assert (result.status, result.error.type) == (EvalStatus.COMPILE_ERROR, "OutOfResources"), result.error


def test_a_heuristic_value_is_compiled(judge):
    decorators = "@triton.heuristics({'BLOCK': lambda args: 256})\n"
    result = right(judge, program(launch="k[(1,)](x, y, out, 256)", decorators=decorators))
    assert len(result.compiled_kernels) == 1, result.error


def test_a_kernel_made_in_the_forward_is_compiled(judge):
    kernel = KERNEL.format(body=STORE.replace("x + y", "(x + y) * scale"), decorators="")
    maker = f"def made(scale, kind):\n{indent(kernel, '    ')}\n    return k\n"
    forward = f"k = made({{scale}}, 0)\nout = torch.empty_like(x)\n{LAUNCH}\nreturn out"
    good, bad = (
        judge.evaluate(TASK, programs.program(maker, forward.format(scale=scale), "x, y"))
        for scale in ("tl.constexpr(1.0)", "1.0")
    )
    assert good.status is EvalStatus.OK, good.error
    assert len(good.compiled_kernels) == 1, good.error
    assert bad.status is EvalStatus.COMPILE_ERROR, bad.error
    assert "global variable scale" in bad.error.message, bad.error


def test_a_kernel_that_never_stops_compiling_is_a_compile_error(judge, monkeypatch):
    monkeypatch.setattr(code, "COMPILE_S", 1.0)
    result = judge.evaluate(TASK, program(UNROLLED))
    assert (result.status, result.error.type) == (EvalStatus.COMPILE_ERROR, "CompileTimeout"), result.error
    assert "line 8, in k" in result.error.message
    assert "1 s" in result.error.message


@pytest.mark.exhaustive
def test_a_kernel_that_fills_the_memory_is_a_compile_error(judge_with):
    result = judge_with(memory_mb=64).evaluate(TASK, program(UNROLLED))
    assert result.status is EvalStatus.COMPILE_ERROR, result.error
    assert result.error.type in ("CompileMemory", "CompilerCrash", "MemoryError"), result.error


def test_a_launch_that_the_description_leaves_out_is_forged(judge_with):
    """The trace names the compiled kernel that each launch needs, and is sealed when it happens."""
    source = program(launch=f"{LAUNCH}\nsys.modules[LAUNCHES].DESCRIPTIONS._launches.clear()").replace(
        "import torch\n", "import sys\nimport torch\nLAUNCHES = 'verl_kernel.env.devices.cpu.launches'\n", 1
    )
    result = judge_with(static_check="off").evaluate(TASK, source)
    assert result.status is EvalStatus.HACKING, result.error
    assert result.hack_flags == ("forged_message",), result.error


def test_a_grid_that_no_gpu_takes_is_a_compile_error(judge, monkeypatch):
    monkeypatch.setattr(nvidia, "_GRID", (1, 1, 1))
    wide = judge.evaluate(TASK, program(launch="k[(2,)](x, y, out, 256, BLOCK=128)"))
    assert wide.status is EvalStatus.COMPILE_ERROR, wide.error
    assert "2 programs along x" in wide.error.message, wide.error


@pytest.mark.exhaustive
def test_validation_compiles_all_that_training_samples(judge_with):
    sources = [program(STORE + f"  # {number}") for number in range(12)]
    compiled: dict[str, list[bool]] = {}
    for share in ("off", "sample"):
        judge = judge_with(compile=share)
        results = [judge.judge(EvalRequest(TASK, source, step=1)) for source in sources]
        compiled[share] = [result.compiled_for is not None for result in results]
        assert judge.judge(EvalRequest(TASK, sources[0], validate=True)).compiled_for == "sm_90"
    assert not any(compiled["off"]), compiled
    assert 0 < sum(compiled["sample"]) < len(sources), compiled


BOTH = ("sm_90", "gfx942")
PRODUCT = """a = tl.reshape(x, (16, 16)).to(tl.float16)
    b = tl.reshape(y, (16, 16)).to(tl.float16)
    z = tl.reshape(tl.dot(a, b), (256,))
    tl.store(o_ptr + i, x + y + 0 * tl.where(z == z, z, 0.0), mask=i < n)"""
ASSEMBLY = """z = tl.inline_asm_elementwise("add.f32 $0, $1, $2;", "=f,f,f", [x, y], tl.float32, True, 1)
    tl.store(o_ptr + i, z, mask=i < n)"""


def test_each_launch_is_compiled_for_each_target(of):
    result = right(of(*BOTH), program())
    assert result.compiled_for == BOTH
    nvidia, amd = result.compiled_kernels
    assert (nvidia.target, nvidia.name, amd.target, amd.name) == ("sm_90", "k", "gfx942", "k")
    assert (nvidia.accumulators, nvidia.scalars, nvidia.matrix) == (None, None, False)
    assert (amd.accumulators, amd.matrix) == (0, False)
    assert amd.scalars > 0
    assert amd.registers > 0
    assert 1 <= amd.blocks_per_sm <= 16


def test_one_target_of_amd_is_a_plain_name(of):
    result = of("gfx942").evaluate(TASK, program())
    assert result.compiled_for == "gfx942"
    assert [kernel.target for kernel in result.compiled_kernels] == ["gfx942"]


def test_a_namespace_compiles_anew_what_another_one_sent(of, monkeypatch):
    judge, program_of_both, forked = of("sm_90"), program(), []
    fork = LaunchCompiler.fork
    monkeypatch.setattr(LaunchCompiler, "fork", lambda self, *args: forked.append(1) or fork(self, *args))
    for namespace, forks in (("one", 1), ("two", 2), ("one", 2)):
        result = judge.evaluate(replace(TASK, namespace=namespace), program_of_both)
        assert result.status is EvalStatus.OK, result.error
        assert len(forked) == forks


def test_matrix_instructions_are_seen(of):
    result = right(of(*BOTH), program(PRODUCT))
    assert [kernel.matrix for kernel in result.compiled_kernels] == [True, True]


REFUSED = {
    "many warps": (program(launch="k[(1,)](x, y, out, 256, BLOCK=256, num_warps=32)"), "gfx942", "2048 threads"),
    "too many warps": (program(launch="k[(1,)](x, y, out, 256, BLOCK=256, num_warps=64)"), "sm_90", "2048 threads"),
    "fewer registers": (program(launch="k[(1,)](x, y, out, 256, BLOCK=256, maxnreg=64)"), "gfx942", "maxnreg"),
    "assembly": (program(ASSEMBLY), "gfx942", "constraint 'f'"),
}


@pytest.mark.parametrize("name", thinned(REFUSED, 4))
def test_a_refusal_names_its_target(name, of):
    source, target, words = REFUSED[name]
    result = of(*BOTH).evaluate(TASK, source)
    assert result.status is EvalStatus.COMPILE_ERROR, result.error
    assert f"compiled for {target}: " in result.error.message, result.error
    assert words in result.error.message, result.error
    assert result.compiled_for == BOTH
    assert result.compiled_kernels is None


def test_what_amd_refuses_is_right_elsewhere(of):
    refused, _, _ = REFUSED["many warps"]
    assert of("sm_90").evaluate(TASK, refused).rewarded
    assert not of("gfx942").evaluate(TASK, refused).rewarded


@pytest.mark.exhaustive
def test_amd_changes_no_time_of_an_nvidia_gpu(of):
    alone, both, amd, off = (of(*names).evaluate(TASK, program()) for names in (BOTH[:1], BOTH, BOTH[1:], ()))
    assert alone.kernel_ms == both.kernel_ms
    assert amd.kernel_ms == off.kernel_ms
    assert {each.timing_source for each in (alone, both, amd, off)} == {"simulated"}


PROFILES = [(BOTH, "h100", ["sm_90"]), (BOTH, "mi300x", ["gfx942"]), (BOTH[1:], "h100", []), (BOTH[:1], "mi355x", [])]


@pytest.mark.parametrize("profile", thinned(PROFILES, 4))
def test_the_clock_takes_blocks_of_its_makers_first_target(profile, of, monkeypatch):
    names, gpu_profile, asked = profile
    seen, finish = [], CompileStage.finish

    def looked_at(own, session):
        finish(own, session)
        seen.extend(kernel.target for kernel in session.kernels.values())

    monkeypatch.setattr(CompileStage, "finish", looked_at)
    result = of(*names, gpu_profile=gpu_profile).evaluate(TASK, program())
    assert result.rewarded, result.error
    assert seen == asked
    assert result.is_unvalidated is (gpu_profile != "h100")
    assert result.env["gpu_profile"] == gpu_profile


def test_an_autotuner_passes_over_what_one_target_lacks(of):
    result = right(of(*BOTH), tuned((256, 32), (64, 2)))
    assert [kernel.warps for kernel in result.compiled_kernels] == [2, 2]
