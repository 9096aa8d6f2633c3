# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors of any size costs nothing, is the same again, and keeps nothing that was written."""

import ctypes
import os

import numpy as np
import pytest

from verl_kernel.env.execution.sparse_memory import BYTES, SparseMemory, template

FLOAT = ((1 << 44) + 256, 64 << 30, "float32")
ARENA = 1 << 20


@pytest.fixture
def memory():
    fd = os.memfd_create("arena")
    os.ftruncate(fd, ARENA)
    os.pwrite(fd, b"known", 8192)
    made = SparseMemory(fd, ARENA)
    yield made
    made.close()
    os.close(fd)


def floats(address, count):
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))


def test_a_tensor_larger_than_memory_is_read_anywhere(memory):
    found = floats(memory.tensor_address(FLOAT), FLOAT[1] // 4)
    first, last = found[:8].copy(), found[-8:].copy()
    assert np.isfinite([first, last]).all()
    assert len(set(first)) > 4
    found[-8:] = 7.0
    assert (found[-8:] == 7.0).all()
    memory.restore([FLOAT])
    assert (found[:8] == first).all()
    assert (found[-8:] == last).all()


def test_what_is_not_said_to_be_written_stays(memory):
    found = floats(memory.tensor_address(FLOAT), 8)
    found[0] = 7.0
    memory.restore([])
    assert found[0] == 7.0


def test_a_tensor_keeps_its_place_and_alignment(memory):
    address = memory.tensor_address(FLOAT)
    assert address % 4096 == 256
    assert memory.tensor_address(FLOAT) == address
    assert abs(memory.tensor_address((1 << 45, 4096, "float32")) - address) > FLOAT[1] + (16 << 30)


def test_tensors_and_seeds_have_values_of_their_own(memory):
    one, other = (floats(memory.tensor_address(((1 << 44) + (place << 20), 4096, "float32")), 8) for place in (0, 1))
    other[:] = 7.0
    assert not (one == 7.0).any()
    memory.begin(1)
    first = floats(memory.tensor_address(FLOAT), 8).copy()
    memory.begin(2)
    assert (floats(memory.tensor_address(FLOAT), 8) != first).any()


def test_pieces_of_the_arena_are_as_they_were_handed_over(memory):
    address = memory.arena_address(8192, 5)
    assert ctypes.string_at(address, 5) == b"known"
    ctypes.memmove(address, b"other", 5)
    memory.restore([])
    assert ctypes.string_at(address, 5) == b"known"


@pytest.mark.parametrize(("offset", "length"), [(-1, 4), (0, ARENA + 1), (ARENA - 3, 4)])
def test_a_piece_outside_of_the_arena_has_no_address(memory, offset, length):
    with pytest.raises(ValueError, match="arena"):
        memory.arena_address(offset, length)


def test_more_tensors_than_can_be_mapped_have_room(memory):
    for number in range(100):
        assert floats(memory.tensor_address(((1 << 44) + (number << 20), 4096, "float32")), 4).any()
    assert memory.clearings > 0


def test_what_no_process_can_address_is_refused(memory):
    with pytest.raises(MemoryError):
        memory.tensor_address((1 << 44, 1 << 44, "float32"))


def values(dtype, kind):
    return template(dtype, np.random.default_rng(0)).view(kind)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_floats_are_finite_and_of_ordinary_size(dtype):
    bits = values(dtype, np.uint16 if dtype == "bfloat16" else dtype)
    found = (bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits.astype(np.float64)
    assert np.isfinite(found).all()
    assert 0.9 < found.std() < 1.1
    assert bits.nbytes == BYTES


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool"])
def test_whole_numbers_are_small_and_conditions_are_mixed(dtype):
    found = values(dtype, np.uint8 if dtype == "bool" else dtype)
    assert found.min() == 0
    assert 1 < found.max() < 16 or (dtype == "bool" and found.max() == 1)
    assert dtype != "bool" or 0.4 < found.mean() < 0.6
