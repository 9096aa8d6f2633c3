# SPDX-License-Identifier: Apache-2.0
"""Several targets in one evaluation, AMD's among them: whose verdict it is, what is said of each, what is timed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.env.judge.compiling.test_stage import OPTIONS, TASK, program, tuned
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.compiling.stage import CompileStage
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.result import EvalStatus

BOTH = ("sm_90", "gfx942")
PRODUCT = """a = tl.reshape(x, (16, 16)).to(tl.float16)
    b = tl.reshape(y, (16, 16)).to(tl.float16)
    z = tl.reshape(tl.dot(a, b), (256,))
    tl.store(o_ptr + i, x + y + 0 * tl.where(z == z, z, 0.0), mask=i < n)"""
ASSEMBLY = """z = tl.inline_asm_elementwise("add.f32 $0, $1, $2;", "=f,f,f", [x, y], tl.float32, True, 1)
    tl.store(o_ptr + i, z, mask=i < n)"""

pytestmark = pytest.mark.processes


class Judges:
    """A judge for each choice of targets, with the processes of one that compiles for all of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._first = stack.enter_context(Judge(replace(OPTIONS, compile_for=BOTH), seed=3))
        self._first.warm_up()

    def of(self, *names: str, gpu_profile: str = "h100") -> Judge:
        options = replace(OPTIONS, compile_for=names or "off", gpu_profile=gpu_profile)
        return Judge(options, seed=3, processes=self._first.processes)


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with ExitStack() as stack:
        yield Judges(stack)


def test_each_launch_is_compiled_for_each_target(judges):
    result = judges.of(*BOTH).evaluate(TASK, program())
    assert result.status is EvalStatus.OK, result.error
    assert result.compiled_for == BOTH
    nvidia, amd = result.compiled_kernels
    assert (nvidia.target, nvidia.name, amd.target, amd.name) == ("sm_90", "k", "gfx942", "k")
    assert (nvidia.accumulators, nvidia.scalars, nvidia.matrix) == (None, None, False)
    assert (amd.accumulators, amd.matrix) == (0, False)
    assert amd.scalars > 0
    assert amd.registers > 0
    assert 1 <= amd.blocks_per_sm <= 16


def test_one_target_of_amd_is_a_plain_name(judges):
    result = judges.of("gfx942").evaluate(TASK, program())
    assert result.compiled_for == "gfx942"
    assert [kernel.target for kernel in result.compiled_kernels] == ["gfx942"]


def test_a_namespace_compiles_anew_what_another_one_sent(judges, monkeypatch):
    judge, program_of_both, forked = judges.of("sm_90"), program(), []
    fork = LaunchCompiler.fork
    monkeypatch.setattr(LaunchCompiler, "fork", lambda self, *args: forked.append(1) or fork(self, *args))
    for namespace, forks in (("one", 1), ("two", 2), ("one", 2)):
        result = judge.evaluate(replace(TASK, namespace=namespace), program_of_both)
        assert result.status is EvalStatus.OK, result.error
        assert len(forked) == forks


def test_matrix_instructions_are_seen(judges):
    result = judges.of(*BOTH).evaluate(TASK, program(PRODUCT))
    assert result.status is EvalStatus.OK, result.error
    assert [kernel.matrix for kernel in result.compiled_kernels] == [True, True]


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (program(launch="k[(1,)](x, y, out, 256, BLOCK=256, num_warps=32)"), "gfx942", "2048 threads in a block"),
        (program(launch="k[(1,)](x, y, out, 256, BLOCK=256, maxnreg=64)"), "gfx942", "maxnreg"),
        (program(ASSEMBLY), "gfx942", "constraint 'f'"),
        (program(launch="k[(1,)](x, y, out, 256, BLOCK=256, num_warps=64)"), "sm_90", "2048 threads in a block"),
    ],
)
def test_a_refusal_names_its_target(source, target, words, judges):
    result = judges.of(*BOTH).evaluate(TASK, source)
    assert result.status is EvalStatus.COMPILE_ERROR, result.error
    assert f"compiled for {target}: " in result.error.message, result.error
    assert words in result.error.message, result.error
    assert result.compiled_for == BOTH
    assert result.compiled_kernels is None


def test_what_amd_refuses_is_right_elsewhere(judges):
    refused = program(launch="k[(1,)](x, y, out, 256, BLOCK=256, num_warps=32)")
    assert judges.of("sm_90").evaluate(TASK, refused).rewarded
    assert not judges.of("gfx942").evaluate(TASK, refused).rewarded


def test_amd_changes_no_time_of_an_nvidia_gpu(judges):
    alone, both, amd, off = (judges.of(*names).evaluate(TASK, program()) for names in (BOTH[:1], BOTH, BOTH[1:], ()))
    assert alone.kernel_ms == both.kernel_ms
    assert amd.kernel_ms == off.kernel_ms
    assert {each.timing_source for each in (alone, both, amd, off)} == {"simulated"}


@pytest.mark.parametrize(
    ("names", "gpu_profile", "asked"),
    [(BOTH, "h100", ["sm_90"]), (BOTH, "mi300x", ["gfx942"]), (BOTH[1:], "h100", []), (BOTH[:1], "mi355x", [])],
)
def test_the_clock_takes_blocks_of_its_makers_first_target(names, gpu_profile, asked, judges, monkeypatch):
    seen, finish = [], CompileStage.finish

    def looked_at(own, session):
        finish(own, session)
        seen.extend(kernel.target for kernel in session.kernels.values())

    monkeypatch.setattr(CompileStage, "finish", looked_at)
    result = judges.of(*names, gpu_profile=gpu_profile).evaluate(TASK, program())
    assert result.rewarded, result.error
    assert seen == asked
    assert result.is_unvalidated is (gpu_profile != "h100")
    assert result.env["gpu_profile"] == gpu_profile


def test_an_autotuner_passes_over_what_one_target_lacks(judges):
    result = judges.of(*BOTH).evaluate(TASK, tuned((256, 32), (64, 2)))
    assert result.status is EvalStatus.OK, result.error
    assert [kernel.warps for kernel in result.compiled_kernels] == [2, 2]
