# SPDX-License-Identifier: Apache-2.0
"""What a runner and its judge say to the process that executes the candidate's compiled kernels.

The runner sends `Launch` for each launch of a forward and waits for `Launched`. The judge sends `Report` before
and after forwards, for which the process answers `Reported`: what the judge believes of a launch comes from there.
"""

from __future__ import annotations

from typing import Any, TypedDict


class LaunchRequest(TypedDict):
    """One launch. Tensors lie in memory that both processes share (`arena`)."""

    unit: dict[str, Any]
    """`compilation.description.Unit`."""
    grid: list[int]
    arguments: dict[str, Any]
    """By parameter: numbers, null, nested lists, `{"float": text}`, `{"tensor": offset}`, `{"descriptor": ...}`."""
    areas: list[tuple[int, int]]
    """Offset and length of each piece of the arena that the launch may touch."""


class Launch(TypedDict):
    """Run a launch."""

    launch: LaunchRequest


class Launched(TypedDict):
    """Null if it ran, else why it did not run to its end."""

    failure: str | None


class Report(TypedDict):
    """Say what was launched since the last report, and take what the order of programs is drawn from in the next."""

    report: int


class Stopped(TypedDict):
    """Why a launch did not run to its end."""

    kind: str
    """`refused` (by the compiler), `unknown` (the executor has no definition), `unreadable`, or a kind of `Fault`."""
    kernel: str
    message: str
    line: int | None
    """Of the candidate's file."""


class Reported(TypedDict):
    """The kernels that ran, in order, and the first that did not run to its end."""

    kernels: list[str]
    stopped: Stopped | None
