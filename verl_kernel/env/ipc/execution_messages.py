# SPDX-License-Identifier: Apache-2.0
"""Messages to and from the executing process, which runs the candidate's compiled kernels on the CPU.

The runner sends `Launch` for each launch of a forward and waits for `Launched`. The judge sends `Begin` before a
forward and `Report` after it; the executing process answers `Report` with `Reported`. The judge believes this report
about launches, and not the runner. The executing process asks the judge for the code of each new launch (`messages`).
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from verl_kernel.env.emulator.work import PRODUCTS

# Comparison of two tallies of a launch: from two samples, two runs or two sizes.
#
# Judges with GPUs import this module too; they execute no kernels on the CPU, and llvmlite may be missing there.


_NEGLIGIBLE = 0.01
"""Share of all bytes, or of all instructions, below which an entry is not compared."""


BY_VALUE = {"operations (special)": 3.0}
"""Entries that depend on values, and how much further they may differ than others: libdevice's tanh takes an
exponential or a polynomial, as its argument is."""


def furthest(first: Tally, second: Tally) -> tuple[str, float]:
    """Return the entry in which two tallies of a launch differ most, and the difference over the larger number.

    Differences of entries in `BY_VALUE` weigh less.
    """
    apart = {"nothing": 0.0}
    issued = _NEGLIGIBLE * max(first["operations"]["issue"], second["operations"]["issue"])
    for unit, count in first["operations"].items():
        apart[f"operations ({unit})"] = _apart(count, second["operations"][unit], 0 if unit in PRODUCTS else issued)
    for column, what in enumerate(("read", "asked to read", "written", "asked to write"), 1):
        negligible = _NEGLIGIBLE * max(sum(area[column] for area in each["areas"].values()) for each in (first, second))
        for name in {**first["areas"], **second["areas"]}:
            count, there = (each["areas"].get(name, [0] * 5)[column] for each in (first, second))
            apart[f"bytes of {name} that are {what}"] = _apart(count, there, negligible)
    return max(apart.items(), key=lambda item: item[1] / BY_VALUE.get(item[0], 1.0))


def _apart(first: float, second: float, negligible: float) -> float:
    larger = max(first, second)
    return abs(first - second) / larger if larger > negligible else 0.0


class Tally(TypedDict):
    """Counts of one launch, for comparisons between runs and sizes (`execution.tally`)."""

    kernel: str
    grid: list[int]
    operations: dict[str, int]
    """Operations by unit (`emulator.work.units`)."""
    useful: int
    """Bytes that lanes accessed in global memory."""
    offered: int
    """Like `useful`, plus the bytes of lanes whose mask was off."""
    lanes: int
    """`useful` over the share of lanes that masks let through, idle instructions of a short row included, where a
    tensor weighs as much as the distinct bytes of it that are accessed."""
    stores: list[int]
    """`useful` and `offered` of stores alone."""
    voids: dict[str, int]
    """By unit: operations of products on rows, columns and positions along k that contain only zeros."""
    types: dict[str, str]
    """Types of the arguments, as Triton names them."""
    areas: dict[str, list[int]]
    """By argument, in bytes: size of its tensor's memory, distinct bytes read, all reads, distinct bytes written, all
    writes."""
    guessed: list[str]
    """Arguments that hold integers of unknown value which the launch has read."""


BUSY_UNITS = ("issue", "integer", "special", "shared", "double")
"""Units of an SM that work side by side, in the order of a cost's numbers (`emulator.work.costs`)."""


class Line(TypedDict):
    """What the instructions of one source line request from one tensor."""

    line: int | None
    """Line of the candidate's file; None for code of another file."""
    kind: Literal["load", "store", "atomic"]
    area: int
    """The number of the area that holds the tensor."""
    asked: int
    """Bytes that lanes access."""
    sectors: int
    """Sectors of 32 bytes that this takes, counted by warp."""
    needed: int
    """Sectors that it would take if the lanes of each warp accessed consecutive elements."""


class Explained(TypedDict):
    """Why a launch takes its time (`execution.explained`), and its steps with one count changed, [] if without effect.

    Only profiles read it.
    """

    names: dict[str, int]
    """By argument, the number of the area that holds its tensor."""
    lines: list[Line]
    busy: dict[str, int]
    """By unit (`BUSY_UNITS`), its time in instructions of single threads issued in that time."""
    multiplied: list[int]
    """Operations of multiplications and additions outside of tensor cores, and the time of the busiest unit without
    them and without what brings their factors; zeros for a launch that computes less than it moves."""
    coalesced: list[dict[str, Any]]
    """Fields of `trace.Step` if the lanes of each warp accessed consecutive elements."""
    unspilled: list[dict[str, Any]]
    """The same if no register were spilled."""
    once: dict[str, list[dict[str, Any]]]
    """The same, by argument, if each byte of its tensor were moved once; by each SM, if blocks share it."""


