# SPDX-License-Identifier: Apache-2.0
"""Finds the stores of a kernel that only move loaded values, from logs of the loads and stores of some blocks."""

from __future__ import annotations

import ctypes
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.lowering.sites import WORDS, Site
from verl_kernel.env.emulator.ptx.program import Instruction

# A log of what some blocks of a launch load and store, written while they run.


_RECORDS = 1 << 14
"""Accesses by a warp that the log of a block holds; later accesses are not logged."""
_MAX_EXECUTIONS, _MAX_LOADS = 4, 16
"""How many executions of a store are compared, and with how many of the loads before it; older loads are ignored."""
_NO_CALLBACK = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3)(
    lambda *_: None
)
"""What native code calls in place of the judging function, as a log looks for no races."""
_IS_LOAD = (context.LOAD, context.STRONG_LOAD)

Array = np.ndarray
Widths: TypeAlias = "Sequence[tuple[int, int, int]]"
"""For each buffer its address, its length and the bytes of an element (0 if not known)."""


@dataclass(frozen=True)
class Access:
    """What one access of the source did in one execution, over all warps: each address once, in order."""

    source: object
    """The access of the source, as `place_of` returns it for an instruction."""
    addresses: Array
    """Addresses of its elements."""
    values: Array
    """Bytes of each element: those loaded, or those in memory before a store."""


def place_of(item: Instruction) -> object:
    """Return a key that all instructions compiled from one access of the source share."""
    return item.source_line.text if item.source_line else id(item)


