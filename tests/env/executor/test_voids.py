# SPDX-License-Identifier: Apache-2.0
"""Products on rows, columns and places along k that hold nothing are counted apart."""

import numpy as np
import pytest

from tests.env.executor.ptx import aligned, buffer
from tests.env.executor.test_matrices import laid_out, written
from verl_kernel.env.executor.kernel import Kernel

SHAPES = [("m16n8k16", "f16", 0), ("m16n8k8", "bf16", 0), ("m16n8k8", "tf32", 1), ("m16n8k4", "tf32", 1)]


def voids(shape, kind, a, b):
    """Of a product of matrices of bits."""
    parts = [*laid_out(shape, kind, kind, "f32", a, b, np.zeros((16, 8), np.uint64))]
    given = aligned(128 * sum(part.shape[1] for part in parts), np.uint32)
    given[:] = np.concatenate(parts, axis=1).astype(np.uint32).ravel()
    arrays = [given, aligned(512, np.uint32)]
    kernel = Kernel(written(shape, kind, kind, "f32", [part.shape[1] for part in parts]), 1, 0)
    return kernel.launch((1,), [one.ctypes.data for one in arrays], [buffer(one) for one in arrays]).voids


def full(shape):
    depth = int(shape.rpartition("k")[2])
    return np.full((16, depth), 0x3C00, np.uint64), np.full((depth, 8), 0x3C00, np.uint64), depth


@pytest.mark.parametrize(("shape", "kind", "unit"), SHAPES)
def test_a_product_of_data_has_none(shape, kind, unit):
    a, b, _ = full(shape)
    assert voids(shape, kind, a, b) == (0, 0)


@pytest.mark.parametrize(("shape", "kind", "unit"), SHAPES)
@pytest.mark.parametrize("rows", [0, 1, 5, 11, 16])
def test_rows_of_zeros_are_nothing(shape, kind, unit, rows):
    a, b, depth = full(shape)
    a[16 - rows :] = 0
    assert voids(shape, kind, a, b)[unit] == 2 * rows * 8 * depth


@pytest.mark.parametrize(("shape", "kind", "unit"), SHAPES)
def test_columns_of_zeros_are_nothing(shape, kind, unit):
    a, b, depth = full(shape)
    b[:, [1, 2, 6]] = 0
    assert voids(shape, kind, a, b)[unit] == 2 * 16 * 3 * depth


@pytest.mark.parametrize(("shape", "kind", "unit"), SHAPES)
@pytest.mark.parametrize("is_left", [True, False])
def test_zeros_of_either_factor_void_places_along_k(shape, kind, unit, is_left):
    a, b, depth = full(shape)
    (a.T if is_left else b)[depth // 2 :] = 0
    assert voids(shape, kind, a, b)[unit] == 16 * 8 * depth


@pytest.mark.parametrize(("shape", "kind", "unit"), SHAPES)
def test_single_zeros_are_data(shape, kind, unit):
    a, b, _ = full(shape)
    a[::2, ::2] = a[1::2, 1::2] = 0
    assert voids(shape, kind, a, b) == (0, 0)
