# SPDX-License-Identifier: Apache-2.0
"""What one forward did on its device: a list of events, one per device kernel.

Both devices write this form and both clocks read it. Events cross the process border as JSON and are
validated on reading, because the runner's word is not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

KINDS = ("launch", "op")


@dataclass(frozen=True)
class TraceEvent:
    """One Triton launch or one torch op that needs a device kernel.

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
    """Counted device-memory traffic."""
    flops: int = 0
    """Counted floating-point operations, those of `half_flops` included."""
    half_flops: int = 0
    """Those of matrix products on 16-bit operands, which run on tensor cores."""
    source: str = ""
    """File that defines the kernel; "" for ops."""
    failed: bool = False
    """The launch raised."""
    stored: int | None = None
    """Bytes that the launch stored; None where that cannot be seen, and for ops."""
    computed: int | None = None
    """Those of them that are neither moved from where the launch loaded them nor constant."""
    priced: bool = True
    """Whether the op's cost is known (it has a price); a forward with an op of unknown cost has no simulated time."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not all(type(text) is str for text in (self.name, self.source)):
            raise ValueError("a trace event needs a kind (launch or op), a name and a source, all strings")
        if type(self.grid) is not tuple or len(self.grid) > 3 or type(self.failed) is not bool:
            raise ValueError("a trace event needs a grid of at most three integers and a boolean `failed`")
        self._check_shares()
        counts = (*self.grid, self.bytes, self.flops, self.half_flops)
        if not all(type(count) is int and 0 <= count < 2**63 for count in counts) or self.half_flops > self.flops:
            raise ValueError("the counts of a trace event must be integers of at least 0, half_flops at most flops")

    def _check_shares(self) -> None:
        known = (self.stored, self.computed)
        if known != (None, None) and not all(type(count) is int and 0 <= count < 2**63 for count in known):
            raise ValueError("`stored` and `computed` of a trace event must both be null or integers of at least 0")
        if (self.computed or 0) > (self.stored or 0) or type(self.priced) is not bool:
            raise ValueError("a trace event needs a boolean `priced`, and `computed` of at most `stored`")

    def to_json(self) -> dict[str, object]:
        """Fields as JSON values."""
        return {**asdict(self), "grid": list(self.grid)}

    @classmethod
    def from_json(cls, value: object) -> TraceEvent:
        """Rebuild an event from untrusted JSON.

        Raises:
            ValueError: `value` is not what `to_json` writes.
        """
        if not isinstance(value, dict) or value.keys() != cls.__dataclass_fields__.keys():
            raise ValueError(f"a trace event must be an object with the keys {', '.join(cls.__dataclass_fields__)}")
        if not isinstance(value["grid"], list):
            raise ValueError("the grid of a trace event must be a list")
        event = cls(**{**value, "grid": tuple(value["grid"])})
        f"{event.name}{event.source}".encode()  # raises for a lone surrogate, which no file of results could hold
        return event


def dump_events(events: Sequence[TraceEvent]) -> list[dict[str, object]]:
    """The events of one forward as JSON values."""
    return [event.to_json() for event in events]


def load_events(value: object) -> list[TraceEvent]:
    """Read what `dump_events` wrote.

    Raises:
        ValueError: `value` is no list of events.
    """
    if not isinstance(value, list):
        raise ValueError("a trace must be a list of events")
    return [TraceEvent.from_json(item) for item in value]
