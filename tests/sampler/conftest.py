# SPDX-License-Identifier: Apache-2.0
"""Queues for the sampler: one of this process, and TransferQueue itself; each test finds its own empty."""

from collections import defaultdict
from typing import Any

import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
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


@pytest.fixture(scope="package")
def transfer_queue():
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    yield
    tq.close()
    ray.shutdown()


@pytest.fixture(params=["memory", pytest.param("transfer_queue", marks=[pytest.mark.ray, pytest.mark.exhaustive])])
def queue(request, monkeypatch):
    if request.param == "memory":
        memory = MemoryQueue()
        calls = ("kv_put", "kv_batch_put", "kv_batch_get", "kv_list", "kv_clear", "async_kv_put", "async_kv_batch_put")
        for name in calls:
            monkeypatch.setattr(tq, name, getattr(memory, name))
        yield
        return
    request.getfixturevalue("transfer_queue")
    yield
    for partition, items in (tq.kv_list() or {}).items():
        if items:
            tq.kv_clear(keys=list(items), partition_id=partition)
