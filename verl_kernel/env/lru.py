# SPDX-License-Identifier: Apache-2.0
"""A least-recently-used cache, bounded in items and bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LRUCache(Generic[Item]):
    """The most recently used items by key; not for use by several threads.

    Args:
        capacity: most items.
        most_bytes: most bytes of all of them together, but for the latest item, which stays whatever its size.
    """

    def __init__(self, capacity: int, most_bytes: int | None = None) -> None:
        self._capacity, self._most_bytes = capacity, most_bytes
        self._items: OrderedDict[str, tuple[Item, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> Item | None:
        """The item, now the most recent one, or None."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: str, item: Item, size: int = 0) -> Item:
        """Remember and return `item`, which holds `size` bytes."""
        self._items[key] = item, size
        self._items.move_to_end(key)
        while len(self._items) > 1 and self._is_full():
            self._items.popitem(last=False)
        return item

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()

    def _is_full(self) -> bool:
        held = sum(size for _, size in self._items.values())
        return len(self._items) > self._capacity or (self._most_bytes is not None and held > self._most_bytes)
