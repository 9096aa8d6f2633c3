# SPDX-License-Identifier: Apache-2.0
"""What a runner and its judge say to the process that executes the candidate's compiled kernels.

The runner sends `Launch` for each launch of a forward and waits for `Launched`. The judge sends `Begin` before a
forward and `Report` after it, which the process answers with `Reported`: what the judge believes of a launch comes from
there.
The process asks the judge for the code of each launch that it meets for the first time (`messages`).
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from verl_kernel.env.executor.work import PRODUCTS

# Compares accounts of a launch: of two samples of it, of two runs, of two sizes.
#
# Judges of GPUs import this too, where nothing executes kernels and llvmlite may be missing.


_NEGLIGIBLE = 0.01
"""Part of the bytes, or of the instructions, below which what moves or computes so little is not compared."""


def furthest(one: Tally, other: Tally) -> tuple[str, float]:
    """In what two accounts of a launch are furthest apart, and how far: the difference over the larger number."""
    apart = {"nothing": 0.0}
    issued = _NEGLIGIBLE * max(one["operations"]["issue"], other["operations"]["issue"])
    for unit, done in one["operations"].items():
        apart[f"operations ({unit})"] = _apart(done, other["operations"][unit], 0 if unit in PRODUCTS else issued)
    for place, what in enumerate(("read", "asked to read", "written", "asked to write"), 1):
        least = _NEGLIGIBLE * max(sum(area[place] for area in each["areas"].values()) for each in (one, other))
        for name in {**one["areas"], **other["areas"]}:
            done, there = (each["areas"].get(name, [0] * 5)[place] for each in (one, other))
            apart[f"bytes of {name} that are {what}"] = _apart(done, there, least)
    return max(apart.items(), key=lambda item: item[1])


def _apart(one: float, other: float, least: float) -> float:
    most = max(one, other)
    return abs(one - other) / most if most > least else 0.0


class Tally(TypedDict):
    """A launch in numbers that are compared between runs and sizes (`execution.tally`)."""

    kernel: str
    grid: list[int]
    operations: dict[str, int]
    """By unit (`executor.work.units`)."""
    useful: int
    """Bytes that lanes accessed in global memory."""
    offered: int
    """The same with lanes whose mask was off."""
    stores: list[int]
    """Both, of stores alone."""
    voids: dict[str, int]
    """Of products, operations on rows, columns and places along k that hold zeros only, by unit."""
    types: dict[str, str]
    """Of its arguments, as Triton names them."""
    areas: dict[str, list[int]]
    """By argument: bytes of its tensor's memory; of these, read once, read in all, written once, written in all."""
    guessed: list[str]
    """Arguments whose whole numbers were read though nobody knew them."""


class Work(TypedDict):
    """What a launch did, as fields of a `trace.TraceEvent`, and its tally."""

    bytes: int
    flops: int
    half_flops: int
    stored: int
    computed: int
    steps: list[dict[str, Any]]
    """`trace.Step`."""
    reads: list[tuple[int, int]]
    """Number of a piece of the arena, and bytes of it; likewise the next."""
    writes: list[tuple[int, int]]
    tally: Tally


Fresh = tuple[int, int, list[tuple[int, int]]]
"""Number of an area that was allocated without values in this forward, number of the allocation, and pieces of it that
torch has written since the process was told last."""


class LaunchRequest(TypedDict):
    """One launch. Tensors lie in memory that both processes share (`arena`)."""

    unit: dict[str, Any]
    """`compilation.description.Unit`."""
    grid: list[int]
    arguments: dict[str, Any]
    """By parameter: numbers, null, nested lists, `{"float": text}`, `{"tensor": offset}`, `{"descriptor": ...}`."""
    areas: list[Any]
    """Offset and length of each piece of the arena that the launch may touch. Where launches are sampled, also its
    type of element, if it is a tensor without data; then its place is an address, and a tensor among the arguments is
    told by the number of its area and the offset in it."""
    is_tried: bool
    """Whether it is no part of the forward: an autotuner tries a configuration."""
    kept: list[Literal["computes", "moves", "constant"]] | None
    """Kinds of stores that happen in an ablation (`executor.flow.origins`); null for all."""
    pointers: list[tuple[int, int]]
    """Offsets of words in tables of addresses, and of what these lead to."""
    fresh: list[Fresh]
    views: list[tuple[int, int]]
    """Offset and length of what the tensors given to the launch cover of each area."""


class Launch(TypedDict):
    """Run a launch."""

    launch: LaunchRequest


class Launched(TypedDict):
    """What it did, or why it did not run to its end."""

    failure: str | None
    work: Work | None
    base: int
    """Where the arena lies in the executing process, whose addresses may be left in tables."""


Shows = Literal["nothing", "variation", "all"]
"""What a forward shows of stores: nothing in an ablation; on inputs at their ends no more than that some are not
constant, since a maximum, or a state that decays at once, may be what was loaded there."""


class Begin(TypedDict):
    """Forget what was launched so far; the order of programs is drawn from this number from now on. Has no answer."""

    begin: int
    watch: bool
    """Whether memory is checked: for races, unwritten reads and accesses beyond views."""
    refuses: bool
    """Whether a launch stops where they are found."""
    backwards: bool
    """Whether that order is turned round."""
    shows: Shows
    sampled: bool
    """Whether launches are sampled, on tensors without data."""


class Report(TypedDict):
    """Say what was launched since the forward began."""

    report: Literal[True]


class Stopped(TypedDict):
    """Why a launch did not run to its end."""

    kind: str
    """`refused` (by the compiler), `unknown` (the executor has no definition), `unreadable`, or a kind of `Fault`."""
    kernel: str
    message: str
    line: int | None
    """Of the candidate's file."""


class Reported(TypedDict):
    """What the launches of the forward did, in order, and the first that did not run to its end."""

    works: list[Work]
    stopped: Stopped | None
    not_watched: list[str]
    """Where races were not looked for though they should have been, in sentences."""
    found: list[Stopped]
    """Races and reads of unwritten memory, where no launch stops there."""
