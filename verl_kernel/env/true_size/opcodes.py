# SPDX-License-Identifier: Apache-2.0
"""Which instructions of a source run: a program that does something else at another size runs others.

An instruction is named by the line of its function, its own line and its place in the function's code.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Instruction = tuple[int, int, int]
_LARGEST = 1 << 31


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