class Work(TypedDict):
    """The work of a launch as fields of a `trace.TraceEvent`, and its tally."""

    variant: str
    """`Unit.digest()` of the launch."""
    bytes: int
    flops: int
    half_flops: int
    stored: int
    computed: int
    steps: list[dict[str, Any]]
    """Fields of `trace.Step`."""
    reads: list[tuple[int, int, int, int]]
    """The number of a piece of the arena, the bytes of it that were read, the first one, and the end of the last one,
    counted from its start."""
    writes: list[tuple[int, int, int, int]]
    """The same for bytes that were written."""
    tally: Tally
    explained: Explained | None
    """None for a launch like an earlier one of this process."""


Fresh = tuple[int, int, list[tuple[int, int]]]
"""An area that was allocated uninitialised in this forward: the number of the area, the number of the allocation, and
the pieces of it that torch has written since the previous message."""


class LaunchRequest(TypedDict):
    """One launch; its tensors lie in the arena, memory that runner and executing process share."""

    unit: dict[str, Any]
    """Fields of `compilation.description.Unit`."""
    grid: list[int]
    arguments: dict[str, Any]
    """By parameter: numbers, null, nested lists, `{"float": text}`, `{"tensor": offset}`, `{"descriptor": ...}`."""
    areas: list[Any]
    """Offset and length, in bytes, of each piece of the arena that the launch may touch. If launches are sampled, a
    tensor without data also has its element type, and its offset is an address; a tensor argument is then given by the
    number of its area and the offset in the area."""
    is_tried: bool
    """Whether an autotuner tries a configuration: such a launch does not belong to the forward."""
    kept: list[Literal["computes", "moves", "constant"]] | None
    """Kinds of stores that an ablation keeps (`emulator.flow.origins`); null for all."""
    pointers: list[tuple[int, int]]
    """Pairs of offsets: a word in a table of addresses, and the place that it points to."""
    fresh: list[Fresh]
    views: list[tuple[int, int]]
    """For each area, offset and length of the part that the launch's tensors cover."""


class RunLaunch(TypedDict):
    """Run a launch; answered by `Launched`."""

    launch: LaunchRequest


class Launched(TypedDict):
    """The work of a launch, or why it did not finish."""

    failure: str | None
    work: Work | None
    base: int
    """Address of the arena in the executing process: tables of addresses may still contain such addresses."""
    changed_again: list[int]
    """Numbers of the areas that a second launch on the same tensors changed once more; of the first launch of a kernel
    that an autotuner tries."""


Shows = Literal["nothing", "variation", "all"]
"""What a forward can show about its stores (computed, moved or constant). An ablation shows nothing. Inputs at the ends
of their range only show that a store is not constant: a computed maximum, for example, may equal a loaded value there.
"""


class Begin(TypedDict):
    """Begin a forward: forget earlier launches, and draw the order of programs from the number `begin`. No answer."""

    begin: int
    new_size: bool
    """Whether what earlier forwards showed of stores is forgotten, as they had inputs of another size."""
    watch: bool
    """Whether memory is checked for races, uninitialised reads and accesses outside of views."""
    refuses: bool
    """Whether a launch stops at such a finding."""
    backwards: bool
    """Whether the drawn order of programs is reversed."""
    shows: Shows
    sampled: bool
    """Whether launches are sampled, on tensors without data."""


class Report(TypedDict):
    """Ask for the launches since the forward began, from this one on; answered by `Reported`."""

    report: int


ALWAYS_BEYOND = "always_beyond"
"""Kind of a launch that stopped at an access beyond its tensors which no value in memory could have led elsewhere."""


class Stopped(TypedDict):
    """The reason why a launch did not finish."""

    kind: str
    """`refused` (by the compiler), `unknown` (the emulator has no definition), `unreadable`, or a kind of `Fault`."""
    kernel: str
    message: str
    line: int | None
    """Line of the candidate's file."""


class Reported(TypedDict):
    """The work of the forward's launches, in order, and the first launch that did not finish."""

    works: list[Work]
    """As many as fit into one message."""
    left: int
    """How many more there are."""
    stopped: Stopped | None
    not_watched: list[str]
    """Sentences: which launches were not checked for races although they should have been."""
    found: list[Stopped]
    """Races and uninitialised reads, if launches do not stop at them."""
