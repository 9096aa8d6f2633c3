# SPDX-License-Identifier: Apache-2.0
"""Tracks which accesses happen before which: vector clocks (Lamport 1978, Mattern 1989) of stamps.

A warp that acquires joins its clock with that of the releasing warp at its release. At a barrier the warps of a block
join their clocks.
"""

from __future__ import annotations

import numpy as np

from verl_kernel.env.emulator.library import context

# `Stamps` takes 5 bytes for each: 80 MiB.
STAMPS = 1 << 24
"""The largest number of stamps in a launch whose blocks may synchronise."""
Clock = np.ndarray
"""For each warp of the launch, its latest stamp that happened before."""


class Stamps:
    """All stamps that were given, and the warps that got them."""

    def __init__(self) -> None:
        self.owners, self.used = np.zeros(STAMPS, np.uint32), np.zeros(STAMPS, np.uint8)
        """The warp that got each stamp, and whether it accessed memory with that stamp."""
        # 0 in a cell: no access yet.
        self.next = 1

    def give(self, first_warp: int, count: int = 1) -> Clock:
        """Give new stamps to consecutive warps (raises OverflowError if there are too few left)."""
        if self.next + count > STAMPS:
            raise OverflowError("there are more barriers and releases than stamps")
        fresh = np.arange(self.next, self.next + count, dtype=np.uint32)
        self.owners[self.next : self.next + count] = np.arange(first_warp, first_warp + count)
        self.next += count
        return fresh

    def latest(self, limit: int, warps: int) -> Clock:
        """Return for each warp its latest stamp, up to `limit`, with which it accessed memory."""
        by_warp = np.zeros(warps, np.uint32)
        numbers = np.flatnonzero(self.used[: limit + 1])
        # Numbers ascend, and the last assignment to an index stays: the latest stamp of each warp.
        by_warp[self.owners[numbers]] = numbers
        return by_warp


class PublishedClocks:
    """The clocks that releases have published, by the address of the release."""

    def __init__(self, max_bytes: int) -> None:
        self._clocks: dict[int, Clock] = {}
        self._bytes_left = max_bytes

    def clock_at(self, address: int) -> Clock | None:
        """Return the clock that was published at an address."""
        return self._clocks.get(address)

    def publish(self, address: int, clock: Clock, replaces: bool) -> None:
        """Publish a clock or merge it with the old one (raises OverflowError beyond the allowed bytes)."""
        old = None if replaces else self._clocks.get(address)
        if address not in self._clocks:
            self._bytes_left -= clock.nbytes
        if self._bytes_left < 0:
            raise OverflowError("what releases tell takes too many bytes")
        # An atomic continues what an earlier release at this address began; a store replaces it.
        self._clocks[address] = clock if old is None or (old <= clock).all() else np.maximum(old, clock)

    def forget(self, address: int) -> None:
        """Remove the clock of an address, as a store that is no release ends what a release began."""
        clock = self._clocks.pop(address, None)
        self._bytes_left += 0 if clock is None else clock.nbytes


class BlockClocks:
    """The vector clocks of one block's warps.

    Args:
        stamps: the launch's stamps.
        published: the clocks that releases of the launch have published.
        index: the block's index in the order of blocks.
        warps: warps of a block.
        launch_warps: warps of the launch.
    """

    def __init__(self, stamps: Stamps, published: PublishedClocks, index: int, warps: int, launch_warps: int) -> None:
        self._stamps, self._published, self.first, self._warps = stamps, published, index * warps, warps
        self.clocks = [np.zeros(launch_warps, np.uint32)] * warps
        """One clock, shared by all warps until one of them acquires another."""
        self.ids, self.shared_ids = np.zeros(warps, np.uint32), np.zeros(warps, np.uint32)
        self._unfenced_reads: dict[int, Clock] = {}
        """Clocks that each warp has read without acquiring; its next fence acquires them."""
        self._fence_clocks: dict[int, Clock] = {}
        """Each warp's clock at its last fence, which its relaxed writes release."""

    def pass_barrier(self) -> None:
        """Join the clocks of all warps, and give each of them a new stamp."""
        clock = self.clocks[0]
        if any(warp_clock is not clock for warp_clock in self.clocks):
            clock = np.maximum.reduce(self.clocks)
        own = slice(self.first, self.first + self._warps)
        # The accesses of the block's own warps up to the barrier happened before, too.
        clock[own] = np.maximum(clock[own], self.ids)
        self.clocks = [clock] * self._warps
        self.ids[:] = self.shared_ids[:] = self._stamps.give(self.first, self._warps)

    def note(self, warp: int, marks: int, addresses: set[int]) -> None:
        """Record an access that may order warps, or a fence."""
        # PTX ISA, "Release and Acquire Patterns": a relaxed read and then a fence acquire; a fence and then
        # a relaxed write release.
        if marks & context.FENCES:
            self._join(warp, self._unfenced_reads.pop(warp, None))
            self._fence_clocks[warp] = self._snapshot(warp)
        if marks & context.READS:
            for address in addresses:
                self._receive(warp, self._published.clock_at(address), bool(marks & context.ACQUIRES))
        if marks & context.WRITES:
            # Without a release or an earlier fence, a write publishes nothing.
            clock = self._snapshot(warp) if marks & context.RELEASES else self._fence_clocks.get(warp)
            for address in addresses:
                if clock is not None:
                    self._published.publish(address, clock, bool(marks & context.REPLACES))
                elif marks & context.REPLACES:
                    self._published.forget(address)

    def _receive(self, warp: int, clock: Clock | None, acquires: bool) -> None:
        if acquires:
            self._join(warp, clock)
        elif clock is not None:
            old = self._unfenced_reads.get(warp)
            self._unfenced_reads[warp] = clock if old is None else np.maximum(old, clock)

    def _join(self, warp: int, clock: Clock | None) -> None:
        if clock is not None and not (clock <= self.clocks[warp]).all():
            self.clocks[warp] = np.maximum(self.clocks[warp], clock)

    def _snapshot(self, warp: int) -> Clock:
        """Return a warp's clock, its own accesses included; its later accesses have a new stamp."""
        # A copy: other warps of the block may share the clock.
        clock: Clock = self.clocks[warp].copy()
        clock[self.first + warp] = self.ids[warp]
        # What the warp does from now on is not covered by this release.
        self.ids[warp] = self._stamps.give(self.first + warp)[0]
        return clock
