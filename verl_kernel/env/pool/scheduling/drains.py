# SPDX-License-Identifier: Apache-2.0
"""Which judges are to get nothing new: all on certain nodes, wherever those judges came from, and certain judges."""

from __future__ import annotations

from collections.abc import Iterable


class Drains:
    """What was asked for and not taken back."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._judges: set[int] = set()

    def change(self, nodes: Iterable[str], judges: Iterable[int], on: bool) -> None:
        """Drain nodes (by id) and judges (by number), or take that back."""
        if on:
            self._nodes.update(nodes)
            self._judges.update(judges)
        else:
            self._nodes.difference_update(nodes)
            self._judges.difference_update(judges)

    def cover(self, number: int, node: str) -> bool:
        """Whether a judge of this number on this node is drained."""
        return number in self._judges or node in self._nodes
