# SPDX-License-Identifier: Apache-2.0
"""What judge and zygote say to each other, and the first words of a process that a zygote has forked.

A zygote says `Ready`, then answers `Fork` with `Forked`, `Reap` with `Reaped`, `Prepare` with `Prepared`. The forked
process says `Started`; what follows is in `messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict


class _Ready(TypedDict):
    ready: dict[str, str]


class Ready(_Ready, total=False):
    """A zygote's first words: versions by package, and why it cannot serve."""

    unfit: str


class ForkRequest(TypedDict):
    """What a runner has to know of itself; its ends of socket, shared memory and pipes travel along."""

    scratch: str
    memory_bytes: int
    arena_bytes: int
    """Of the memory shared with the process that executes its kernels; 0 where there is none."""
    memory_mb: int
    float32: str


class Fork(TypedDict):
    """Make a runner."""

    fork: ForkRequest


class Forked(TypedDict):
    """The runner's process id."""

    pid: int


class Prepare(TypedDict):
    """Load what dry passes need (`true_size.shape_functions`), so that runners find it loaded."""

    prepare: Literal[True]


class Prepared(TypedDict):
    """It is loaded."""

    prepared: Literal[True]


class Reap(TypedDict):
    """Collect the dead runner with this process id."""

    reap: int


class Reaped(TypedDict):
    """Its exit status, or minus its signal, and its largest memory beyond what it began with."""

    status: int
    grown_mb: int


class _Started(TypedDict):
    isolation: Sequence[str]


class Started(_Started, total=False):
    """A runner's first words, before there is a candidate: what confines it, and why it cannot serve."""

    unfit: str
