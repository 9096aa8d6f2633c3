# SPDX-License-Identifier: Apache-2.0
"""Events are sealed when they happen: a digest of each goes at once into a pipe that the judge reads.

The record of a forward lies in the candidate's process until the forward has ended. What has gone through the pipe
cannot be taken back, so a record that was edited does not fit its seals.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress

from verl_kernel.env.trace import TraceEvent


class Sealer:
    """A runner's end of the pipe; before it is opened, in a judge or a zygote, nothing is sealed."""

    def __init__(self) -> None:
        self.fd = -1

    def seal(self, event: TraceEvent) -> None:
        """Send an event's digest."""
        if self.fd >= 0:
            os.write(self.fd, seals([event]))


SEALER = Sealer()
"""This process's end."""


class SealedEvents(list[TraceEvent]):
    """Events in order, each sealed when it is added."""

    def append(self, event: TraceEvent) -> None:
        """Add an event."""
        super().append(event)
        SEALER.seal(event)


class SealReader:
    """A judge's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._seals = bytearray()
        os.set_blocking(fd, False)

    def drain(self) -> None:
        """Read what is there, so that the runner never waits; closes a pipe that has ended."""
        with suppress(BlockingIOError):
            while data := os.read(self.fd, 1 << 16):
                self._seals += data
            self.close()

    def take(self) -> bytes:
        """The seals since the last call."""
        if self.fd >= 0:
            self.drain()
        seals = bytes(self._seals)
        self._seals.clear()
        return seals

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def seals(events: Iterable[TraceEvent]) -> bytes:
    """The seals of events, four bytes each."""
    return b"".join(zlib.crc32(repr(event).encode("utf-8", "replace")).to_bytes(4, "little") for event in events)
