# SPDX-License-Identifier: Apache-2.0
"""Faults of a candidate on a GPU: each is its own verdict, and the next candidate does not notice."""

import time

import pytest

from .programs import HONEST, REFERENCE, candidate

SPIN = """
@triton.jit
def spin(flag):
    while tl.load(flag, volatile=True) == 0:
        pass
"""
WILD = """
@triton.jit
def wild(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK).to(tl.int64)
    tl.store(x + i + (1 << 44), i.to(tl.float32))
"""


@pytest.fixture
def next_is_fine(evaluate):
    yield
    result = evaluate(HONEST)
    assert result.status == "ok", result.error


def test_an_illegal_access_is_a_crash(evaluate, next_is_fine):
    result = evaluate(candidate("wild[(1,)](x, BLOCK=16)\nreturn self.right(x, y)", WILD))
    assert result.status == "crash"
    assert not result.rewarded


def test_an_assertion_on_the_device_is_a_crash(evaluate, next_is_fine):
    result = evaluate(candidate("x[torch.full((4,), 1 << 20, device=x.device)]\nreturn self.right(x, y)"))
    assert result.status == "crash"


def test_a_hung_kernel_is_killed(next_is_fine):
    from verl_kernel.env.judge.judge import Judge
    from verl_kernel.env.options import GymOptions
    from verl_kernel.env.task import Task

    body = "spin[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))\nreturn self.right(x, y)"
    options = GymOptions(device="cuda", static_check="off", run_timeout_s=5.0, load_timeout_s=60.0)
    with Judge(options, seed=1) as judge:
        start = time.monotonic()
        result = judge.evaluate(Task(REFERENCE), candidate(body, SPIN))
        assert result.status == "timeout"
        assert time.monotonic() - start < 90.0


def test_too_much_device_memory_is_oom(evaluate, next_is_fine):
    result = evaluate(candidate("keep = torch.empty(1 << 36, device=x.device)\nreturn self.right(x, y)"))
    assert result.status == "oom"


def test_a_leak_meets_the_candidates_own_limit(evaluate, next_is_fine):
    body = "self.keep = getattr(self, 'keep', [])\nfor _ in range(64): self.keep.append(x.repeat(64, 1))\n"
    assert evaluate(candidate(body + "return self.right(x, y)")).status == "oom"


def test_a_process_that_leaves(evaluate, next_is_fine):
    assert evaluate(candidate("import os\nos._exit(0)")).status == "crash"


def test_a_host_that_hangs_in_the_timed_phase(next_is_fine):
    from verl_kernel.env.judge.judge import Judge
    from verl_kernel.env.options import GymOptions
    from verl_kernel.env.task import Task

    body = "count[0] += 1\nwhile count[0] > 6: pass\nreturn self.right(x, y)"
    options = GymOptions(device="cuda", static_check="off", run_timeout_s=5.0, load_timeout_s=60.0)
    with Judge(options, seed=1) as judge:
        assert judge.evaluate(Task(REFERENCE), candidate(body, "count = [0]")).status == "timeout"
