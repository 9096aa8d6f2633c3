# SPDX-License-Identifier: Apache-2.0
"""The trace of a forward: a list of events, one per Triton launch and per torch op that needs a device kernel.

Both devices write this form and both clocks read it. Events travel from the runner to the judge as JSON and are
validated when they are read, because the runner is not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("launch", "op")
ACCESSES = ("contiguous", "mixed", "reduction", "scan", "norm", "unaligned")
"""Kinds of memory access of a step; each reaches a different share of a GPU's bandwidth (`machine.constants`)."""
UNITS = ("fma", "matmul", "convolution", "direct", "transposed", "half", "tf32")
"""Units that do a step's products; each reaches a different share of a peak (`machine.machine`)."""


def _are_counts(*values: object) -> bool:
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _are_rows(value: object, length: int) -> bool:
    """Whether a value is a tuple of tuples of so many counts."""
    if type(value) is not tuple or not all(type(row) is tuple and len(row) == length for row in value):
        return False
    return _are_counts(*(count for row in value for count in row))


_NO_COUNTS = ("access", "unit", "rereads", "returns")
"""Fields of a step that are no counts."""


@dataclass(frozen=True)
class Step:
    """A phase of an event: within a step memory traffic and arithmetic overlap; steps run one after another.

    Raises:
        ValueError: a field has the wrong type, an unknown value or is negative.
    """

    bytes: int = 0
    """Device-memory traffic in bytes; each pass over the data counts."""
    access: str = "contiguous"
    """One of `ACCESSES`."""
    instructions: int = 0
    """Instructions of single threads."""
    flops: int = 0
    """Floating-point operations of products, including those on padding."""
    unit: str = "matmul"
    """One of `UNITS`."""
    intensity: int = 0
    """Products per operand that a tile reads; 0 if there are enough to reach the peak."""
    blocks: int = 0
    """Thread blocks that share the work evenly; 0 for as many as the GPU can use."""
    warps: int = 4
    """Warps per block."""
    in_flight: int = 0
    """Bytes that a block requests before it waits for them; 0 if there are enough to reach the bandwidth."""
    block_ns: int = 0
    """Shortest time of a block, in nanoseconds."""
    l2_bytes: int = 0
    """Bytes that all blocks read and write, each repetition counted; if smaller than `bytes`, `bytes` count."""
    repeated_bytes: int = 0
    """Further device-memory traffic in bytes, because blocks read again what L2 could not keep."""
    private_bytes: int = 0
    """Bytes that L2 would have to keep for each block."""
    shared_bytes: int = 0
    """Bytes that L2 would have to keep for all blocks together."""
    rereads: tuple[tuple[int, int], ...] = ()
    """Pairs: bytes that blocks moved between two reads of the same data, and bytes of that data."""
    returns: tuple[tuple[int, int], ...] = ()
    """The same where all blocks run at once, of data that another block read before."""
    serial: int = 1
    """How many blocks' times follow one another, as blocks wait for each other."""
    kernels: int = 1
    """Device kernels that begin in this step; 0 if the step continues the kernel of the previous one."""

    def __post_init__(self) -> None:
        counts = {name: value for name, value in vars(self).items() if name not in _NO_COUNTS}
        if not _are_counts(*counts.values()) or self.warps == 0:
            raise ValueError("the counts of a step must be integers of at least 0, and warps at least 1")
        if not all(_are_rows(pairs, 2) for pairs in (self.rereads, self.returns)):
            raise ValueError("rereads and returns of a step must be pairs of integers of at least 0")
        if self.access not in ACCESSES or self.unit not in UNITS:
            raise ValueError("a step needs an access and a unit that the machine model knows")

    @classmethod
    def from_json(cls, value: object) -> Step:
        """Rebuild a step from untrusted JSON.

        Raises:
            ValueError: `value` is not what `to_json` returns.
        """
        if not isinstance(value, dict) or value.keys() != cls.__dataclass_fields__.keys():
            raise ValueError(f"a step must be an object with the keys {', '.join(cls.__dataclass_fields__)}")
        pairs = {name: value[name] for name in ("rereads", "returns")}
        for again in pairs.values():
            if not isinstance(again, list) or not all(isinstance(pair, list) for pair in again):
                raise ValueError("rereads and returns of a step must be lists of lists")
        return cls(**{**value, **{name: tuple(map(tuple, again)) for name, again in pairs.items()}})

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {**vars(self), "rereads": list(map(list, self.rereads)), "returns": list(map(list, self.returns))}


