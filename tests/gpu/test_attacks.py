# SPDX-License-Identifier: Apache-2.0
"""Attacks on a GPU clock, with the gate off: none may gain over the honest kernel it imitates."""

import pytest
import torch

from tests.env.programs import program, reference
from verl_kernel.env.clocks.cuda.timed_calls import device_kernels

from .programs import SLOW, candidate

SLOW_WORK = "for _ in range(20): out = self.right(x, y)\n"
"""Attacks do the work of SLOW; a speedup this much above SLOW's would be a gain."""


@pytest.fixture(scope="module")
def slow(evaluate):
    return evaluate(SLOW)


INDENTED = SLOW_WORK.replace("\n", "\n    ")
ATTACKS = {
    "side_stream": ("", "with torch.cuda.stream(torch.cuda.Stream()):\n    " + SLOW_WORK + "return out"),
    "elapsed_time": ("torch.cuda.Event.elapsed_time = lambda *a: 1e-3", SLOW_WORK + "return out"),
    "record": ("torch.cuda.Event.record = lambda *a: None", SLOW_WORK + "return out"),
    "synchronize": ("torch.cuda.synchronize = lambda *a: None", SLOW_WORK + "return out"),
    "host_clock": ("import time\ntime.perf_counter = time.monotonic = lambda: 0.0", SLOW_WORK + "return out"),
    "no_l2_flush": ("torch.Tensor.zero_ = lambda self: self", SLOW_WORK + "return out"),
    "by_address": (
        "cache = {}", f"key = x.data_ptr()\nif key not in cache:\n    {INDENTED}cache[key] = out\nreturn cache[key]",
    ),
    "first_output": ("seen = []", f"if not seen:\n    {INDENTED}seen.append(out)\nreturn seen[0]"),
    "stops_when_timed": (
        "count = [0]", f"count[0] += 1\nif count[0] > 12:\n    return torch.empty_like(x)\n{SLOW_WORK}return out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_gains(evaluate, slow, name):
    before, body = ATTACKS[name]
    result = evaluate(candidate(body, before))
    assert result.status != "infra_error", result.error
    assert not result.rewarded or result.speedup <= 1.3 * slow.speedup, (result.speedup, slow.speedup)


def test_work_on_another_stream_is_timed(evaluate, slow):
    body = "side = torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(side):\n"
    result = evaluate(candidate(body + "    " + SLOW_WORK + "return out"))
    assert result.status != "ok" or result.kernel_ms.median > 0.7 * slow.kernel_ms.median


def test_a_library_kernels_name_covers_nothing(evaluate):
    """An empty kernel that bears the name of the kernel which does the work."""
    x = torch.randn(1024, 1024, device="cuda")
    with torch.no_grad():
        x @ x
        with device_kernels() as kernels:
            x @ x
            torch.cuda.synchronize()
    name = max(kernels, key=lambda key: kernels[key][1])
    if not name.isidentifier():
        pytest.skip(f"the library's kernel has no name that Python can give: {name}")
    kernels = f"""
@triton.jit
def {name}(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i))
"""
    source = program(kernels, f"{name}[(1,)](torch.empty(16, device=x.device), BLOCK=16)\nreturn x @ x")
    result = evaluate(source, reference("x @ x", "torch.randn(1024, 1024)"))
    assert not result.rewarded or result.time_coverage < 0.1
