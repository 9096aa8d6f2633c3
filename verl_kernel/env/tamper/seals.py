# SPDX-License-Identifier: Apache-2.0
"""Seals of events: when an event happens, its digest is written at once into a pipe that the judge reads.

The trace of a forward lies in the candidate's process until the forward has ended, so the candidate could edit it. A
digest in the pipe cannot be taken back: an edited trace does not match its seals.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress

from verl_kernel.env.trace import TraceEvent


class Sealer:
    """A runner's end of the pipe; in a judge or a zygote it has no descriptor, and nothing is sealed."""

    def __init__(self) -> None:
        self.fd = -1

    def seal(self, event: TraceEvent) -> None:
        """Write an event's digest to the pipe."""
        if self.fd >= 0:
            os.write(self.fd, seals([event]))


SEALER = Sealer()
"""This process's end."""


class SealedEvents(list[TraceEvent]):
    """A list of events that seals each event when it is added."""

    def append(self, event: TraceEvent) -> None:
        """Add and seal an event."""
        super().append(event)
        SEALER.seal(event)


class SealReader:
    """A judge's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._seals = bytearray()
        os.set_blocking(fd, False)

    def drain(self) -> None:
        """Read all available seals, so that the runner never waits for a full pipe; close a pipe that has ended."""
        with suppress(BlockingIOError):
            while data := os.read(self.fd, 1 << 16):
                self._seals += data
            self.close()

    def take(self) -> bytes:
        """Return the seals since the previous call."""
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
    """Return the seals of events: four bytes (CRC-32) for each."""
    return b"".join(zlib.crc32(repr(event).encode("utf-8", "replace")).to_bytes(4, "little") for event in events)