@dataclass(frozen=True)
class TraceEvent:
    """A Triton launch, or a torch op that needs a device kernel.

    Raises:
        ValueError: a field has the wrong type or is negative.
    """

    kind: str
    """`launch` (Triton) or `op` (torch)."""
    name: str
    """Name of the kernel function, or of the op with its overload (`aten::add.Tensor`)."""
    grid: tuple[int, ...] = ()
    """Programs along each axis of a launch; () for ops."""
    bytes: int = 0
    """Counted device-memory traffic in bytes."""
    flops: int = 0
    """Counted floating-point operations, including `half_flops`."""
    half_flops: int = 0
    """Operations of matrix products on 16-bit operands, which run on tensor cores."""
    source: str = ""
    """File that defines the kernel; "" for ops."""
    failed: bool = False
    """Whether the launch raised an exception."""
    stored: int | None = None
    """Bytes that the launch stored; None for ops, and if the device does not see stores."""
    computed: int | None = None
    """Bytes among `stored` that were computed: neither constant nor copied from what the launch loaded."""
    priced: bool = True
    """Whether the op's cost is known (it has a price); a forward with an op of unknown cost has no simulated time."""
    steps: tuple[Step, ...] = ()
    """The GPU's steps for this event, in order; () if bytes and operations suffice."""
    host_us: int = 10
    """Microseconds that the host needs to issue the event."""
    recent: tuple[tuple[int, int], ...] = ()
    """Pairs: bytes read again of data that earlier events of the forward used, and the bytes moved since then."""
    touched: tuple[tuple[int, int, int], ...] = ()
    """Triples: number of a tensor within the forward, and bytes of it that were read and written. No time is computed
    from it."""
    given: int = 0
    """Bytes of an op's tensors, and of the storages that hold them in `held`: less where it is given a part of some."""
    held: int = 0
    variant: str = ""
    """Identifies the compiled kernel that a launch needs; "" for ops, and if nothing is compiled."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not all(type(text) is str for text in (self.name, self.source, self.variant)):
            raise ValueError("a trace event needs a kind (launch or op), a name, a source and a variant, all strings")
        if type(self.grid) is not tuple or len(self.grid) > 3 or type(self.failed) is not bool:
            raise ValueError("a trace event needs a grid of at most three integers and a boolean `failed`")
        self._check_shares()
        self._check_steps()
        counts = (*self.grid, self.bytes, self.flops, self.half_flops, self.host_us, self.given, self.held)
        if not _are_counts(*counts) or self.half_flops > self.flops:
            raise ValueError("the counts of a trace event must be integers of at least 0, half_flops at most flops")

    def _check_shares(self) -> None:
        shares = (self.stored, self.computed)
        if shares != (None, None) and not _are_counts(*shares):
            raise ValueError("`stored` and `computed` of a trace event must both be null or integers of at least 0")
        if (self.computed or 0) > (self.stored or 0) or type(self.priced) is not bool:
            raise ValueError("a trace event needs a boolean `priced`, and `computed` of at most `stored`")

    def _check_steps(self) -> None:
        if type(self.steps) is not tuple or not all(type(step) is Step for step in self.steps):
            raise ValueError("the steps of a trace event must be steps")
        if not _are_rows(self.recent, 2) or not _are_rows(self.touched, 3):
            raise ValueError("recent reads must be pairs, and touched tensors triples, of integers of at least 0")

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        steps, rows = [step.to_json() for step in self.steps], (self.recent, self.touched)
        recent, touched = ([list(row) for row in some] for some in rows)
        return {**vars(self), "grid": list(self.grid), "steps": steps, "recent": recent, "touched": touched}

    @classmethod
    def from_json(cls, value: object) -> TraceEvent:
        """Rebuild an event from untrusted JSON.

        Raises:
            ValueError: `value` is not what `to_json` writes.
        """
        if not isinstance(value, dict) or value.keys() != cls.__dataclass_fields__.keys():
            raise ValueError(f"a trace event must be an object with the keys {', '.join(cls.__dataclass_fields__)}")
        lists = [value[key] for key in ("grid", "steps", "recent", "touched")]
        if not all(isinstance(item, list) for item in lists):
            raise ValueError("grid, steps, recent reads and touched tensors of a trace event must be lists")
        if not all(isinstance(row, list) for rows in lists[2:] for row in rows):
            raise ValueError("recent reads and touched tensors of a trace event must be lists of lists")
        grid, steps = tuple(lists[0]), tuple(map(Step.from_json, lists[1]))
        recent, touched = (tuple(map(tuple, rows)) for rows in lists[2:])
        event = cls(**{**value, "grid": grid, "steps": steps, "recent": recent, "touched": touched})
        f"{event.name}{event.source}{event.variant}".encode()  # raises ValueError for lone surrogates
        return event


def dump_events(events: Sequence[TraceEvent]) -> list[dict[str, object]]:
    """Return the events of one forward as JSON values."""
    return [event.to_json() for event in events]


def load_events(value: object) -> list[TraceEvent]:
    """Rebuild the events that `dump_events` returned.

    Raises:
        ValueError: `value` is not a list of events.
    """
    if not isinstance(value, list):
        raise ValueError("a trace must be a list of events")
    return [TraceEvent.from_json(item) for item in value]