class BlockLog:
    """The log of one block."""

    def __init__(self, sites: Sequence[Site], warps: int) -> None:
        self._sites = sites
        self._log = np.empty(context.LOG_HEAD + _RECORDS * context.RECORD_WORDS, np.int64)
        # What does not fit is not logged: a block's first accesses say how it stores.
        self._log[[context.LOG_USED, context.LOG_ROOM]] = 0, _RECORDS
        self._ids = np.zeros(warps, np.uint32)
        self._words = np.zeros(context.WATCH_WORDS, np.int64)
        self._words[context.LOG] = self._log.ctypes.data
        self._words[context.IS_ORDERED] = 1  # calls at barriers go to the function that does nothing
        self._words[context.CALL] = ctypes.cast(_NO_CALLBACK, ctypes.c_void_p).value or 0

    def begin(self, launch: Array) -> None:
        """Log from now on what the block with the context `launch` does."""
        launch[context.WATCH] = self._words.ctypes.data

    def stores(
        self, first_site: int, widths: Widths, draw: np.random.Generator
    ) -> Iterator[tuple[Access, list[Access]]]:
        """Yield some executions of each store, with the loads that came last before each.

        Args:
            first_site: address of the words of the first site.
            widths: for each buffer, the address, the length and the bytes of an element (0 if not known).
            draw: chooses the executions.
        """
        records = self._records()
        groups = self._grouped(records, first_site)
        # The verb is in the low byte; bits and count of registers are above.
        is_load = np.isin(records[:, context.RECORD_KIND] & 255, _IS_LOAD)
        loads = [numbers for numbers in groups if is_load[numbers[0]]]
        starts, accesses = [int(numbers[0]) for numbers in loads], dict[int, Access]()
        for numbers in self._chosen([numbers for numbers in groups if not is_load[numbers[0]]], records, draw):
            last = bisect(starts, int(numbers[0]))
            before = range(max(0, last - _MAX_LOADS), last)
            for load in before:
                if load not in accesses:
                    accesses[load] = self._access(records, loads[load], first_site, widths)
            yield self._access(records, numbers, first_site, widths), [accesses[load] for load in before]

    def _records(self) -> Array:
        used = int(self._log[context.LOG_USED])
        return self._log[context.LOG_HEAD :].reshape(_RECORDS, context.RECORD_WORDS)[:used]

    def _grouped(self, records: Array, first_site: int) -> list[Array]:
        """Group the numbers of the records by access and execution; groups are ordered by their first record."""
        sites = (records[:, context.RECORD_SITE] - first_site) // 8 // WORDS
        number_of: dict[object, int] = {}
        keys = [(place_of(site.item), site.kind) for site in self._sites]
        source_numbers = [number_of.setdefault(key, len(number_of)) for key in keys]
        sources = np.array(source_numbers or [0])[sites]
        # The n-th access of a warp at an instruction is of the n-th iteration of its loop.
        executions = _counted(sites * (len(self._ids) + 1) + records[:, context.RECORD_WARP])
        _, group = np.unique(np.stack([sources, executions]), axis=1, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        cuts = np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1
        return sorted(np.split(order, cuts), key=lambda numbers: int(numbers[0])) if len(order) else []

    def _chosen(self, stores: list[Array], records: Array, draw: np.random.Generator) -> list[Array]:
        by_site: dict[int, list[Array]] = {}
        for numbers in stores:
            by_site.setdefault(int(records[numbers[0], context.RECORD_SITE]), []).append(numbers)
        return [
            executions[index]
            for executions in by_site.values()
            # Drawn, so that nobody knows beforehand which iterations are compared.
            for index in draw.choice(len(executions), min(_MAX_EXECUTIONS, len(executions)), replace=False)
        ]

    def _access(self, records: Array, numbers: Array, first_site: int, widths: Widths) -> Access:
        words = records[numbers, context.RECORD_KIND]
        elements = [_elements(records[numbers[words == word]], widths) for word in sorted({*map(int, words)})]
        width = min(size for size, _, _ in elements)
        addresses = np.concatenate([_split(starts, raw.shape[1], width) for _, starts, raw in elements])
        values = np.concatenate([raw.reshape(-1, width) for _, _, raw in elements])
        # Lanes that load one address count once: what they store may be repeated.
        addresses, first = np.unique(addresses, return_index=True)
        site = self._sites[(int(records[numbers[0], context.RECORD_SITE]) - first_site) // 8 // WORDS]
        return Access(place_of(site.item), addresses, values[first])


def _counted(keys: Array) -> Array:
    """Return for each key how often it occurs before its position."""
    order = np.argsort(keys, kind="stable")
    is_first = np.diff(keys[order], prepend=-1) != 0
    numbers = np.arange(len(keys))
    counts = np.empty_like(numbers)
    counts[order] = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return counts


def _elements(records: Array, widths: Widths) -> tuple[int, Array, Array]:
    """Return bytes of an element, and addresses and bytes of all lanes of records of one kind."""
    kind, count_of = int(records[0, context.RECORD_KIND]), len(records)
    register_bytes, count = (kind >> 8 & 255) // 8, kind >> 16
    chosen = (records[:, [context.RECORD_LANES]] >> np.arange(32) & 1).astype(bool)
    addresses = records[:, context.RECORD_ADDRESSES : context.RECORD_ADDRESSES + 32]
    raw = np.ascontiguousarray(records[:, context.RECORD_VALUES :]).view(np.uint8)[:, : 32 * register_bytes * count]
    raw = (
        raw.reshape(count_of, count, 32, register_bytes)
        .transpose(0, 2, 1, 3)[chosen]
        .reshape(-1, register_bytes * count)
    )
    firsts = addresses[np.arange(count_of), chosen.argmax(axis=1)]
    return (
        min(_width(int(first), register_bytes, count, widths) for first in set(firsts.tolist())),
        addresses[chosen],
        raw,
    )


def _width(address: int, register_bytes: int, count: int, widths: Widths) -> int:
    """Return bytes of an element at an address, at most those of an access to `count` times `register_bytes` bytes."""
    size = next((width for start, length, width in widths if 0 <= address - start < length), register_bytes)
    return min(size or register_bytes, register_bytes * count)


def _split(addresses: Array, length: int, size: int) -> Array:
    """Split accesses of `length` bytes into pieces of `size` bytes; returns the addresses of the pieces."""
    steps = np.arange(0, length, size)
    return np.asarray((addresses[:, None] + steps[None, :]).reshape(-1))


def memory_at(addresses: Array, width: int, buffers: Widths) -> Array:
    """Read `width` bytes at each address; zeros where no buffer is."""
    contents = np.zeros((len(addresses), width), np.uint8)
    for start, length, _ in buffers:
        inside = np.flatnonzero((addresses >= start) & (addresses + width <= start + length))
        if len(inside):
            view = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(start))
            contents[inside] = view[(addresses[inside] - start)[:, None] + np.arange(width)[None, :]]
    return contents


# Whether stored values are loaded ones, up to the tolerance of a comparison of outputs.


_MANY = 16
"""From this number of elements on, equal values in another order are taken as no coincidence."""
_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
"""NumPy's types of floats; it has no bfloat16."""
_CLOSE = {"fp16": 2.0**-7, "bf16": 2.0**-7, "fp32": 2.0**-12, "fp64": 2.0**-16}
"""How far values may differ, relative to them and to the mean size of the stored values: a comparison of float32
accepts up to 2e-4, and as much of the other values' size for small numbers."""
WIDTHS = {
    **dict.fromkeys("i1 i8 u8".split(), 1),
    **dict.fromkeys("i16 u16 fp16 bf16".split(), 2),
    **dict.fromkeys("i32 u32 fp32".split(), 4),
    **dict.fromkeys("i64 u64 fp64".split(), 8),
}
"""Bytes of an element by type, as Triton names it; elements of other types are compared as bytes."""


def numbers(raw: Array, kind: str) -> Array:
    """Interpret bytes of elements as values."""
    flat = np.ascontiguousarray(raw)
    if kind == "bf16" and flat.shape[1] == 2:
        return np.asarray((flat.view(np.uint16).reshape(-1).astype(np.uint32) << 16).view(np.float32))
    if kind in _FLOATS and flat.shape[1] == WIDTHS[kind]:
        return np.asarray(flat.view(_FLOATS[kind]).reshape(-1))
    signed = "i" if kind[:1] == "i" and flat.shape[1] in (1, 2, 4, 8) else "u"
    return np.asarray(flat.view(f"{signed}{flat.shape[1]}").reshape(-1))


_BITS = 1e-6
"""Relative difference of floats whose bits are compared as integers: a few steps of float32."""


def moved_from(stored: Array, kind: str, loaded: Sequence[Array]) -> int | None:
    """Find which of several loads the stored values are, in any order except a sorted order that the load has not.

    Args:
        stored: values in the order of their addresses.
        kind: their type.
        loaded: values of each load, in the order of their addresses.

    Returns:
        The number of the load, `len(loaded)` for all loads together, None for none.
    """
    is_float = stored.dtype.kind == "f"
    comparable = [number for number, values in enumerate(loaded) if (values.dtype.kind == "f") == is_float]
    close = _CLOSE.get(kind, 0.0) if is_float else 0.0
    # The last load comes first: a store mostly moves what was loaded just before.
    for number in reversed(comparable):
        if _is_same(stored, loaded[number], close):
            return number
    for number, values in enumerate(loaded):  # the bits of a float stored as an integer, or the other way round
        # Otherwise a float could be moved unseen by storing its bits as an integer.
        if number not in comparable and values.dtype.itemsize == stored.dtype.itemsize:
            bits = stored.view(values.dtype) if not is_float else stored
            floats = values.view(stored.dtype) if is_float else values
            if _is_same(bits, floats, _BITS):
                return number
    together = [loaded[number] for number in comparable]
    if len(together) > 1 and sum(map(len, together)) == len(stored) >= _MANY:
        # All loads of a block together: a concatenation moves.
        return len(loaded) if _is_reordered(stored, np.concatenate(together), close) else None
    return None


def _is_same(stored: Array, loaded: Array, close: float) -> bool:
    if len(stored) == len(loaded):
        return _agree(stored, loaded, close) or (len(stored) >= _MANY and _is_reordered(stored, loaded, close))
    if len(stored) > len(loaded):
        return _is_repeated(stored, loaded, close)
    return len(stored) >= _MANY and not len(loaded) % len(stored) and _is_part(stored, loaded, close)


def _agree(values: Array, expected: Array, close: float) -> bool:
    if close == 0.0:
        return bool(np.array_equal(values, expected))
    with np.errstate(all="ignore"):
        values, expected = values.astype(np.float64), expected.astype(np.float64)
        floor = max(close * _size(values), 1e-30)
        return bool(np.allclose(values, expected, rtol=close, atol=floor, equal_nan=True))


def _size(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite).mean()) if len(finite) else 0.0


