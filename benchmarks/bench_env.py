# SPDX-License-Identifier: Apache-2.0
"""What an evaluation costs apart from the candidate's own work, each figure beside the bar it has to pass.

Run: python benchmarks/bench_env.py [--evaluations 60] [--fresh 3] [--no-ray] [--json FILE]. Times are of this machine
and this moment (run it on an idle one); ratios are measured side by side in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from verl_kernel.env import EvalResult, EvalStatus, GymOptions, KernelGym, LocalPool, Task

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
        {before}
        out = torch.empty_like(x)
        fused[(1,)](x, y, out, x.numel(), BLOCK=1024)
        return out
"""
HONEST = KERNEL.format(before="pass")
FRESH_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from bench_env import HONEST, OPTIONS, REFERENCE, Task
from verl_kernel.env.judge.judge import Judge
with Judge(OPTIONS) as judge:
    assert judge.evaluate(Task(REFERENCE), HONEST).rewarded
"""
OPTIONS = GymOptions(device="cpu")
OPEN = GymOptions(device="cpu", static_check="off", run_timeout_s=2.0)
"""Without the gate, which would refuse what crashes and hangs."""
TASK = Task(REFERENCE, task_id="bench")
PREPARED = REFERENCE.replace(
    "    def forward",
    "    def __init__(self):\n        super().__init__()\n"
    "        self.table = nn.Parameter(nn.init.orthogonal_(torch.empty(512, 512)))\n\n    def forward",
)
"""A task whose reference takes a while to build, as those with weights do."""
SIZES = (256, 257, 384, 512, 640, 768, 1000, 1024)
SIZED = REFERENCE.replace("get_inputs()", "get_inputs(n=1000)").replace("torch.randn(1024)", "torch.randn(4, n)")
SIZED_TASKS = {1: Task(SIZED), len(SIZES): Task(f"{SIZED}\nWORKLOADS = {[*SIZES]}\n")}
SIZED_KERNEL = HONEST.replace("[(1,)]", "[(triton.cdiv(x.numel(), 1024),)]")
CRASHES = {
    "segfault": "import ctypes; ctypes.string_at(0)",
    "exit": "import os; os._exit(3)",
    "kill": "import os; os.kill(os.getpid(), 15)",
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    measure: str
    value: float
    bar: float | None
    """The value must be at most this, or at least where `higher` is set; None for a figure without a bar."""
    higher: bool = False
    unit: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar is passed."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.higher else self.value <= self.bar


def sources(count: int, mark: str = "") -> list[str]:
    """Different candidates that cost the same."""
    return [f"{HONEST}# {mark} {number}\n" for number in range(count)]


def timed(pool: LocalPool | KernelGym, texts: list[str], task: Task = TASK) -> tuple[list[float], list[EvalResult]]:
    """Seconds and results of candidates judged one after another."""

    async def one_by_one() -> None:
        for source in texts:
            start = time.perf_counter()
            results.append(await pool.evaluate(task, source))
            seconds.append(time.perf_counter() - start)

    seconds: list[float] = []
    results: list[EvalResult] = []
    asyncio.run(one_by_one())
    assert all(result.status is EvalStatus.OK for result in results), [r.error for r in results if r.error]
    return seconds, results


def rate(pool: LocalPool, count: int, mark: str) -> float:
    """Evaluations per second with all judges busy."""
    pool.evaluate_many([(TASK, source, "") for source in sources(4, f"{mark} warm")])
    start = time.perf_counter()
    results = pool.evaluate_many([(TASK, source, "") for source in sources(count, mark)])
    assert all(result.status is EvalStatus.OK for result in results)
    return count / (time.perf_counter() - start)


def fresh_processes(count: int) -> float:
    """Evaluations per second with a new Python process for each."""
    start = time.perf_counter()
    for _ in range(count):
        subprocess.run([sys.executable, "-c", FRESH_PROCESS, str(Path(__file__).parent)], check=True)
    return count / (time.perf_counter() - start)


def memory_mb(processes: list[psutil.Process], kind: str) -> float:
    return sum(getattr(process.memory_full_info(), kind) for process in processes) / 1e6


def runners(pool: LocalPool) -> list[psutil.Process]:
    return [runner for pid in pool.pids() for zygote in psutil.Process(pid).children() for runner in zygote.children()]


def latency_rows(pool: LocalPool, count: int, tables: list[Table]) -> Iterator[Row]:
    pairs = [timed(pool, sources(2, f"pair {n}"), Task(f"{PREPARED}# {n}"))[0] for n in range(11)]
    first, second = (1e3 * statistics.median(seconds) for seconds in zip(*pairs[1:], strict=True))
    yield Row("first candidate of a task with weights, median", first, None, unit="ms")
    yield Row("second candidate of that task: the reference is reused", second, first, unit="ms")
    seconds, results = timed(pool, sources(count + 3))
    seconds, results = seconds[3:], results[3:]
    yield Row("warm evaluation, median", 1e3 * statistics.median(seconds), 120, unit="ms")
    loads = [result.stage_seconds["load"] for result in results]
    yield Row("process creation, jail and load, median", 1e3 * statistics.median(loads), 30, unit="ms")
    spent = [sum(result.stage_seconds.values()) for result in results]
    added = statistics.median(a - b for a, b in zip(seconds, spent, strict=True))
    yield Row("added by the local pool, median", 1e3 * added, None, unit="ms")
    tables.append(stage_table(seconds, results))


def size_rows(pool: LocalPool, count: int) -> Iterator[Row]:
    """Processor time, which a busy machine changes less than the wall clock, of tasks of one size and of eight."""
    spent: dict[int, list[float]] = {size: [] for size in SIZED_TASKS}
    for number in range(count + 3):
        for size, task in SIZED_TASKS.items():
            before = processor_s(pool)
            timed(pool, [f"{SIZED_KERNEL}# {number}\n"], task)
            time.sleep(0.05)  # until the ended processes are collected
            spent[size] += [processor_s(pool) - before] if number > 2 else []
    one, eight = (1e3 * statistics.mean(seconds) for seconds in spent.values())
    yield Row("processor time of a warm evaluation, mean", one, None, unit="ms")
    yield Row("processor time of one at eight sizes, mean", eight, None, unit="ms")
    yield Row("eight sizes over one", eight / one, 2.5)


def processor_s(pool: LocalPool) -> float:
    """Processor time of a pool's judges and of all that they have started."""
    total = 0.0
    for judge in map(psutil.Process, pool.pids()):
        for process in (judge, *judge.children(recursive=True)):
            with suppress(psutil.Error):
                spent = process.cpu_times()
                total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def memory_rows(pool: LocalPool) -> Iterator[Row]:
    judge = psutil.Process(pool.pids()[0])
    family = [judge, *judge.children()]
    yield Row("memory of an idle judge and its zygote, PSS", memory_mb(family, "pss"), 450, unit="MB")
    yield Row("memory of an idle judge and its zygote, RSS", memory_mb(family, "rss"), None, unit="MB")


