# SPDX-License-Identifier: Apache-2.0
"""What an evaluation costs apart from the candidate's own work: per stage, per second, and against a fresh process.

Run: python benchmarks/bench_env.py [--evaluations 40] [--ray]. Figures are of this machine and this moment;
the ratios are measured side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool import KernelGym, LocalPool
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y) * 2

def get_inputs():
    return [torch.randn(1024), torch.randn(1024)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, tl.maximum(value, 0.0) * 2, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        fused[(1,)](x, y, out, x.numel(), BLOCK=1024)
        return out
"""
FRESH_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from bench_env import KERNEL, OPTIONS, REFERENCE, Task
from verl_kernel.env.judge import Judge
with Judge(OPTIONS) as judge:
    assert judge.evaluate(Task(REFERENCE), KERNEL).rewarded
"""
OPTIONS = GymOptions(device="cpu")
TASK = Task(REFERENCE, task_id="bench")
PROCESS_STAGES = ("load", "exit")


def sources(count: int) -> list[str]:
    """Different candidates that cost the same."""
    return [f"{KERNEL}# {number}\n" for number in range(count)]


def latencies(evaluate: Callable[[str], EvalResult], count: int) -> tuple[list[float], list[EvalResult]]:
    seconds, results = [], []
    for source in sources(count + 3):
        start = time.perf_counter()
        results.append(evaluate(source))
        seconds.append(time.perf_counter() - start)
    assert all(result.status is EvalStatus.OK for result in results), results[-1]
    return seconds[3:], results[3:]


def rate(pool: LocalPool, count: int) -> float:
    """Evaluations per second with all judges busy."""
    pool.evaluate_many([(TASK, source, "") for source in sources(4)])
    start = time.perf_counter()
    results = pool.evaluate_many([(TASK, source, "") for source in sources(count)])
    assert all(result.status is EvalStatus.OK for result in results)
    return count / (time.perf_counter() - start)


def fresh_processes(count: int) -> float:
    """Evaluations per second with a new Python process for each."""
    start = time.perf_counter()
    for _ in range(count):
        subprocess.run([sys.executable, "-c", FRESH_PROCESS, str(Path(__file__).parent)], check=True)
    return count / (time.perf_counter() - start)


def memory_mb(pid: int) -> float:
    """Private and shared memory (PSS) of a judge and its zygote."""
    family = [psutil.Process(pid), *psutil.Process(pid).children()]
    return sum(process.memory_full_info().pss for process in family) / 1e6


def stage_table(seconds: list[float], results: list[EvalResult]) -> Table:
    table = Table("stage", "median ms", "p90 ms", title=f"one warm evaluation, {len(seconds)} times")
    columns = {name: [result.stage_seconds[name] for result in results] for name in results[0].stage_seconds}
    columns["all of it, seen by the caller"] = seconds
    for name, values in columns.items():
        table.add_row(
            name, f"{1e3 * statistics.median(values):.1f}", f"{1e3 * statistics.quantiles(values, n=10)[-1]:.1f}"
        )
    return table


def ray_overhead_ms(count: int) -> tuple[float, float]:
    """Median milliseconds that the Ray pool and the local pool add to the stages."""
    import ray

    def added(pool: KernelGym | LocalPool) -> float:
        seconds, results = latencies(lambda source: asyncio.run(pool.evaluate(TASK, source)), count)
        spent = [sum(result.stage_seconds.values()) for result in results]
        return 1e3 * statistics.median(a - b for a, b in zip(seconds, spent, strict=True))

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with KernelGym.connect(OPTIONS, name="bench") as gym:
        gym.ready()
        through_ray = added(gym)
    ray.shutdown()
    with LocalPool(OPTIONS) as pool:
        return through_ray, added(pool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--fresh", type=int, default=3, help="evaluations in fresh processes")
    parser.add_argument("--ray", action="store_true", help="also measure the Ray pool")
    arguments = parser.parse_args()
    count = max(30, arguments.evaluations)
    console, table = Console(), Table("measure", "value", title="throughput")
    with console.status("one judge"), LocalPool(OPTIONS) as pool:
        seconds, results = latencies(lambda source: asyncio.run(pool.evaluate(TASK, source)), count)
        one = rate(pool, count)
        memory = memory_mb(pool._judges[0].pid or 0)
    with console.status("two judges"), LocalPool(GymOptions(device="cpu", num_judges=2)) as pool:
        two = rate(pool, 2 * count)
    with console.status("a fresh process per evaluation"):
        fresh = fresh_processes(arguments.fresh)
    process_ms = 1e3 * statistics.median(sum(r.stage_seconds[name] for name in PROCESS_STAGES) for r in results)
    table.add_row("evaluations per second, one judge", f"{one:.1f}")
    table.add_row("evaluations per second, two judges", f"{two:.1f}")
    table.add_row("two judges over one", f"{two / one:.2f}")
    table.add_row("evaluations per second, a fresh process each", f"{fresh:.2f}")
    table.add_row("two judges over fresh processes", f"{two / fresh:.1f}")
    table.add_row("process, jail, load and exit (median ms)", f"{process_ms:.1f}")
    table.add_row("memory of an idle judge and its zygote (PSS, MB)", f"{memory:.0f}")
    if arguments.ray:
        with console.status("the Ray pool"):
            through_ray, locally = ray_overhead_ms(count)
        table.add_row("added by the Ray pool (median ms)", f"{through_ray:.1f}")
        table.add_row("added by the local pool (median ms)", f"{locally:.1f}")
    console.print(stage_table(seconds, results), table)


if __name__ == "__main__":
    main()
