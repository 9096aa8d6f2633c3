# SPDX-License-Identifier: Apache-2.0
"""Follows the first blocks of a launch, and says of each of its stores whether it moves what the block has loaded.

The code says what may compute (`flow/origins.py`); it takes `x + 0.0` for arithmetic. Here values count: a store moves
where its values are those of a load of the block, or of all its loads, within what a comparison lets pass. Loads and
stores are told apart by their places in the source and by the turns of loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from verl_kernel.env.executor.library import context
from verl_kernel.env.executor.lowering.sites import Site
from verl_kernel.env.executor.moves.compare import WIDTHS, moved_from, numbers
from verl_kernel.env.executor.moves.log import Access, BlockLog, memory_at

BLOCKS, _FEWEST, _ELEMENTS = 16, 2, 64
"""How many are followed of a launch as a rule, and at least; no more once the store that stores least has given so many
elements: of a few, the largest of four may be the same one by chance."""
MOST, _ALIKE = 256, 1 << 14
"""How many are followed at most, where a store has given one value only, and until how many elements: of what exceeds a
threshold there may be one in a thousand."""


@dataclass
class Seen:
    """What the followed blocks stored by one place in the source."""

    stored: int = 0
    """Bytes."""
    elements: int = 0
    came_from: Counter[object] = field(default_factory=Counter)
    """Bytes that are those of a load, by its place; None for several loads together."""
    value: bytes | None = None
    """The one value of all elements."""
    is_single: bool = True

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known but that zeros were loaded and stored: what comes of zeros, moved or computed."""
        return self.stored == 0

    @property
    def moved(self) -> int:
        """Bytes that come from the load that explains most of them: `max(a, b)` holds now one and now the other."""
        return max(self.came_from.values(), default=0)

    def note(self, values: np.ndarray, sources: Sequence[object], is_zero: bool) -> None:
        """Add a store of elements' bytes, and the place of the load that they come from, if there is one."""
        first = values[0].tobytes()
        self.value = first if self.value is None else self.value
        self.is_single = self.is_single and first == self.value and bool((values == values[0]).all())
        if not (sources and is_zero):
            self.stored += values.size
            self.elements += len(values)
            self.came_from.update({source: values.size for source in sources})


@dataclass
class Follow:
    """A wish that blocks are followed, and what was seen.

    Args:
        kinds: types of the elements of each buffer, as Triton names them; none where it is not known.
        draw: chooses among many stores of a block.
    """

    kinds: Sequence[str]
    draw: np.random.Generator
    seen: dict[object, Seen] = field(default_factory=dict)
    """By the place of the store (`place_of`)."""


class Follower:
    """Follows the blocks of one launch.

    Args:
        follow: what was wished.
        sites: of the kernel.
        first_site: address of the words of the first one.
        buffers: address and length of each.
    """

    def __init__(
        self, follow: Follow, sites: Sequence[Site], first_site: int, buffers: Sequence[tuple[int, int]]
    ) -> None:
        self._follow, self._sites, self._first_site, self._ended = follow, sites, first_site, 0
        named = list(zip(buffers, follow.kinds, strict=False))
        self._rows = [(start, length, WIDTHS.get(kind, 0)) for (start, length), kind in named if length]
        self._kinds = [(start, start + length, kind) for (start, length), kind in named if length]

    @property
    def is_told(self) -> bool:
        """Whether enough was seen."""
        stores = self._follow.seen.values()
        if any(seen.is_single and not seen.is_silent and seen.elements < _ALIKE for seen in stores):
            return self._ended >= MOST
        few = min((seen.elements for seen in stores), default=_ELEMENTS) < _ELEMENTS
        return self._ended >= (BLOCKS if few else _FEWEST)

    def begin(self, launch: np.ndarray) -> BlockLog:
        """Follow a block whose context this is."""
        log = BlockLog(self._sites, int(launch[context.WARPS]))
        log.begin(launch)
        return log

    def end(self, log: BlockLog) -> None:
        """Look at a block that has ended."""
        self._ended += 1
        for store, loads in log.stores(self._first_site, self._rows, self._follow.draw):
            values = memory_at(store.addresses, store.values.shape[1], self._rows)
            seen = self._follow.seen.setdefault(store.place, Seen())
            stored = numbers(values, self._kind(store))
            seen.note(values, self._sources(store, stored, loads), not stored.any())

    def _sources(self, store: Access, stored: np.ndarray, loads: Sequence[Access]) -> list[object]:
        loaded = [numbers(load.values, self._kind(load)) for load in loads]
        found = moved_from(stored, self._kind(store), loaded)
        if found is None:
            return []
        return [None if found == len(loads) else loads[found].place]

    def _kind(self, access: Access) -> str:
        at = int(access.addresses[0])
        return next((kind for start, stop, kind in self._kinds if start <= at < stop), "")
