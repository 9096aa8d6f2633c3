# SPDX-License-Identifier: Apache-2.0
"""What judging by a service costs over a pool in the same process, and what jailed references add, in turns.

Run: python benchmarks/bench_service.py [--evaluations 40] [--rounds 6]. All sides have judges of the same options and
take turns, evaluation by evaluation where one is judged at a time; times are of this machine and this moment, so run it
on an idle one. Medians of the differences decide, beside which stand means with Student's 95 % interval.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench_env import REFERENCE, TASK, sources
from rich.console import Console
from rich.table import Table
from scipy.stats import t

from verl_kernel.client import RemoteGym
from verl_kernel.env import GymOptions, LocalPool, Task

JUDGES = 2
OPTIONS = GymOptions(device="cpu", num_judges=JUDGES, memory_checks="refuse", compile_for="sm_90", true_size="auto")
"""Those of `verl-kernel serve`."""
Gym = LocalPool | RemoteGym
Figures = dict[str, list[float]]
_NUMBERS = itertools.count()


@contextmanager
def service(references: str) -> Iterator[RemoteGym]:
    """A client of a service in a process of its own."""
    command = [sys.executable, "-m", "verl_kernel", "serve", "--port=0", "--device=cpu", f"--references={references}"]
    with tempfile.TemporaryDirectory() as folder:
        words = [*command, f"--state={folder}", f"--num-judges={JUDGES}"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            with RemoteGym(process.stderr.readline().split()[-1]) as gym:
                yield gym
        finally:
            process.terminate()
            process.wait()


def one_by_one(gym: Gym, texts: list[str]) -> float:
    """Milliseconds of an evaluation, one at a time."""
    return _milliseconds(gym, TASK, texts)


def new_tasks(gym: Gym, texts: list[str]) -> float:
    """Milliseconds of an evaluation of a task that no judge has seen."""
    return _milliseconds(gym, Task(f"{REFERENCE}# {next(_NUMBERS)}\n", task_id="bench"), texts)


def _milliseconds(gym: Gym, task: Task, texts: list[str]) -> float:
    start = time.monotonic()
    for text in texts:
        assert asyncio.run(gym.evaluate(task, text)).rewarded  # as a training does
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


def more(found: Figures, side: str, over: str) -> list[float]:
    """How much longer one side took than another, round by round."""
    return [there - here for there, here in zip(found[side], found[over], strict=True)]


def share(found: Figures, side: str, over: str) -> list[float]:
    """How many times as many evaluations one side did as another, round by round."""
    return [there / here for there, here in zip(found[side], found[over], strict=True)]


def main() -> None:
    """Print all measures of all sides, with what the service adds and what the jail adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    with ExitStack() as made:
        gyms: dict[str, Gym] = {"pool": made.enter_context(LocalPool(OPTIONS))}
        gyms |= {references: made.enter_context(service(references)) for references in ("trusted", "jailed")}
        for each in gyms.values():
            together(each, sources(4, "first"))
        single = measured(gyms, one_by_one, given.rounds * given.evaluations, 1)
        first = measured(gyms, new_tasks, given.evaluations, 1)
        pace = measured(gyms, together, given.rounds, given.evaluations)
    title = f"{given.rounds} rounds of {given.evaluations}"
    table = Table("measure", *gyms, "service over pool", "jailed over trusted", title=title)
    for name, found, differ, unit in (
        ("ms an evaluation, one at a time", single, more, "ms"),
        ("ms an evaluation of a new task", first, more, "ms"),
        (f"evaluations per second, {JUDGES} judges", pace, share, "x"),
    ):
        sides = [f"{statistics.median(values):.2f}" for values in found.values()]
        table.add_row(name, *sides, *(_interval(differ(found, *pair), unit) for pair in _PAIRS))
    Console(width=200).print(table)


_PAIRS = (("trusted", "pool"), ("jailed", "trusted"))


def _interval(values: list[float], unit: str) -> str:
    mean, error = statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5
    half = t.ppf(0.975, len(values) - 1) * error
    return f"{statistics.median(values):+.3f} {unit} (mean {mean - half:.3f} to {mean + half:.3f})"


if __name__ == "__main__":
    main()
