# SPDX-License-Identifier: Apache-2.0
"""The cache of references on disk: what it saves, and that nothing in the folder can do harm."""

import json
import threading

import pytest
import torch

from tests.env.programs import REFERENCE, reference
from verl_kernel.env.reference.disk_cache import ReferenceCache
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task
from verl_kernel.errors import ConfigError

TASK = Task(REFERENCE, task_id="fused")
LAYOUTS = Task(
    reference(
        "torch.where(self.flags, self.a(x) @ self.table, x)",
        "torch.randn(3, 4)",
        members="self.a, self.b = nn.Linear(size, size), nn.BatchNorm1d(size); "
        'self.register_buffer("table", table); self.register_buffer("flags", flags)',
    )
    .replace("__init__(self)", "__init__(self, table, flags, size)")
    .replace("return []", "return [torch.randn(4, 4).T, torch.tensor([True, False, True, True]), 4]")
)


@pytest.fixture
def store(tmp_path):
    return ReferenceCache(str(tmp_path / "cache"), "cpu")


def same(one: Reference, other: Reference) -> bool:
    a, b = one.preparation, other.preparation
    tensors = zip([*a.init.tensors, *a.state.values()], [*b.init.tensors, *b.state.values()], strict=True)
    alike = all(torch.equal(x, y) and x.stride() == y.stride() and x.dtype == y.dtype for x, y in tensors)
    others = [(side.init.tree, side.events, side.demand, side.traits, list(side.state)) for side in (a, b)]
    return alike and others[0] == others[1]


@pytest.mark.parametrize("task", [TASK, LAYOUTS], ids=["fused", "layouts"])
def test_a_stored_preparation_is_the_preparation(store, device, task):
    first = Reference(task, device)
    assert store.load(task) is None
    store.save(task, first.preparation)
    second = Reference(task, device, store.load(task))
    assert same(first, second)
    one, other = first.trial(b"secret", 1, "varied"), second.trial(b"secret", 1, "varied")
    assert torch.equal(one.expected.tensors[0], other.expected.tensors[0])


def test_a_known_reference_runs_no_forward_at_first(store, device):
    counting = Task("CALLS = []\n" + REFERENCE.replace("return torch.relu", "CALLS.append(1); return torch.relu"))
    first = Reference(counting, device)
    store.save(counting, first.preparation)
    second = Reference(counting, device, store.load(counting))
    assert len(first._program._names["CALLS"]) >= 4
    assert second._program._names["CALLS"] == []


def test_other_tasks_and_devices_have_other_entries(store, device, tmp_path):
    store.save(TASK, Reference(TASK, device).preparation)
    assert store.load(Task(REFERENCE + "\n# other")) is None
    assert ReferenceCache(str(tmp_path / "cache"), "cuda").load(TASK) is None


def spoil_index(folder):
    path = next(folder.glob("*.json"))
    path.write_text(path.read_text()[:-40])


def spoil_tensors(folder):
    path = next(folder.glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def cut_tensors(folder):
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:10])


def drop_tensors(folder):
    next(folder.glob("*.safetensors")).unlink()


def forget_trait(folder):
    path = next(folder.glob("*.json"))
    index = json.loads(path.read_text())
    del index["traits"]["variation"]
    path.write_text(json.dumps(index))


@pytest.mark.parametrize("damage", [spoil_index, spoil_tensors, cut_tensors, drop_tensors, forget_trait])
def test_a_damaged_entry_is_absent_and_written_again(store, device, tmp_path, damage):
    prepared = Reference(TASK, device)
    store.save(TASK, prepared.preparation)
    damage(tmp_path / "cache")
    assert store.load(TASK) is None
    store.save(TASK, prepared.preparation)
    assert same(prepared, Reference(TASK, device, store.load(TASK)))


def test_weights_that_do_not_fit_the_model_are_not_believed(store, device):
    smaller = Task(REFERENCE.replace("return [64, 1.5]", "return [1, 1.5]"))
    stored = Reference(smaller, device).preparation
    broken = type(stored)(Reference(TASK, device).init, stored.state, stored.events, stored.demand, stored.traits)
    prepared = Reference(TASK, device, broken)
    assert same(prepared, Reference(TASK, device))


def test_readers_and_writers_do_not_disturb_each_other(store, device):
    prepared = Reference(TASK, device).preparation
    store.save(TASK, prepared)
    missed = []

    def work():
        for _ in range(20):
            store.save(TASK, prepared)
            missed.append(store.load(TASK) is None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == [False] * 80


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"kernelgym.reference_cache is '.*file/cache'"):
        ReferenceCache(str(tmp_path / "file" / "cache"), "cpu")
