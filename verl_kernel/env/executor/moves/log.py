# SPDX-License-Identifier: Apache-2.0
"""What some blocks of a launch load and store, written down while they run."""

from __future__ import annotations

import ctypes
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.sites import WORDS, Site
from verl_kernel.env.executor.ptx.program import Instruction

_RECORDS = 1 << 14
"""Accesses by a warp that are written down of a block; of what comes later nothing is known."""
_TURNS, _LOADS = 4, 16
"""Stores of a place that are looked at, and loads that a block is taken to have at hand; older ones are forgotten."""
_NOTHING = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_void_p,
)(lambda *_: None)  # fmt: skip
_IS_LOAD = (context.LOAD, context.STRONG_LOAD)

Array = np.ndarray
Widths: TypeAlias = "Sequence[tuple[int, int, int]]"


@dataclass(frozen=True)
class Access:
    """What a place in the source did at a time, over all warps: each address once, in order."""

    place: object
    """As `place_of` an instruction."""
    addresses: Array
    """Of its elements."""
    values: Array
    """That were loaded, or lay there before a store: bytes of each element."""


def place_of(item: Instruction) -> object:
    """What all instructions share that one access of the source has become."""
    return item.place.text if item.place else id(item)


class BlockLog:
    """Of one block."""

    def __init__(self, sites: Sequence[Site], warps: int) -> None:
        self._sites = sites
        self._log = np.empty(context.LOG_HEAD + _RECORDS * context.RECORD_WORDS, np.int64)
        self._log[[context.LOG_USED, context.LOG_ROOM]] = 0, _RECORDS
        self._ids = np.zeros(warps, np.uint32)
        self._words = np.zeros(context.WATCH_WORDS, np.int64)
        self._words[context.LOG] = self._log.ctypes.data
        self._words[context.IS_ORDERED] = 1  # barriers are told to the function that does nothing
        self._words[context.CALL] = ctypes.cast(_NOTHING, ctypes.c_void_p).value or 0

    def begin(self, launch: Array) -> None:
        """Write down from now on what a block does whose context is `launch`."""
        launch[context.WATCH] = self._words.ctypes.data

    def stores(
        self, first_site: int, widths: Widths, draw: np.random.Generator
    ) -> Iterator[tuple[Access, list[Access]]]:
        """Stores, some turns of each place, with the loads that came last before them.

        Args:
            first_site: address of the words of the first site.
            widths: of buffers, the address, the length and bytes of an element; 0 if these are not known.
            draw: chooses the turns.
        """
        records = self._records()
        groups = self._grouped(records, first_site)
        is_load = np.isin(records[:, context.RECORD_KIND] & 255, _IS_LOAD)
        loads = [numbers for numbers in groups if is_load[numbers[0]]]
        starts, known = [int(numbers[0]) for numbers in loads], dict[int, Access]()
        for numbers in self._chosen([numbers for numbers in groups if not is_load[numbers[0]]], records, draw):
            last = bisect(starts, int(numbers[0]))
            before = range(max(0, last - _LOADS), last)
            for load in before:
                if load not in known:
                    known[load] = self._access(records, loads[load], first_site, widths)
            yield self._access(records, numbers, first_site, widths), [known[load] for load in before]

    def _records(self) -> Array:
        used = int(self._log[context.LOG_USED])
        return self._log[context.LOG_HEAD :].reshape(_RECORDS, context.RECORD_WORDS)[:used]

    def _grouped(self, records: Array, first_site: int) -> list[Array]:
        """Numbers of the records of each place and turn, by the first of them."""
        sites = (records[:, context.RECORD_SITE] - first_site) // 8 // WORDS
        places: dict[object, int] = {}
        keys = [(place_of(site.item), site.kind) for site in self._sites]
        known = [places.setdefault(key, len(places)) for key in keys]
        place = np.array(known or [0])[sites]
        turn = _counted(sites * (len(self._ids) + 1) + records[:, context.RECORD_WARP])
        _, group = np.unique(np.stack([place, turn]), axis=1, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        cuts = np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1
        return sorted(np.split(order, cuts), key=lambda numbers: int(numbers[0])) if len(order) else []

    def _chosen(self, stores: list[Array], records: Array, draw: np.random.Generator) -> list[Array]:
        by_site: dict[int, list[Array]] = {}
        for numbers in stores:
            by_site.setdefault(int(records[numbers[0], context.RECORD_SITE]), []).append(numbers)
        return [
            some[index]
            for some in by_site.values()
            for index in draw.choice(len(some), min(_TURNS, len(some)), replace=False)
        ]

    def _access(self, records: Array, numbers: Array, first_site: int, widths: Widths) -> Access:
        words = records[numbers, context.RECORD_KIND]
        found = [_elements(records[numbers[words == word]], widths) for word in sorted({*map(int, words)})]
        width = min(size for size, _, _ in found)
        addresses = np.concatenate([_split(at, raw.shape[1], width) for _, at, raw in found])
        values = np.concatenate([raw.reshape(-1, width) for _, _, raw in found])
        addresses, first = np.unique(addresses, return_index=True)
        site = self._sites[(int(records[numbers[0], context.RECORD_SITE]) - first_site) // 8 // WORDS]
        return Access(place_of(site.item), addresses, values[first])


def _counted(keys: Array) -> Array:
    """How often each key has come before."""
    order = np.argsort(keys, kind="stable")
    is_first = np.diff(keys[order], prepend=-1) != 0
    numbers = np.arange(len(keys))
    counts = np.empty_like(numbers)
    counts[order] = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return counts


def _elements(records: Array, widths: Widths) -> tuple[int, Array, Array]:
    """Bytes of an element, and addresses and bytes of all lanes of records of one kind."""
    kind, count_of = int(records[0, context.RECORD_KIND]), len(records)
    own, count = (kind >> 8 & 255) // 8, kind >> 16
    chosen = (records[:, [context.RECORD_LANES]] >> np.arange(32) & 1).astype(bool)
    places = records[:, context.RECORD_PLACES : context.RECORD_PLACES + 32]
    raw = np.ascontiguousarray(records[:, context.RECORD_VALUES :]).view(np.uint8)[:, : 32 * own * count]
    raw = raw.reshape(count_of, count, 32, own).transpose(0, 2, 1, 3)[chosen].reshape(-1, own * count)
    firsts = places[np.arange(count_of), chosen.argmax(axis=1)]
    return min(_width(int(first), own, count, widths) for first in set(firsts.tolist())), places[chosen], raw


def _width(place: int, own: int, count: int, widths: Widths) -> int:
    """Bytes of an element of what lies at a place, no more than an access of `count` times `own` bytes."""
    size = next((width for start, length, width in widths if 0 <= place - start < length), own)
    return min(size or own, own * count)


def _split(addresses: Array, length: int, size: int) -> Array:
    """Addresses of the pieces of so many bytes in what is longer."""
    steps = np.arange(0, length, size)
    return np.asarray((addresses[:, None] + steps[None, :]).reshape(-1))


def memory_at(addresses: Array, width: int, buffers: Widths) -> Array:
    """What lies at addresses now, so many bytes each; zeros where no buffer is."""
    found = np.zeros((len(addresses), width), np.uint8)
    for start, length, _ in buffers:
        inside = np.flatnonzero((addresses >= start) & (addresses + width <= start + length))
        if len(inside):
            view = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(start))
            found[inside] = view[(addresses[inside] - start)[:, None] + np.arange(width)[None, :]]
    return found
