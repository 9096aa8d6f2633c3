# SPDX-License-Identifier: Apache-2.0
"""A kernel that needs memory at its launch fails on a GPU, unless the program has set an allocator."""

import pytest

from tests.env.programs import program, reference
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

TASK = Task(reference("x.abs() + 1.0", "torch.randn(64, 64)"), task_id="t")
OPTIONS = GymOptions(device="cpu", correctness_trials=2, compile_for="sm_90", run_timeout_s=60)
KERNELS = """
@triton.jit
def plus(x, o, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    target = tl.make_tensor_descriptor(o, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    target.store([row, column], tl.abs(source.load([row, column])) + 1.0)

def allocated(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8)
"""
LAUNCH = "o = torch.empty_like(x)\nplus[(2, 2)](x, o, 64, 64, B=32)\nreturn o"

pytestmark = pytest.mark.processes


def test_a_launch_without_an_allocator_is_refused(judge: Judge) -> None:
    result = judge.evaluate(TASK, program(KERNELS, LAUNCH))
    assert (result.status, result.error.type) == (EvalStatus.COMPILE_ERROR, "NoAllocator")
    assert "call triton.set_allocator" in result.error.message


def test_a_launch_with_one_is_right(judge: Judge) -> None:
    result = judge.evaluate(TASK, program(KERNELS, f"triton.set_allocator(allocated)\n{LAUNCH}"))
    assert result.status is EvalStatus.OK, result.error
