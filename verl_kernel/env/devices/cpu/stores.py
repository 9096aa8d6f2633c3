# SPDX-License-Identifier: Apache-2.0
"""What the stores of each launch are under Triton's interpreter: computed, moved or constant.

A *site* is one store among those of a program: the third store of the second launch of a forward, say. Its stores are
judged by value, over all programs of the launch:

- they move if they hold blocks that the program loaded before, and always the block of the same load (`max(a, b)`
  holds now one and now the other); up to an eighth may differ;
- they are constant if all lanes of the launch hold one value that cannot come from the inputs: stored before
  anything was loaded, or stored to the same places in an earlier forward, which had other inputs;
- otherwise they compute, and a site that was seen to compute remains one that does: it stored several values in a
  launch, or another one than in the forward before.

An atomic computes unless it is constant, or adds loaded values to zeros. A compare-and-swap guards something and counts
as nothing. The ablation runs launches with the stores of some kinds left out, by what earlier forwards have shown.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from verl_kernel.env.devices.cpu.blocks import Block, moved_from

KINDS = ("computes", "moves", "constant")
_LOADS = 16
"""Blocks that a program is taken to have at hand; older ones are forgotten."""
_SITES = 64
"""Stores of a program that are told apart; later ones count as the last."""
_TOLERATED = 8
"""A site moves where less than this part of its bytes is not explained by loads."""

Key = tuple[int, str, str, int]
Fingerprint = tuple[bytes, int]


class Site:
    """The stores at one place of a launch."""

    def __init__(self) -> None:
        self.stored = 0
        self.came_from: Counter[int] = Counter()
        """Bytes explained by each load of the program, by its number."""
        self.before_loads = True
        self._value: bytes | None = None
        self._is_single = True
        self._first, self._trail = 0, 0

    def note(self, block: Block, places: np.ndarray[Any, Any], source: int | None, before_loads: bool) -> None:
        """Add one store: its values, their addresses and the number of the load that explains them."""
        lanes = block.bits(block.values.dtype)[1]
        self.stored += lanes.nbytes
        self.before_loads = self.before_loads and before_loads
        if source is not None:
            self.came_from[source] += lanes.nbytes
        if self._is_single:
            self._follow(lanes, places)

    def _follow(self, lanes: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> None:
        flat = lanes.reshape(-1)
        if self._value is None:
            self._value, self._first = flat[:1].tobytes(), int(places.flat[0])
        self._is_single = flat[:1].tobytes() == self._value and bool((flat == flat[0]).all())
        offsets = (places.reshape(-1).astype(np.int64) - self._first).tobytes()
        self._trail = zlib.crc32(offsets, self._trail)

    @property
    def fingerprint(self) -> Fingerprint | None:
        """The one value of all lanes and where they went; None if there are several values."""
        return (self._value, self._trail) if self._is_single and self._value is not None else None

    @property
    def unexplained(self) -> int:
        """Bytes that do not come from the load that explains most of them."""
        return self.stored - max(self.came_from.values(), default=0)


class Stores:
    """The stores of this process's launches (the interpreter runs one kernel at a time)."""

    def __init__(self) -> None:
        self.kept: tuple[str, ...] | None = None
        """Kinds of stores that happen during an ablation; None where all do."""
        self.only: frozenset[int] | None = None
        """Numbers of the launches of a forward that the ablation concerns; None for all."""
        self.stored: int | None = None
        self.computed: int | None = None
        """Bytes stored and computed by the latest launch."""
        self.is_paused = False
        """Whether launches are no part of the forward (an autotuner tries configurations)."""
        self._launch, self._name = -1, ("", "")
        self._kinds: dict[Key, str] = {}
        self._fingerprints: dict[Key, Fingerprint | None] = {}
        self._computed: set[Key] = set()
        self._sites: dict[int, Site] = {}
        self._loads: deque[tuple[int, Block]] = deque(maxlen=_LOADS)
        self._number_of_loads = self._number_of_stores = 0

    def begin_forward(self) -> None:
        """A forward begins: launches are counted from 0."""
        self._launch = -1

    def begin(self, name: tuple[str, str]) -> None:
        """A launch of the kernel of this file and name begins."""
        self._launch += not self.is_paused
        self._name, self._sites = name, {}
        self.stored = self.computed = None
        self.begin_program()

    def begin_program(self) -> None:
        """The next program of the launch begins."""
        self._loads.clear()
        self._number_of_loads = self._number_of_stores = 0

    def end(self) -> None:
        """The launch has ended: settle what its stores were."""
        if self.kept is not None:
            return
        totals = Counter({"stored": 0, "computed": 0})
        for number, site in self._sites.items():
            totals["stored"] += site.stored
            totals["computed"] += self._settle((self._launch, *self._name, number), site)
        self.stored, self.computed = totals["stored"], totals["computed"]

    def loaded(self, block: Block) -> None:
        """A program has loaded a block."""
        self._loads.append((self._number_of_loads, block))
        self._number_of_loads += 1

    def happens(self, block: Block, places: np.ndarray[Any, Any], movable: bool = True) -> bool:
        """Note a store that is about to happen.

        Args:
            block: what is stored.
            places: addresses of the active lanes.
            movable: whether a block that was loaded is moved by this.

        Returns:
            Whether it should happen.
        """
        number, self._number_of_stores = min(self._number_of_stores, _SITES - 1), self._number_of_stores + 1
        if self.kept is not None:
            return not self.leaves_out or self.kind(number) in self.kept
        if places.size:
            source = self._source(block) if movable else None
            site = self._sites.setdefault(number, Site())
            site.note(block, places, source, self._number_of_loads == 0)
        return True

    @property
    def leaves_out(self) -> bool:
        """Whether an ablation concerns the launch that has begun."""
        return self.kept is not None and (self.only is None or self._launch in self.only)

    @property
    def is_left_out(self) -> bool:
        """Whether the launch that has begun would store nothing: then it need not run."""
        if self.kept is None or not self.leaves_out:
            return False
        here = (self._launch, *self._name)
        return not any(kind in self.kept for key, kind in self._kinds.items() if key[:3] == here)

    def kind(self, number: int) -> str:
        """What earlier forwards have shown of a store of this launch; unknown ones are taken to compute."""
        return self._kinds.get((self._launch, *self._name, number), "computes")

    def _source(self, block: Block) -> int | None:
        found = moved_from(block, [loaded for _, loaded in self._loads])
        if found is None or found == len(self._loads):
            return None if found is None else -1
        return self._loads[found][0]

    def _settle(self, key: Key, site: Site) -> int:
        """Remember of what kind a site is; returns the bytes it computed."""
        kind = self._kind(key, site)
        if not self.is_paused:
            self._kinds[key], self._fingerprints[key] = kind, site.fingerprint
        return {"computes": site.stored, "moves": site.unexplained, "constant": 0}[kind]

    def _kind(self, key: Key, site: Site) -> str:
        fingerprint = site.fingerprint
        if key in self._computed:
            return "computes"
        if fingerprint is not None and (site.before_loads or self._fingerprints.get(key) == fingerprint):
            return "constant"
        if site.unexplained * _TOLERATED < site.stored:
            return "moves"
        if not self.is_paused and (fingerprint is None or key in self._fingerprints):
            self._computed.add(key)
        return "computes"


STORES = Stores()
"""This process's stores."""


@contextmanager
def keeping(kinds: Sequence[str], only: Sequence[int] | None) -> Iterator[None]:
    """Leave out the stores of all other kinds, of all launches or of those of these numbers."""
    STORES.kept, STORES.only = tuple(kinds), None if only is None else frozenset(only)
    try:
        yield
    finally:
        STORES.kept = STORES.only = None
