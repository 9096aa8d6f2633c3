# SPDX-License-Identifier: Apache-2.0
"""Which instructions of a source run: a program that does something else at another size runs others.

An instruction is named by the line of its function, its own line and its place in the function's code. Watching makes a
program of a launch three times as slow, so of a large grid some are watched: those at its edges, where masks and
branches on the program's number differ, and some between.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from types import FrameType
from typing import Any

Instruction = tuple[int, int, int]
_LARGEST = 1 << 31
_WHOLE, _EDGE, _BETWEEN = 8, 2, 6
"""Grids that are watched whole, programs at the beginning of an axis that are watched, and programs between."""


class Tracer:
    """Collects the instructions of one file that run while it is on.

    Args:
        path: of the file, as its code objects name it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.seen: set[Instruction] = set()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch what runs inside, in this thread."""
        outer = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(outer)

    def begin_program(self, index: tuple[int, ...], grid: tuple[int, ...]) -> None:
        """Watch a program of a launch, which begins, if it is one of those to be watched."""
        sys.settrace(self._enter if is_watched(index, grid) else None)

    def end_launch(self) -> None:
        """Watch what comes after the last program of a launch."""
        sys.settrace(self._enter)

    @contextmanager
    def paused(self, really: bool = True) -> Iterator[None]:
        """Watch nothing inside, unless not `really`: what has been seen runs in a third of the time then."""
        outer = sys.gettrace()
        sys.settrace(None if really else outer)
        try:
            yield
        finally:
            sys.settrace(outer)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.seen.add((frame.f_code.co_firstlineno, frame.f_lineno or 0, frame.f_lasti))
        return self._step


def is_watched(index: tuple[int, ...], grid: tuple[int, ...]) -> bool:
    """Whether a program is one of those that are watched."""
    total = prod(grid)
    if total <= _WHOLE or all(i < _EDGE or i == size - 1 for i, size in zip(index, grid, strict=True)):
        return True
    number = 0
    for i, size in zip(index, grid, strict=True):
        number = number * size + i
    step = -(-total // _BETWEEN) | 1  # odd: a branch on every second program is met
    return number % step == 0


def dump(seen: Iterable[Instruction]) -> dict[str, list[int]]:
    """Instructions as a JSON object: places by `function:line`."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for function, line, place in sorted(seen):
        found[f"{function}:{line}"].append(place)
    return dict(found)


def load(value: object) -> set[Instruction]:
    """Read what `dump` wrote.

    Raises:
        ValueError: it is no such object.
    """
    if not isinstance(value, Mapping):
        raise ValueError("instructions must be an object of lists")
    return {item for key, places in value.items() for item in _read(key, places)}


def _read(key: object, places: object) -> Iterator[Instruction]:
    function, line = (int(part) for part in str(key).split(":"))
    if not isinstance(places, list) or not all(type(place) is int and 0 <= place < _LARGEST for place in places):
        raise ValueError("the places of instructions must be lists of integers")
    yield from ((function, line, place) for place in places)
