# SPDX-License-Identifier: Apache-2.0
"""Plays all trajectories of a run; generation and judging overlap, and both are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from verl_kernel.bench.first_answers import FirstAnswers
from verl_kernel.bench.models.answers import Model
from verl_kernel.bench.options import BenchOptions
from verl_kernel.bench.store import Store
from verl_kernel.bench.suites import SuiteItem
from verl_kernel.bench.trajectories import Judges, Progress, Trajectories
from verl_kernel.reward.profiling import ProfilingReward

_WAITING = 2
"""Extra trajectories in progress per judge, beyond those at the model, so that no judge waits for an answer."""
Job = tuple[SuiteItem, int]
"""A task and the number of a sample."""


async def play_all(
    jobs: Sequence[Job], model: Model, judges: Judges, store: Store, options: BenchOptions, num_judges: int,
    progress: Progress, reward: ProfilingReward | None = None,
) -> None:  # fmt: skip
    """Play all trajectories to their ends; the first error ends the run, and the stored answers stay.

    Raises:
        VerlKernelError: any of its subclasses, e.g. EndpointError if every answer is malformed.
    """
    slots = asyncio.Semaphore(options.requests + _WAITING * num_judges)
    requests, judging = asyncio.Semaphore(options.requests), asyncio.Semaphore(num_judges)
    first_answers = FirstAnswers(store, options.requests)
    trajectories = Trajectories(model, judges, store, options, requests, judging, progress, first_answers, reward)

    async def play(job: Job) -> None:
        async with slots:
            await trajectories.play(*job)

    tasks = [asyncio.create_task(play(job)) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        first_answers.settle()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
