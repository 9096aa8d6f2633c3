# SPDX-License-Identifier: Apache-2.0
"""Queues for the sampler: one of this process, and TransferQueue itself; each test finds its own empty."""

from collections.abc import Iterator

import pytest
import ray
import transfer_queue as tq
from omegaconf import OmegaConf

from tests.sampler.memory_queue import MemoryQueue


@pytest.fixture(scope="package")
def transfer_queue() -> Iterator[None]:
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    yield
    tq.close()
    ray.shutdown()


@pytest.fixture(params=["memory", pytest.param("transfer_queue", marks=[pytest.mark.ray, pytest.mark.exhaustive])])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
