# SPDX-License-Identifier: Apache-2.0
"""Evaluations per second with one judge and with two on one GPU, for small and large tasks, stage by stage."""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.gpu import judged
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import Setting
from verl_kernel.env import EvalResult, LocalPool, Task

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y) * 2

def get_inputs():
    return [torch.randn({size}), torch.randn({size})]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, tl.maximum(value, 0.0) * 2, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
"""
POWERS, PRETENDED_POWERS = {"small": 16, "large": 24}, {"small": 10, "large": 13}
"""Tasks by the power of two of their elements: three tensors of 256 kB, of 64 MB."""
LONGEST_S, PRETENDED_LONGEST_S = 20.0, 5.0
"""Of one rate."""
_MOST = 200


def run(setting: Setting, findings: Findings) -> None:
    """Four rates, each over its share of the time; every candidate is another source, so none is remembered."""
    powers, parts_left = PRETENDED_POWERS if setting.pretend else POWERS, 4
    for judges in (1, 2):
        with LocalPool(setting.options(num_judges=judges)) as pool:
            for size, power in powers.items():
                longest = PRETENDED_LONGEST_S if setting.pretend else LONGEST_S
                seconds = min(longest, (setting.left_s() - 10.0) / parts_left)
                parts_left -= 1
                if seconds < 2.0:
                    findings.unknown(f"{size} tasks, judges: {judges}", "no time was left for it")
                    continue
                task = Task(REFERENCE.format(size=1 << power), task_id=size)
                row, result = _rate(pool, task, judges, seconds)
                findings.row("evaluations", **row)
                if judges == 1:
                    judged.keep(setting.out, task.reference, CANDIDATE, result)
                what = f"all candidates of {size} tasks are rewarded, judges: {judges}"
                findings.check(
                    what, row["rewarded"] == row["evaluations"], f"{row['rewarded']} of {row['evaluations']}"
                )


def _rate(pool: LocalPool, task: Task, judges: int, seconds: float) -> tuple[dict[str, object], EvalResult]:
    """One line, evaluations per second of all judges and the median seconds of each stage, and the last result."""
    asyncio.run(_keep_busy(pool, task, judges, 0.0, "warm"))
    start = time.monotonic()
    results = asyncio.run(_keep_busy(pool, task, judges, seconds, "timed"))
    spent = time.monotonic() - start
    good = [result for result in results if result.rewarded]
    stages = {name for result in good for name in result.stage_seconds}
    medians = {name: statistics.median(one.stage_seconds.get(name, 0.0) for one in good) for name in sorted(stages)}
    count = {"tasks": task.task_id, "judges": judges, "evaluations": len(results), "rewarded": len(good)}
    columns = {"a second": len(results) / spent, **{f"{name}, s": value for name, value in medians.items()}}
    return {**count, **columns}, results[-1]


async def _keep_busy(pool: LocalPool, task: Task, judges: int, seconds: float, mark: str) -> list[EvalResult]:
    """As many callers as judges, each with one candidate after another until the time is over (one at least)."""
    ends_at, results = time.monotonic() + seconds, []

    async def caller(name: int) -> None:
        for number in range(_MOST):
            results.append(await pool.evaluate(task, f"{CANDIDATE}# {mark} {judges} {name} {number}\n"))
            if time.monotonic() > ends_at:
                break

    await asyncio.gather(*(caller(name) for name in range(judges)))
    return results
