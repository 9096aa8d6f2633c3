# SPDX-License-Identifier: Apache-2.0
"""A launch that has run, as the clock sees it."""

from __future__ import annotations

from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.flow import origins
from verl_kernel.env.executor.work.steps import launch_work
from verl_kernel.env.ipc.execution_messages import Work


def work(count: LaunchCount, buffers: int) -> Work:
    """What it did, told by pieces of the arena, of which it was given `buffers`."""
    done = launch_work(count)
    reads, writes = (
        [(number, size) for number, size in enumerate(sizes[:buffers]) if size] for sizes in (done.reads, done.writes)
    )
    stored, computed = _stored(count)
    return Work(
        bytes=done.bytes, flops=done.flops, half_flops=done.half_flops, stored=stored, computed=computed,
        steps=[dict(vars(step)) for step in done.steps], reads=reads, writes=writes,
    )  # fmt: skip


def _stored(count: LaunchCount) -> tuple[int, int]:
    """Bytes that were stored, and those of stores that compute."""
    items = count.program.instructions
    kinds = {id(items[number]): kind for number, kind in origins.stores(count.program).items()}
    stored = [(site.accesses * site.site.bytes, kinds.get(id(site.site.item))) for site in count.sites]
    return sum(size for size, kind in stored if kind), sum(size for size, kind in stored if kind == "computes")
