# SPDX-License-Identifier: Apache-2.0
"""Classifies the stores of a forward's launches: computing, moving or constant, by the code and by stored values.

The code shows which stores may compute (`flow/origins.py`). Blocks that are followed refine this: such a store moves if
less than an eighth of its bytes differs from what the block loaded, and it is constant if it holds one value, the same
as in an earlier forward with other inputs, in places that do not vary. A store that was seen to hold another value is
not constant later. The latest forward on usual inputs says whether it moves. But a store that computed on usual inputs
and on far ones computes, because some inputs hide what it does, as numbers below 1 hide a `clamp` to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_kernel.env.emulator.copy_stores import Follow, Seen, place_of
from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.flow import origins
from verl_kernel.env.emulator.flow.origins import Kind
from verl_kernel.env.emulator.ptx.program import PtxProgram
from verl_kernel.env.ipc.execution_messages import Shows

_TOLERANCE = 8
"""A store moves if less than one part in this many of its bytes is not explained by loads."""
_FOLLOWED = 32
"""This many of a forward's first launches are followed; of later ones a random sample is."""


@dataclass(frozen=True)
class StoreClass:
    """The latest class of the stores at one place in the source."""

    kind: Kind
    computed: float
    """The computed fraction of its bytes."""


_UNKNOWN = StoreClass("computes", 1.0)
"""The class of a store that may compute by its code, before any block was followed."""


class StoreClassifier:
    """Stores of one candidate's launches; a launch is identified by its number in a forward and by its code."""

    def __init__(self) -> None:
        self._number = -1
        self._shows: Shows = "nothing"
        self._classes: dict[tuple[int, str], dict[object, StoreClass]] = {}
        self._values: dict[tuple[int, str, object], bytes | None] = {}
        self._varied: set[tuple[int, str, object]] = set()
        self._computed: set[tuple[tuple[int, str, object], Shows]] = set()
        """Stores that computed in a forward which shows this."""

    def begin(self, shows: Shows) -> None:
        """Begin a forward; `shows` says how much its inputs can show about stores (`Shows`)."""
        self._number, self._shows = -1, shows

    def next(self, draw: np.random.Generator) -> bool:
        """Begin a launch; returns whether its blocks are to be followed.

        Args:
            draw: chooses which launches of a long forward are followed.
        """
        self._number += 1
        # The k-th launch with probability 32 / k: a long forward costs little, and no launch is surely unseen.
        is_chosen = self._number < _FOLLOWED or draw.random() * (self._number + 1) < _FOLLOWED
        return self._shows != "nothing" and is_chosen

    @property
    def number(self) -> int:
        """Return the number of the launch in the forward."""
        return self._number

    def end(self, code: str, follow: Follow) -> None:
        """End a launch that was followed."""
        latest = self._classes.setdefault((self._number, code), {})
        classes = {
            position: self._classified((self._number, code, position), trace) for position, trace in follow.seen.items()
        }
        latest.update({position: store_class for position, store_class in classes.items() if store_class is not None})

    def bytes(self, code: str, count: LaunchCount) -> tuple[int, int]:
        """Return the bytes that the launch stored, and the bytes of stores that compute."""
        program, classes = count.program, self._classes.get((self._number, code), {})
        kinds = {id(program.instructions[number]): kind for number, kind in origins.stores(program).items()}
        stored = computed = 0
        for site in count.sites:
            if kind := kinds.get(id(site.site.item)):
                size, store_class = site.accesses * site.site.bytes, classes.get(place_of(site.site.item))
                stored += size
                computed += (
                    (size if store_class is None else round(size * store_class.computed)) if kind == "computes" else 0
                )
        return stored, computed

    def kinds(self, code: str, program: PtxProgram) -> dict[int, Kind]:
        """Return the kinds of the launch's stores, by the numbers of their instructions."""
        classes, items = self._classes.get((self._number, code), {}), program.instructions
        return {
            number: classes[position].kind
            if kind == "computes" and (position := place_of(items[number])) in classes
            else kind
            for number, kind in origins.stores(program).items()
        }

    def _classified(self, key: tuple[int, str, object], trace: Seen) -> StoreClass | None:
        # `value`: the one value that the followed blocks stored everywhere, None if there were several.
        value, earlier_value = trace.value if trace.is_single else None, self._values.get(key)
        has_earlier, self._values[key] = key in self._values, value
        if value is not None and key not in self._varied and value == earlier_value and not trace.is_scattered:
            return StoreClass("constant", 0.0)
        if trace.is_silent:  # zeros of zeros, as where a batch is padding: they say nothing
            return None
        if value is None or has_earlier:
            self._varied.add(key)
        is_copy = (trace.stored - trace.moved) * _TOLERANCE < trace.stored
        if not is_copy and (value is None or self._shows == "variation"):
            self._computed.add((key, self._shows))
        is_computing = {(key, "all"), (key, "variation")} <= self._computed
        # Far inputs only revise upwards: they may hide a computation, so they never make a store a copy.
        if self._shows == "variation":
            former = self._classes[key[:2]].get(key[2], _UNKNOWN)
            return _UNKNOWN if former.kind == "constant" or is_computing else None
        if is_copy and not is_computing:
            return StoreClass("moves", 1.0 - trace.moved / trace.stored)
        return _UNKNOWN