def _is_reordered(stored: Array, loaded: Array, close: float) -> bool:
    if not _may_agree(stored, loaded) or not _agree(np.sort(stored), np.sort(loaded), close):
        return False
    # Sorting computes, unless the values were sorted before.
    return not _is_sorted(stored) or _is_sorted(loaded)


def _may_agree(stored: Array, loaded: Array) -> bool:
    """Whether the sums of two arrays are close; sums cost less than sorting."""
    with np.errstate(all="ignore"):
        stored_sum, loaded_sum = (float(np.abs(values.astype(np.float64)).sum()) for values in (stored, loaded))
    # Two in a hundred: far more than values that agree can differ by.
    return not abs(stored_sum - loaded_sum) > 0.02 * max(stored_sum, loaded_sum)


def _is_sorted(values: Array) -> bool:
    return bool(np.all(values[1:] >= values[:-1]) or np.all(values[1:] <= values[:-1]))


def _is_repeated(stored: Array, loaded: Array, close: float) -> bool:
    if len(loaded) == 0 or len(stored) % len(loaded):
        return False
    return _agree(np.sort(stored), np.sort(np.repeat(loaded, len(stored) // len(loaded))), close)


def _is_part(stored: Array, loaded: Array, close: float) -> bool:
    """Whether the stored values are a contiguous run of the loaded ones, or every n-th of them."""
    runs, columns = loaded.reshape(-1, len(stored)), loaded.reshape(len(stored), -1).T
    return any(_agree(stored, piece, close) for piece in (*runs, *columns))


# Follows the first blocks of a launch, and decides for each of its stores whether it moves what the block has loaded.
#
# The static analysis finds what may compute (`flow/origins.py`); it takes `x + 0.0` for arithmetic. Here values count:
# a store moves if its values are those of a load of the block, or of all its loads, within the comparison's tolerance.
# Loads and stores are distinguished by their lines in the source and by the iterations of loops.


BLOCKS, _FEWEST, _ELEMENTS = 16, 2, 64
"""How many blocks of a launch are followed as a rule, and at least; the minimum suffices once each store has stored
`_ELEMENTS` elements: among fewer, the largest of four may be the same one by chance."""
MOST, _ALIKE = 256, 1 << 14
"""How many blocks are followed at most while a store has stored one value only, and up to how many elements: of values
that exceed a threshold there may be one in a thousand."""
_REGULAR = 3
"""Shapes of a store that bounds alone decide: whole, cut off at an end, and none in a block beyond it."""


@dataclass
class Seen:
    """What the followed blocks stored by one access of the source."""

    stored: int = 0
    """Bytes stored."""
    elements: int = 0
    came_from: Counter[object] = field(default_factory=Counter)
    """How many bytes come from each load, by `Access.source`; None means several loads together."""
    value: bytes | None = None
    """The first value, which all elements have if `is_single`."""
    is_single: bool = True
    shapes: set[bytes] = field(default_factory=set)
    """Where it stored in an execution, relative to the first element; nothing where a block did not come to it."""

    @property
    def is_scattered(self) -> bool:
        """Whether it stores now here, now there: then one value tells something, as a mask of a row's words does."""
        return len(self.shapes) > _REGULAR

    @property
    def is_silent(self) -> bool:
        """Whether only zeros were loaded and stored: that does not tell whether they were moved or computed."""
        return self.stored == 0

    @property
    def moved(self) -> int:
        """Return the bytes from the load that explains most: `max(a, b)` is sometimes the one, sometimes the other."""
        return max(self.came_from.values(), default=0)

    def note(self, values: np.ndarray, sources: Sequence[object], is_zero: bool, shape: bytes) -> None:
        """Add a store: the bytes of its elements, the load that they come from, if there is one, and its shape."""
        self.note_shape(shape)
        first = values[0].tobytes()
        self.value = first if self.value is None else self.value
        self.is_single = self.is_single and first == self.value and bool((values == values[0]).all())
        # Zeros that come of zeros say nothing: both a copy and a product store them.
        if not (sources and is_zero):
            self.stored += values.size
            self.elements += len(values)
            self.came_from.update({source: values.size for source in sources})

    def note_shape(self, shape: bytes) -> None:
        """Add which elements an execution stored; only as many shapes are kept as tell something."""
        if not self.is_scattered:
            self.shapes.add(shape)


@dataclass
class Follow:
    """A request to follow blocks, and what was seen.

    Args:
        kinds: types of the elements of each buffer, as Triton names them; empty where the type is not known.
        draw: chooses among many stores of a block.
    """

    kinds: Sequence[str]
    draw: np.random.Generator
    seen: dict[object, Seen] = field(default_factory=dict)
    """What was seen, by the store's access in the source (`place_of`)."""


class Follower:
    """Follows the blocks of one launch.

    Args:
        follow: the request, to which results are added.
        sites: the kernel's sites.
        first_site: address of the words of the first site.
        buffers: address and length of each buffer.
    """

    def __init__(
        self, follow: Follow, sites: Sequence[Site], first_site: int, buffers: Sequence[tuple[int, int]]
    ) -> None:
        self._follow, self._sites, self._first_site, self._block_count = follow, sites, first_site, 0
        named = list(zip(buffers, follow.kinds, strict=False))
        self._rows = [(start, length, WIDTHS.get(kind, 0)) for (start, length), kind in named if length]
        self._kinds = [(start, start + length, kind) for (start, length), kind in named if length]

    @property
    def has_enough(self) -> bool:
        """Whether enough was seen."""
        stores = self._follow.seen.values()
        # One value in all elements so far may be chance: more blocks must show it.
        if any(seen.is_single and not seen.is_silent and seen.elements < _ALIKE for seen in stores):
            return self._block_count >= MOST
        has_few = min((seen.elements for seen in stores), default=_ELEMENTS) < _ELEMENTS
        return self._block_count >= (BLOCKS if has_few else _FEWEST)

    def begin(self, launch: np.ndarray) -> BlockLog:
        """Follow the block with this context."""
        log = BlockLog(self._sites, int(launch[context.WARPS]))
        log.begin(launch)
        return log

    def end(self, log: BlockLog) -> None:
        """Compare the stores of a block that has ended with its loads."""
        self._block_count += 1
        came_to = set[object]()
        for store, loads in log.stores(self._first_site, self._rows, self._follow.draw):
            values = memory_at(store.addresses, store.values.shape[1], self._rows)
            came_to.add(store.source)
            seen = self._follow.seen.setdefault(store.source, Seen())
            stored = numbers(values, self._kind(store))
            # One element has no shape: data that place it, as a one-hot row's, show in how it lies in a line.
            places = store.addresses % 64 if len(store.addresses) == 1 else store.addresses - store.addresses[0]
            seen.note(values, self._sources(store, stored, loads), not stored.any(), places.tobytes())
        for source in self._follow.seen.keys() - came_to:
            self._follow.seen[source].note_shape(b"")

    def _sources(self, store: Access, stored: np.ndarray, loads: Sequence[Access]) -> list[object]:
        loaded = [numbers(load.values, self._kind(load)) for load in loads]
        number = moved_from(stored, self._kind(store), loaded)
        if number is None:
            return []
        return [None if number == len(loads) else loads[number].source]

    def _kind(self, access: Access) -> str:
        address = int(access.addresses[0])
        return next((kind for start, stop, kind in self._kinds if start <= address < stop), "")
