# SPDX-License-Identifier: Apache-2.0
"""A launch that has run, as the clock sees it."""

from __future__ import annotations

from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.work.steps import launch_work
from verl_kernel.env.ipc.execution_messages import Tally, Work


def work(count: LaunchCount, told: Tally, areas: int, stored: int, computed: int) -> Work:
    """What it did, told by pieces of the arena, of which it was given `areas`; its tally, and bytes of its stores."""
    done = launch_work(count)
    reads, writes = (
        [(number, size) for number, size in enumerate(sizes[:areas]) if size] for sizes in (done.reads, done.writes)
    )
    return Work(
        bytes=done.bytes, flops=done.flops, half_flops=done.half_flops, stored=stored, computed=computed,
        steps=[step.to_json() for step in done.steps], reads=reads, writes=writes, tally=told,
    )  # fmt: skip
