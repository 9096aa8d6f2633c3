# SPDX-License-Identifier: Apache-2.0
"""The calls of TransferQueue that a replay buffer and an agent loop worker make, over a dict of this process."""

from collections import defaultdict
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.tensordict_utils import list_of_dict_to_tensordict


class MemoryQueue:
    """Tags and fields by partition and key; a field put again is replaced."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.fields: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    def kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.tags[partition_id].setdefault(key, {}).update(tag)

    def kv_batch_put(
        self, keys: list[str], partition_id: str, fields: TensorDict, tags: list[dict[str, Any]] | None = None
    ) -> None:
        columns = {name: _rows(fields[name]) for name in fields.keys()}  # noqa: SIM118  iteration is over rows
        for i, key in enumerate(keys):
            self.kv_put(key, partition_id, tags[i] if tags else {})
            row = {name: getattr(column[i], "data", column[i]) for name, column in columns.items()}
            self.fields[partition_id].setdefault(key, {}).update(row)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.kv_put(key, partition_id, tag)

    async def async_kv_batch_put(
        self, keys: list[str], partition_id: str, fields: TensorDict, tags: list[dict[str, Any]]
    ) -> None:
        self.kv_batch_put(keys, partition_id, fields, tags)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        rows = [self.fields[partition_id][key] for key in keys]
        return list_of_dict_to_tensordict([{name: row[name] for name in select_fields if name in row} for row in rows])

    def kv_list(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {partition: {key: dict(tag) for key, tag in items.items()} for partition, items in self.tags.items()}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)
            self.fields[partition_id].pop(key, None)


def _rows(column: Any) -> list[Any]:
    return list(column.unbind() if isinstance(column, torch.Tensor) else column)
