# SPDX-License-Identifier: Apache-2.0
"""Counts of sampled launches beside those of the same launches run whole, for many kinds of kernels.

    python benchmarks/bench_sampled_counts.py [--only NAME]

A row says how many programs the grid has and how many ran; how far two samples are apart in the number in which they
are furthest apart, and how far the count of both is from the whole one; what both cost on an H100, in microseconds.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import bench_emulator_prices as prices
import emulator_kernels as kernels
import numpy as np
import sampled_kernels as sampled
import torch

from verl_kernel.env.emulator import driver
from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.work.steps import launch_work
from verl_kernel.env.execution.block_sampling import WHOLE, Sampler, SamplesDisagree
from verl_kernel.env.execution.launch_summary import tally
from verl_kernel.env.ipc.execution_messages import Tally, furthest
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import step_ms

_LAUNCH, _MACHINE = Kernel.launch, MachineModel.of("h100")
_SEEN: list[dict[str, Any]] = []


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    """All of them."""
    yield from sampled.launches()
    for name, (kernel, grid, arguments, options) in kernels.launches():
        yield name, lambda kernel=kernel, grid=grid, args=arguments, more=options: kernel[grid](*args, **more)
    yield from prices.PROGRAMS.items()


def compared(self: Kernel, shape: Sequence[int], arguments: Any, buffers: Any, **options: Any) -> LaunchCount:
    """A launch, run whole and then sampled."""
    x, y, z = (*shape, 1, 1)[:3]
    whole, ran = _LAUNCH(self, (x, y, z), arguments, buffers, **options), set[int]()

    def told(count: LaunchCount) -> Tally:
        names = {str(number): number for number in range(len(buffers))}
        return tally(count, [buffer.bytes for buffer in buffers], names, "", {})

    def run(numbers: Sequence[int]) -> LaunchCount:
        ran.update(numbers)
        return _LAUNCH(self, (x, y, z), arguments, buffers, order=numbers)

    apart = [0.0]

    def compare(one: Tally, other: Tally) -> tuple[str, float]:
        found = furthest(one, other)
        apart.append(found[1])
        return found

    if x * y * z > WHOLE:
        seed = zlib.crc32(repr((x, y, z, len(self.program.instructions))).encode())
        row: dict[str, Any] = {"grid": x * y * z}
        try:
            count = Sampler(run, (x, y, z), np.random.default_rng(seed), told, compare).count()
            row.update(off=furthest(told(count), told(whole)), times=[_micros(count), _micros(whole)])
        except SamplesDisagree as exc:
            row.update(off=(str(exc), 1.0), times=[0.0, _micros(whole)])
        _SEEN.append({**row, "ran": len(ran), "apart": apart[-1]})
    return whole


def _micros(count: LaunchCount) -> float:
    return 1e3 * sum(step_ms(step, _MACHINE) for step in launch_work(count).steps)


def rows(only: str = "") -> Iterator[dict[str, Any]]:
    """A row for each launch of more programs than are run whole."""
    torch.manual_seed(0)
    driver.activate()
    Kernel.launch = compared  # type: ignore[method-assign]
    for name, launch in launches():
        if only in name:
            _SEEN.clear()
            torch.manual_seed(0)
            launch()
            yield from ({"name": name, **row} for row in _SEEN[:1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of the launches that are wanted")
    print("| kernel | programs | ran | samples apart | off | furthest in | sampled | whole |\n" + "|---" * 8 + "|")
    for row in rows(parser.parse_args().only):
        (what, off), (ours, theirs) = row["off"], row["times"]
        name, numbers = row["name"], f"{row['grid']} | {row['ran']} | {row['apart']:.2%} | {off:.2%}"
        print(f"| {name} | {numbers} | {what} | {ours:.2f} | {theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
