# SPDX-License-Identifier: Apache-2.0
"""Classifies the stores of a forward's launches: computing, moving or constant, by the code and by stored values.

The code shows which stores may compute (`flow/origins.py`). Blocks that are followed refine this: such a store moves if
less than an eighth of its bytes differs from what the block loaded, and it is constant if it holds one value, the same
as in an earlier forward with other inputs. A store that was seen to hold another value is not constant later. The
latest forward on usual inputs says whether it moves. But a store that computed on usual inputs and on far ones
computes, because some inputs hide what it does, as numbers below 1 hide a `clamp` to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.flow import origins
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.executor.moves import Follow, Seen, place_of
from verl_kernel.env.executor.ptx.program import PtxProgram
from verl_kernel.env.ipc.execution_messages import Shows

_TOLERATED = 8
"""A store moves if less than one part in this many of its bytes is not explained by loads."""
_FOLLOWED = 32
"""This many of a forward's first launches are followed; of later ones a random sample is."""


@dataclass(frozen=True)
class Part:
    """What a place in the source was last seen to store."""

    kind: Kind
    computed: float
    """The computed fraction of its bytes."""


_UNKNOWN = Part("computes", 1.0)
"""What is assumed of a store that may compute if nothing else is known."""


class SeenStores:
    """Stores of one candidate's launches; a launch is identified by its number in a forward and by its code."""

    def __init__(self) -> None:
        self._number = -1
        self._shows: Shows = "nothing"
        self._parts: dict[tuple[int, str], dict[object, Part]] = {}
        self._values: dict[tuple[int, str, object], bytes | None] = {}
        self._varied: set[tuple[int, str, object]] = set()
        self._computed: set[tuple[tuple[int, str, object], Shows]] = set()
        """Stores that computed in a forward which shows this."""

    def begin(self, shows: Shows) -> None:
        """Begin a forward; `shows` says what it shows of stores."""
        self._number, self._shows = -1, shows

    def next(self, draw: np.random.Generator) -> bool:
        """Begin a launch; returns whether its blocks are to be followed.

        Args:
            draw: chooses which launches of a long forward are followed.
        """
        self._number += 1
        is_chosen = self._number < _FOLLOWED or draw.random() * (self._number + 1) < _FOLLOWED
        return self._shows != "nothing" and is_chosen

    @property
    def number(self) -> int:
        """Return the number of the launch in the forward."""
        return self._number

    def end(self, code: str, follow: Follow) -> None:
        """End a launch that was followed."""
        parts = self._parts.setdefault((self._number, code), {})
        found = {place: self._part((self._number, code, place), seen) for place, seen in follow.seen.items()}
        parts.update({place: part for place, part in found.items() if part is not None})

    def bytes(self, code: str, count: LaunchCount) -> tuple[int, int]:
        """Return the bytes that the launch stored, and the bytes of stores that compute."""
        program, parts = count.program, self._parts.get((self._number, code), {})
        kinds = {id(program.instructions[number]): kind for number, kind in origins.stores(program).items()}
        stored = computed = 0
        for site in count.sites:
            if kind := kinds.get(id(site.site.item)):
                size, part = site.accesses * site.site.bytes, parts.get(place_of(site.site.item))
                stored += size
                computed += (size if part is None else round(size * part.computed)) if kind == "computes" else 0
        return stored, computed

    def kinds(self, code: str, program: PtxProgram) -> dict[int, Kind]:
        """Return the kinds of the launch's stores, by the numbers of their instructions."""
        parts, items = self._parts.get((self._number, code), {}), program.instructions
        return {
            number: parts[place].kind if kind == "computes" and (place := place_of(items[number])) in parts else kind
            for number, kind in origins.stores(program).items()
        }

    def _part(self, key: tuple[int, str, object], seen: Seen) -> Part | None:
        value, before = seen.value if seen.is_single else None, self._values.get(key)
        is_known, self._values[key] = key in self._values, value
        if value is not None and key not in self._varied and value == before:
            return Part("constant", 0.0)
        if seen.is_silent:
            return None
        if value is None or is_known:
            self._varied.add(key)
        is_move = (seen.stored - seen.moved) * _TOLERATED < seen.stored
        if not is_move and (value is None or self._shows == "variation"):
            self._computed.add((key, self._shows))
        is_computing = {(key, "all"), (key, "variation")} <= self._computed
        if self._shows == "variation":
            was = self._parts[key[:2]].get(key[2], _UNKNOWN)
            return _UNKNOWN if was.kind == "constant" or is_computing else None
        if is_move and not is_computing:
            return Part("moves", 1.0 - seen.moved / seen.stored)
        return _UNKNOWN
