# SPDX-License-Identifier: Apache-2.0
"""What judging by a service costs over a pool in the same process, in turns on the same machine.

Run: python benchmarks/bench_service.py [--evaluations 40] [--rounds 6]. Both sides have judges of the same options and
take turns, evaluation by evaluation where one is judged at a time; times are of this machine and this moment, so run it
on an idle one. Medians of the differences decide, beside which stand means with Student's 95 % interval.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_env import TASK, sources
from rich.console import Console
from rich.table import Table
from scipy.stats import t

from verl_kernel.client import RemoteGym
from verl_kernel.env import GymOptions, LocalPool

JUDGES = 2
OPTIONS = GymOptions(device="cpu", num_judges=JUDGES, memory_checks="refuse", compile_for="sm_90", true_size="auto")
"""Those of `verl-kernel serve`."""
Gym = LocalPool | RemoteGym


@contextmanager
def service(folder: Path) -> Iterator[RemoteGym]:
    """A client of a service in a process of its own."""
    command = [sys.executable, "-m", "verl_kernel", "serve", "--port=0", f"--state={folder}", "--device=cpu"]
    process = subprocess.Popen([*command, f"--num-judges={JUDGES}"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        with RemoteGym(process.stderr.readline().split()[-1]) as gym:
            yield gym
    finally:
        process.terminate()
        process.wait()


def one_by_one(gym: Gym, texts: list[str]) -> float:
    """Milliseconds of an evaluation, one at a time."""
    start = time.monotonic()
    for text in texts:
        assert asyncio.run(gym.evaluate(TASK, text)).rewarded  # as a training does
    return 1e3 * (time.monotonic() - start) / len(texts)


def together(gym: Gym, texts: list[str]) -> float:
    """Evaluations per second, all at once."""
    start = time.monotonic()
    assert all(result.rewarded for result in gym.evaluate_many([(TASK, text, "") for text in texts]))
    return len(texts) / (time.monotonic() - start)


def measured(
    gyms: dict[str, Gym], measure: Callable[[Gym, list[str]], float], rounds: int, count: int
) -> dict[str, list[float]]:
    """What each side took, round by round; the side that begins changes."""
    found: dict[str, list[float]] = {name: [] for name in gyms}
    for number in range(rounds):
        for name in list(gyms)[:: 1 if number % 2 else -1]:
            found[name].append(measure(gyms[name], sources(count, f"{measure.__name__} {number}")))
    return found


def main() -> None:
    """Print both measures of both sides, with what the service adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LocalPool(OPTIONS) as pool, service(Path(folder)) as gym:
        gyms: dict[str, Gym] = {"pool": pool, "service": gym}
        for each in gyms.values():
            together(each, sources(4, "first"))
        single = measured(gyms, one_by_one, given.rounds * given.evaluations, 1)
        pace = measured(gyms, together, given.rounds, given.evaluations)
    more = [there - here for there, here in zip(single["service"], single["pool"], strict=True)]
    share = [there / here for there, here in zip(pace["service"], pace["pool"], strict=True)]
    table = Table(
        "measure", "pool", "service", "difference", "bar", title=f"{given.rounds} rounds of {given.evaluations}"
    )
    rows = (
        ("ms an evaluation, one at a time", single, f"{statistics.median(more):+.1f} ms", "at most +10 ms"),
        (f"evaluations per second, {JUDGES} judges", pace, f"{statistics.median(share):.3f} x", "at least 0.97 x"),
    )
    for name, found, difference, bar in rows:
        here, there = (f"{statistics.median(found[side]):.2f}" for side in gyms)
        table.add_row(name, here, there, difference, bar)
    Console().print(table)
    for unit, values in (("ms", more), ("x", share)):
        mean, error = statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5
        half = t.ppf(0.975, len(values) - 1) * error
        print(f"mean of {len(values)} differences: {mean:.3f} {unit}, {mean - half:.3f} to {mean + half:.3f}")


if __name__ == "__main__":
    main()
