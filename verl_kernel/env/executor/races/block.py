# SPDX-License-Identifier: Apache-2.0
"""One block of a watched launch, with the words that native code reads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.sites import Site
from verl_kernel.env.executor.races.knowledge import Knowledge
from verl_kernel.env.executor.races.memory import Row, cell_bytes


class Block:
    """A block; where blocks run one after the other, they share one.

    Args:
        sites: of the kernel.
        warps: of a block.
        shared: its shared memory.
        place: in the order of blocks.
        is_ordered: whether blocks may learn of each other.
    """

    def __init__(self, sites: Sequence[Site], warps: int, shared: np.ndarray, place: int, is_ordered: bool) -> None:
        ids = np.zeros((2, warps), np.uint32)
        self.ids, self.shared_ids = ids
        """Stamps of its warps; those of shared memory stay the same from one barrier to the next."""
        self.pointers = np.zeros(warps, np.int64)
        """To what each warp knows."""
        self.shared_start = int(shared.ctypes.data)
        self.shared = _shared_row(sites, len(shared)) if warps > 1 else None
        """Stamps of shared memory; None where there is one warp only."""
        self._shared_words = np.array(self.shared.words() if self.shared else [0], np.int64)
        self.known: Knowledge | None = None
        """What its warps know of others, if blocks may learn of each other and it has begun."""
        self.words = np.zeros(context.WATCH_WORDS, np.int64)
        self.words[[context.IS_ORDERED, context.IS_FRESH, context.BLOCK_PLACE]] = is_ordered, 1, place
        self._point()

    def _point(self) -> None:
        for word, array in (
            (context.IDS, self.ids), (context.SHARED_IDS, self.shared_ids), (context.KNOWN, self.pointers),
        ):  # fmt: skip
            self.words[word] = array.ctypes.data
        if self.shared is not None:
            self.words[context.SHARED_ROW] = self._shared_words.ctypes.data
            self.words[context.SHARED_SHIFT] = self.shared.shift

    @property
    def warp(self) -> int:
        """The warp that runs."""
        return int(self.words[context.WARP_NOW])

    @property
    def place(self) -> int:
        """Its place in the order of blocks."""
        return int(self.words[context.BLOCK_PLACE])

    @property
    def clocks(self) -> Knowledge:
        """As `known`, where that must be."""
        assert self.known is not None
        return self.known

    def point_to_clocks(self) -> None:
        """Tell native code where they are."""
        self.pointers[:] = [clock.ctypes.data for clock in self.clocks.clocks]


def _shared_row(sites: Sequence[Site], length: int) -> Row:
    kinds = [context.STORES, context.LOADS]
    kinds += [context.ATOMICS] * any(site.kind == "shared atomic" for site in sites)
    return Row.of(0, length, cell_bytes(sites, "shared"), kinds)


def lane_numbers(address: int) -> list[int]:
    """A number of 64 bits for each lane."""
    return list((ctypes.c_uint64 * 32).from_address(address))


def stored_bytes(address: int, size: int, bits: int) -> np.ndarray:
    """Bytes that each lane stores, from registers one after the other."""
    count, own = size * 8 // bits, bits // 8
    raw = np.frombuffer(ctypes.string_at(address, size * 32), np.uint8)
    return np.asarray(raw.reshape(count, 32, own).transpose(1, 0, 2).reshape(32, size))
