# SPDX-License-Identifier: Apache-2.0
"""What memory checks add to an evaluation: kernels of several kinds, judged with the checks and without in turns.

Run: python benchmarks/bench_memory_checks.py [--evaluations 15] [--json FILE]. Times are processor time, mean of
all evaluations, which other work on the machine disturbs less than the clock on the wall.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from verl_kernel.env import EvalStatus, GymOptions, LocalPool, Task

BAR = 1.3
"""An evaluation with the checks may take this many times one without."""
MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, {arguments}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
{kernel}

class ModelNew(nn.Module):
    def forward(self, {arguments}):
{forward}
"""
ELEMENTWISE = """
def kernel(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, tl.maximum(value, 0.0) * 2, mask=i < n)
"""
SOFTMAX = """
def kernel(x, out, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + c, mask=c < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + c, value / tl.sum(value, 0), mask=c < n)
"""
PRODUCT = """
def kernel(x, y, out, M, K, N, A: tl.constexpr, B: tl.constexpr):
    i, j = tl.program_id(0) * A + tl.arange(0, A)[:, None], tl.program_id(1) * A + tl.arange(0, A)[None, :]
    total = tl.zeros((A, A), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        left = tl.load(x + i * K + k[None, :], mask=(i < M) & (k[None, :] < K), other=0.0)
        right = tl.load(y + k[:, None] * N + j, mask=(k[:, None] < K) & (j < N), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(out + i * N + j, total, mask=(i < M) & (j < N))
"""
ATOMIC_SUM = """
def kernel(x, out, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + c, mask=c < n, other=0.0)
    tl.atomic_add(out + c, value * value, mask=c < n)
"""
LAST_ONE = """
def kernel(x, part, count, out, n, P: tl.constexpr, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + c, mask=c < n, other=0.0)
    tl.store(part + row * n + c, value * value, mask=c < n)
    tl.debug_barrier()  # all warps have stored
    if tl.atomic_add(count, 1) == P - 1:
        total = tl.zeros((B,), tl.float32)
        for other in range(P):
            total += tl.load(part + other * n + c, mask=c < n, other=0.0)
        tl.store(out + c, total, mask=c < n)
"""
LOCKED = """
def kernel(x, lock, out, n, B: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + c, mask=c < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + c, tl.load(out + c, mask=c < n) + value * value, mask=c < n)
    tl.debug_barrier()  # all warps have stored
    tl.atomic_xchg(lock, 0)
"""


@dataclass(frozen=True)
class Case:
    """A task and an honest answer."""

    name: str
    arguments: str
    result: str
    inputs: str
    kernel: str
    forward: tuple[str, ...]

    @property
    def task(self) -> Task:
        """What is to be computed."""
        text = MODULE.format(arguments=self.arguments, result=self.result, inputs=self.inputs)
        return Task(text, task_id=self.name)

    def source(self, number: int) -> str:
        """One of many answers that differ in a comment."""
        forward = "\n".join(f"        {line}" for line in self.forward)
        text = KERNEL.format(kernel=self.kernel.strip(), arguments=self.arguments, forward=forward)
        return f"{text}# {number}\n"


def elementwise(name: str, size: int, block: int) -> Case:
    launch = f"kernel[({size // block},)](x, y, out, x.numel(), B={block})"
    body = ("out = torch.empty_like(x)", launch, "return out")
    return Case(name, "x, y", "torch.relu(x + y) * 2", ", ".join([f"torch.randn({size})"] * 2), ELEMENTWISE, body)


def summed(name: str, kernel: str, *body: str) -> Case:
    return Case(name, "x", "(x * x).sum(0)", "torch.randn(64, 256)", kernel, (*body, "return out"))


CASES = (
    elementwise("quickstart: 1024 elements", 1024, 1024),
    elementwise("elementwise, 64 programs of 1024", 65536, 1024),
    Case(
        "softmax, 128 rows of 256", "x", "torch.softmax(x, -1)", "torch.randn(128, 256)", SOFTMAX,
        ("out = torch.empty_like(x)", "kernel[(128,)](x, out, 256, B=256)", "return out"),
    ),
    Case(
        "product, 128 x 128 x 128", "x, y", "x @ y", "torch.randn(128, 128), torch.randn(128, 128)", PRODUCT,
        ("out = torch.empty_like(x)", "kernel[(4, 4)](x, y, out, 128, 128, 128, A=32, B=32)", "return out"),
    ),
    summed("sum of 64 rows by atomics", ATOMIC_SUM, "out = torch.zeros(256)", "kernel[(64,)](x, out, 256, B=256)"),
    summed(
        "the same by the last of 64 programs", LAST_ONE, "out, part = torch.empty(256), torch.empty_like(x)",
        "count = torch.zeros(1, dtype=torch.int32)", "kernel[(64,)](x, part, count, out, 256, P=64, B=256)",
    ),
    summed(
        "the same under a lock", LOCKED, "out, lock = torch.zeros(256), torch.zeros(1, dtype=torch.int32)",
        "kernel[(64,)](x, lock, out, 256, B=256)",
    ),
)  # fmt: skip


def processor_s(pool: LocalPool) -> float:
    """Processor time so far of a pool's one judge, its zygote and their runners that have ended."""
    judge = psutil.Process(pool.pids()[0])
    return sum(sum(process.cpu_times()[:4]) for process in (judge, *judge.children()))


def measured(case: Case, pools: list[LocalPool], count: int) -> list[float]:
    """Milliseconds of processor time of one evaluation by each pool."""
    spent = [0.0 for _ in pools]

    async def in_turns() -> None:
        for number in range(count + 2):
            for at, pool in enumerate(pools):
                before = processor_s(pool)
                result = await pool.evaluate(case.task, case.source(number))
                assert result.status is EvalStatus.OK, (case.name, result.error)
                spent[at] += processor_s(pool) - before if number >= 2 else 0.0  # the first ones prepare the reference

    asyncio.run(in_turns())
    return [1e3 * seconds / count for seconds in spent]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    table, rows = Table("kernel", "off, ms", "refuse, ms", "ratio", f"at most {BAR}", title="memory checks"), []
    options = [GymOptions(device="cpu", memory_checks="off"), GymOptions(device="cpu", memory_checks="refuse")]
    with LocalPool(options[0]) as plain, LocalPool(options[1]) as checking:
        for case in CASES:
            off, refuse = measured(case, [plain, checking], arguments.evaluations)
            rows.append({"kernel": case.name, "off_ms": off, "refuse_ms": refuse, "ratio": refuse / off})
            met = "yes" if refuse / off <= BAR else "NO"
            table.add_row(case.name, f"{off:.1f}", f"{refuse:.1f}", f"{refuse / off:.2f}", met)
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
