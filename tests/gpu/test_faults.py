# SPDX-License-Identifier: Apache-2.0
"""Faults of a candidate on a GPU: each is its own verdict, and the next candidate does not notice."""

import time

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

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
FAULTS = {
    "illegal access": ("crash", "wild[(1,)](x, BLOCK=16)", WILD),
    "assertion on the device": ("crash", "x[torch.full((4,), 1 << 20, device=x.device)]", ""),
    "too much device memory": ("oom", "keep = torch.empty(1 << 36, device=x.device)", ""),
    "a leak up to its own limit": (
        "oom", "self.keep = getattr(self, 'keep', [])\nfor _ in range(64): self.keep.append(x.repeat(64, 1))", "",
    ),
    "a process that leaves": ("crash", "import os\nos._exit(0)", ""),
}  # fmt: skip
HANGS = {
    "a kernel": ("spin[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))", SPIN),
    "a host in the timed phase": ("count[0] += 1\nwhile count[0] > 6: pass", "count = [0]"),
}


@pytest.fixture
def next_is_fine(evaluate):
    yield
    result = evaluate(HONEST)
    assert result.status == "ok", result.error


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_own_verdict(evaluate, next_is_fine, name):
    status, body, before = FAULTS[name]
    result = evaluate(candidate(f"{body}\nreturn self.right(x, y)", before))
    assert result.status == status
    assert not result.rewarded


@pytest.mark.parametrize("name", HANGS)
def test_what_hangs_is_killed(next_is_fine, name):
    body, before = HANGS[name]
    options = GymOptions(device="cuda", static_check="off", run_timeout_s=5.0, load_timeout_s=60.0)
    with Judge(options, seed=1) as judge:
        start = time.monotonic()
        result = judge.evaluate(Task(REFERENCE), candidate(f"{body}\nreturn self.right(x, y)", before))
        assert result.status == "timeout"
        assert time.monotonic() - start < 90.0