def stage_table(seconds: list[float], results: list[EvalResult]) -> Table:
    table = Table("stage", "median ms", "p90 ms", title=f"one warm evaluation, {len(seconds)} times")
    columns = {name: [result.stage_seconds[name] for result in results] for name in results[0].stage_seconds}
    columns["all of it, seen by the caller"] = seconds
    for name, values in columns.items():
        table.add_row(
            name, f"{1e3 * statistics.median(values):.1f}", f"{1e3 * statistics.quantiles(values, n=10)[-1]:.1f}"
        )
    return table


def failure_rows() -> Iterator[Row]:
    """How soon a crash is reported and a hang is gone, and what a runner holds for itself."""
    with LocalPool(OPEN) as pool:
        timed(pool, sources(3))
        for name, body in CRASHES.items():
            seconds = [until_verdict(pool, KERNEL.format(before=body) + f"# {n}\n", "crash") for n in range(3)]
            yield Row(f"{name} reported after", max(seconds), 0.5, unit="s")
        hanging, waiting = KERNEL.format(before="while True: pass"), []
        private = private_mb(pool, KERNEL.format(before="import time; time.sleep(1)"))
        yield Row("private memory of a runner", private, 25, unit="MB")
        seconds = until_verdict(pool, hanging, "timeout", waiting)
        yield Row("a hang and its children gone, after the deadline", seconds - OPEN.run_timeout_s, 1.0, unit="s")
        yield Row("processes that outlive a hang", len([p for p in waiting if p.is_running()]), 0)


def until_verdict(pool: LocalPool, source: str, status: str, seen: list[psutil.Process] | None = None) -> float:
    """Seconds from the first sight of the runner to the verdict."""

    async def scene() -> tuple[EvalResult, float]:
        asked = asyncio.ensure_future(pool.evaluate(TASK, source))
        while not (found := runners(pool)) and not asked.done():
            await asyncio.sleep(0.001)
        start = time.perf_counter()
        await asyncio.sleep(0.1 if seen is not None else 0)
        if seen is not None:
            seen.extend(found + [child for runner in found for child in runner.children(recursive=True)])
        result = await asked
        return result, time.perf_counter() - start

    result, seconds = asyncio.run(scene())
    assert result.status.value == status, (result.status, result.error)
    return seconds


def private_mb(pool: LocalPool, source: str) -> float:
    """Largest private memory of a runner that executes its candidate."""

    async def scene() -> float:
        asked, most = asyncio.ensure_future(pool.evaluate(TASK, source)), 0.0
        while not asked.done():
            for runner in runners(pool):
                with suppress(psutil.Error):
                    most = max(most, runner.memory_full_info().uss / 1e6)
            await asyncio.sleep(0.05)
        return most

    return asyncio.run(scene())


