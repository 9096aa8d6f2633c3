# SPDX-License-Identifier: Apache-2.0
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.ipc import shared_memory
from verl_kernel.env.ipc.shared_memory import DTYPES, SharedMemory, TensorSpec, flatten, place, unflatten
from verl_kernel.errors import InfraError

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
FLAT = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DATA = st.recursive(FLAT, lambda s: st.lists(s) | st.lists(s).map(tuple) | st.dictionaries(st.text(), s), max_leaves=8)


@given(st.lists(st.tuples(SHAPES, st.sampled_from(sorted(DTYPES)), st.booleans()), max_size=5))
def test_tensors_come_out_as_they_went_in(descriptions):
    tensors = [torch.randint(0, 2, shape).to(DTYPES[dtype]) for shape, dtype, _ in descriptions]
    tensors = [t.mT if flip and t.ndim > 1 else t for t, (_, _, flip) in zip(tensors, descriptions, strict=True)]
    specs, end = place(tensors, start=256)
    specs = [TensorSpec.from_json(spec.to_json()) for spec in specs]
    memory = SharedMemory.create(end)
    memory.write(tensors, specs)
    other = SharedMemory(os.dup(memory.fd), memory.size)
    for tensor, spec in zip(tensors, specs, strict=True):
        seen = other.view(spec)
        assert torch.equal(seen, tensor)
        assert seen.dtype == tensor.dtype
        assert seen.stride() == tensor.stride()
    other.close()
    memory.close()


@given(st.lists(SHAPES, max_size=6))
def test_places_do_not_touch(shapes):
    specs, end = place([torch.zeros(shape) for shape in shapes])
    bounds = [*(spec.offset for spec in specs), end]
    assert all(spec.offset + spec.nbytes < after for spec, after in zip(specs, bounds[1:], strict=True))


@given(DATA)
def test_nested_data_comes_back(data):
    tensors: list[torch.Tensor] = []
    tree = flatten({"data": data, "tensor": torch.ones(2)}, tensors)
    back = unflatten(tree, tensors)
    assert back["data"] == data
    assert type(back["data"]) is type(data)
    assert back["tensor"] is tensors[0]


def test_an_expanded_tensor_is_laid_out_densely():
    assert TensorSpec.of(torch.ones(1).expand(8)).nbytes == 32


@pytest.mark.parametrize("value", [object(), {1: 2}, torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex32)])
def test_what_cannot_cross_is_refused(value):
    with pytest.raises(TypeError):
        tensors: list[torch.Tensor] = []
        flatten(value, tensors)
        place(tensors)


def test_memory_that_cannot_be_had_is_our_failure(monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_memory.os, "posix_fallocate", refuse)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(InfraError, match="bytes of shared memory"):
        SharedMemory.create(1)
    assert set(os.listdir("/proc/self/fd")) == before
