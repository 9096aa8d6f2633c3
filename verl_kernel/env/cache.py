# SPDX-License-Identifier: Apache-2.0
"""A bounded memory: what was used longest ago is forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Recent(Generic[Item]):
    """The `capacity` most recently used items by content hash; not for use by several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: OrderedDict[str, Item] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> Item | None:
        """The item, now the most recent one, or None."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: str, item: Item) -> Item:
        """Remember and return `item`."""
        self._items[key] = item
        self._items.move_to_end(key)
        if len(self._items) > self._capacity:
            self._items.popitem(last=False)
        return item