def throughput_rows(count: int, fresh_count: int) -> Iterator[Row]:
    """One judge and two in turns, so that both see the same machine."""
    with LocalPool(OPTIONS) as single, LocalPool(GymOptions(device="cpu", num_judges=2)) as double:
        pairs = [(rate(single, count, f"one {n}"), rate(double, 2 * count, f"two {n}")) for n in range(3)]
    one, two = (statistics.median(values) for values in zip(*pairs, strict=True))
    fresh = fresh_processes(fresh_count)
    yield Row("evaluations per second, one judge", one, None)
    yield Row("evaluations per second, two judges", two, 15, higher=True)
    yield Row("two judges over one", two / one, 1.7, higher=True)
    yield Row("evaluations per second, a fresh process each", fresh, None)
    yield Row("two judges over fresh processes", two / fresh, 15, higher=True)


def check_rows(count: int) -> Iterator[Row]:
    """What the checks add that make a verdict worth a GPU's, each candidate judged by all pools in turn."""
    settings: dict[str, dict[str, str]] = {
        "neither": {},
        "memory checks": {"memory_checks": "refuse"},
        "the compile stage": {"compile_for": "sm_90"},
        "both": {"memory_checks": "refuse", "compile_for": "sm_90"},
    }
    with ExitStack() as stack:
        pools = {name: stack.enter_context(LocalPool(replace(OPTIONS, **keys))) for name, keys in settings.items()}
        seconds: dict[str, list[float]] = {f"{name}, {kind}": [] for name in pools for kind in ("new", "known")}
        for number in range(count // 2 + 2):
            for kind, mark in (("new", "first"), ("known", "second")):
                for name, pool in pools.items():
                    (spent,), _ = timed(pool, [f"{HONEST.replace('fused', f'fused_{number}')}# {mark}\n"])
                    seconds[f"{name}, {kind}"] += [spent] if number > 1 else []
    medians = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    for kind, text in (("new", "of a kernel not compiled before"), ("known", "of a kernel compiled before")):
        base = medians[f"neither, {kind}"]
        yield Row(f"evaluation {text}, without checks", base, None, unit="ms")
        for name in list(settings)[1:]:
            yield Row(f"added to it by {name}", medians[f"{name}, {kind}"] - base, None, unit="ms")


def ray_rows(count: int) -> Iterator[Row]:
    """The two pools in turns on the same candidates; the difference of their medians is what Ray adds."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with LocalPool(OPTIONS) as local, KernelGym.connect(OPTIONS, name="bench") as gym:
        gym.ready()
        pools: list[LocalPool | KernelGym] = [local, gym]
        medians: list[list[float]] = [[], []]
        for turn in range(4):
            for pool, own in zip(pools, medians, strict=True):
                seconds, _ = timed(pool, sources(count // 2, f"ray {turn}"))
                own += seconds if turn else []
    ray.shutdown()
    locally, through_ray = (1e3 * statistics.median(values) for values in medians)
    yield Row("warm evaluation through Ray, median", through_ray, None, unit="ms")
    yield Row("added by the Ray pool, median", through_ray - locally, 10, unit="ms")


def table_of(rows: list[Row]) -> Table:
    table = Table("measure", "value", "bar", "met", title="KernelGYM on the simulated clock")
    for row in rows:
        bar = "" if row.bar is None else f"{'at least' if row.higher else 'at most'} {row.bar:.4g}"
        met = {None: "", True: "yes", False: "NO"}[row.met]
        table.add_row(row.measure, f"{row.value:.3g} {row.unit}".strip(), bar, met)
    return table


def measure(arguments: argparse.Namespace, note: Callable[[str], None], tables: list[Table]) -> Iterator[Row]:
    count = max(20, arguments.evaluations)
    note("latency and memory of one judge")
    with LocalPool(OPTIONS) as pool:
        yield from memory_rows(pool)
        yield from latency_rows(pool, count, tables)
        note("tasks of many sizes")
        yield from size_rows(pool, count)
    note("crashes and hangs")
    yield from failure_rows()
    note("memory checks and the compile stage")
    yield from check_rows(count)
    note("throughput")
    yield from throughput_rows(count, arguments.fresh)
    if not arguments.no_ray:
        note("the Ray pool")
        yield from ray_rows(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--fresh", type=int, default=3, help="evaluations in fresh processes")
    parser.add_argument("--no-ray", action="store_true", help="leave the Ray pool out")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    console, tables = Console(), []
    with console.status("") as status:
        rows = list(measure(arguments, status.update, tables))
    console.print(*tables, table_of(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=1))


if __name__ == "__main__":
    main()
