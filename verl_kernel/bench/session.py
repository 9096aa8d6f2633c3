# SPDX-License-Identifier: Apache-2.0
"""Runs a bench from its request to its folder, the cheapest step first, and shows the progress on standard error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from verl_kernel.bench.models.choice import CheckedModel, ModelChoice, OpenedModel
from verl_kernel.bench.models.endpoint import Sampling
from verl_kernel.bench.records import RunHeader
from verl_kernel.bench.request import BenchOptions, make_header
from verl_kernel.bench.self_check import SelfCheck, check_suite, self_check_options, write_self_check
from verl_kernel.bench.store import Store
from verl_kernel.bench.suites import Suite
from verl_kernel.bench.trajectories import Job, goes_on, play_all
from verl_kernel.client import on_device, open_gym
from verl_kernel.env import GymOptions
from verl_kernel.reward.profiling import ProfilingReward

_LINE_S = 30.0
"""Seconds between two lines of progress where standard error is no terminal."""


class RunProgress:
    """Counts what is done; use it as a context manager.

    Args:
        what: name of the things that are counted.
        total: their final number.
        completed: their number at the start, which does not count for the pace.
        console: where the progress is shown; standard error by default.
    """

    def __init__(self, what: str, total: int, completed: int = 0, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._what, self._total, self._completed, self._correct = what, total, completed, 0
        self._before, self._began, self._printed_at = completed, time.monotonic(), time.monotonic()
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(what)),
            *(TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()),
        )
        self._bar = Progress(*columns, console=self._console, speed_estimate_period=120.0)
        self._task = self._bar.add_task("bench", total=total, completed=completed)

    def note(self, is_correct: bool) -> None:
        """Count one more."""
        self._completed += 1
        self._correct += is_correct
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._completed, description=f"{self._correct} correct")
        elif time.monotonic() - self._printed_at > _LINE_S:
            self._printed_at = time.monotonic()
            self._console.print(self.line, highlight=False, soft_wrap=True)

    def shorten(self, turns: int) -> None:
        """Lower the total by `turns`, which will not come."""
        self._total -= turns
        self._bar.update(self._task, total=self._total)

    @property
    def line(self) -> str:
        """Return counts and estimate as a line."""
        pace = (self._completed - self._before) / max(time.monotonic() - self._began, 1e-9)
        remaining = f", about {_duration((self._total - self._completed) / pace)} left" if pace else ""
        return f"{self._completed} of {self._total} {self._what}, {self._correct} correct{remaining}"

    def __enter__(self) -> RunProgress:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._bar.stop()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True)
class Request:
    """The request of a command line."""

    suite: Suite
    model: ModelChoice
    out: Path
    options: BenchOptions = field(default_factory=BenchOptions)
    sampling: Sampling = field(default_factory=Sampling)
    gym: GymOptions = field(default_factory=GymOptions)
    reward: ProfilingReward = field(default_factory=ProfilingReward)


def run_bench(request: Request, say: Callable[[str], None], temperatures: Sequence[float] = ()) -> list[Path]:
    """Play the remaining part of a run, or of one run for each temperature, all by the same server.

    Args:
        request: the request.
        say: called with a sentence that the user should read.
        temperatures: further ones than the request's; none makes a single run in its folder, several a run each in a
            folder of its own there.

    Returns:
        The folders of the runs.

    Raises:
        VerlKernelError: any of its subclasses; finished answers stay stored.
    """
    gym = on_device(request.gym)
    choice = request.model.checked(request.suite, say)
    request = replace(request, suite=choice.suite, options=choice.adapted(request.options), gym=gym)
    requests = [_at(request, temperature) for temperature in temperatures] or [request]
    with ExitStack() as stack:
        stores = [stack.enter_context(Store(one.out, _header(one, choice), one.suite)) for one in requests]
        remaining = [
            [job for job in choice.jobs(request.options) if goes_on(store.history(job), request.options)]
            for store in stores
        ]
        for one, jobs in zip(requests, remaining, strict=True):
            if not jobs:
                say(f"{one.out} is complete: nothing to do.")
        if any(remaining):
            sampled = stack.enter_context(choice.opened(request.out, request.options))
            for one, jobs, store in zip(requests, remaining, stores, strict=True):
                if jobs:
                    asyncio.run(_play(jobs, sampled(one.sampling), store, one))
    return [one.out for one in requests]


def _at(request: Request, temperature: float) -> Request:
    """Return the request at one of several temperatures, in a folder of its own."""
    sampling = replace(request.sampling, temperature=temperature)
    return replace(request, sampling=sampling, out=request.out / f"temperature_{temperature:g}")


def _header(request: Request, choice: CheckedModel) -> RunHeader:
    return make_header(
        request.suite,
        request.options,
        request.sampling,
        request.gym,
        model=choice.name,
        source=choice.source,
        device=request.gym.device,
        versions=choice.versions,
        reward=request.reward,
    )


def run_self_check(suite: Suite, gym: GymOptions, seed: int, out: Path) -> SelfCheck:
    """Judge a suite's references against themselves and store the result."""
    options = self_check_options(on_device(gym))

    async def check() -> SelfCheck:
        with open_gym(options, seed) as pool, RunProgress("references", len(suite.tasks)) as progress:
            return await check_suite(suite, pool, options.num_judges, progress.note)

    report = asyncio.run(check())
    write_self_check(report, out)
    return report


async def _play(jobs: list[Job], opened: OpenedModel, store: Store, request: Request) -> None:
    options, gym = request.options, request.gym
    completed = sum(len(store.history(job)) for job in jobs)
    try:
        with opened.explained():
            await opened.model.check()
        with (
            open_gym(gym, options.seed) as pool,
            RunProgress("turns", len(jobs) * options.turns, completed) as progress,
            opened.explained(),
        ):
            await play_all(
                jobs,
                opened.model,
                pool,
                store,
                options=options,
                num_judges=gym.num_judges,
                progress=progress,
                reward=request.reward,
            )
    finally:
        await opened.model.close()
