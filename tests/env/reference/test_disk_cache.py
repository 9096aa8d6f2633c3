# SPDX-License-Identifier: Apache-2.0
"""The cache of references on disk: what it saves, and that nothing in the folder can do harm."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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
        parameters=", table, flags, size",
        values="torch.randn(4, 4).T, torch.tensor([True, False, True, True]), 4",
    )
)


@pytest.fixture
def store(tmp_path):
    return ReferenceCache(str(tmp_path / "cache"), "cpu")


def same(one: Reference, other: Reference) -> bool:
    a, b = one.preparation, other.preparation
    tensors = zip([*a.init.tensors, *a.state.values()], [*b.init.tensors, *b.state.values()], strict=True)
    others = [(side.init.tree, side.events, side.demand, side.traits, list(side.state)) for side in (a, b)]
    alike = all(torch.equal(x, y) and x.stride() == y.stride() and x.dtype == y.dtype for x, y in tensors)
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


def forget_trait(index):
    known = json.loads(index)
    del known["traits"]["variation"]
    return json.dumps(known).encode()


@pytest.mark.parametrize(("ending", "damage"), [
    ("json", lambda data: data[:-40]), ("safetensors", lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
    ("safetensors", lambda data: data[:10]), ("safetensors", lambda data: None), ("json", forget_trait),
])  # fmt: skip
def test_a_damaged_entry_is_absent_and_written_again(store, device, tmp_path, ending, damage):
    prepared = Reference(TASK, device)
    store.save(TASK, prepared.preparation)
    path = next((tmp_path / "cache").glob(f"*.{ending}"))
    left = damage(path.read_bytes())
    path.unlink() if left is None else path.write_bytes(left)
    assert store.load(TASK) is None
    store.save(TASK, prepared.preparation)
    assert same(prepared, Reference(TASK, device, store.load(TASK)))


def test_weights_that_do_not_fit_the_model_are_not_believed(store, device):
    smaller, right = Task(REFERENCE.replace("return [64, 1.5]", "return [1, 1.5]")), Reference(TASK, device)
    broken = replace(Reference(smaller, device).preparation, init=right.init)
    assert same(Reference(TASK, device, broken), right)


def test_readers_and_writers_do_not_disturb_each_other(store, device):
    prepared = Reference(TASK, device).preparation
    store.save(TASK, prepared)

    def is_missed(number):
        store.save(TASK, prepared)
        return store.load(TASK) is None

    with ThreadPoolExecutor(4) as threads:
        assert not any(threads.map(is_missed, range(80)))


def test_a_folder_that_cannot_be_written_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"kernelgym.reference_cache is '.*file/cache'"):
        ReferenceCache(str(tmp_path / "file" / "cache"), "cpu")
