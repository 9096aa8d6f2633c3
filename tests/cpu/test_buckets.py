# SPDX-License-Identifier: Apache-2.0
"""What is packed comes out again: names, order, shapes, dtypes and every byte."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.cpu.checkpoint_engine import pack, unpack

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool]
DTYPES += [torch.float64, torch.complex128]
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def of_bytes(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random bytes as a tensor: all values of the dtype, NaN with a payload too."""
    numbers = torch.Generator().manual_seed(seed)
    top = 2 if dtype == torch.bool else 256
    data = torch.randint(top, (torch.Size(shape).numel() * dtype.itemsize,), generator=numbers, dtype=torch.uint8)
    return data.view(dtype).view(shape)


def content(weight: torch.Tensor) -> bytes:
    return weight.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@given(st.lists(st.tuples(shapes, st.sampled_from(DTYPES), st.integers(0, 99)), max_size=12), st.integers(1, 200))
def test_weights_come_out_as_they_went_in(specs: list, bucket_size: int):
    weights = [(f"w{i}", of_bytes(*spec)) for i, spec in enumerate(specs)]
    out = [pair for bucket in pack(weights, bucket_size) for pair in unpack(bucket.entries, bucket.payload.clone())]
    assert [name for name, _ in out] == [name for name, _ in weights]
    for (_, got), (_, sent) in zip(out, weights, strict=True):
        assert got.shape == sent.shape
        assert got.dtype == sent.dtype
        assert content(got) == content(sent)


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 200))
def test_only_a_weight_alone_exceeds_the_size_of_a_bucket(sizes: list[int], bucket_size: int):
    weights = [(f"w{i}", torch.zeros(size, dtype=torch.uint8)) for i, size in enumerate(sizes)]
    buckets = list(pack(weights, bucket_size))
    assert all(len(bucket.payload) <= bucket_size or len(bucket.entries) == 1 for bucket in buckets)
    # No bucket could have taken the first weight of the next one.
    for bucket, following in pairwise(buckets):
        assert not bucket.has_room(torch.empty(following.entries[0].shape, dtype=torch.uint8))


@pytest.mark.parametrize(
    "weight",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::2],
        torch.ones(1).expand(4),
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.tensor(7),
    ],
    ids=["transposed", "strided", "expanded", "parameter", "scalar"],
)
def test_any_layout_is_packed_by_value(weight: torch.Tensor):
    (bucket,) = pack([("w", weight)], 1000)
    ((_, got),) = unpack(bucket.entries, bucket.payload)
    assert torch.equal(got, weight.detach())
    assert not got.requires_grad


def test_a_bucket_holds_copies():
    memory = torch.zeros(3)

    def reused():
        for i in range(3):
            yield f"w{i}", memory.fill_(i)

    (bucket,) = pack(reused(), 1000)
    got = [weight.tolist() for _, weight in unpack(bucket.entries, bucket.payload)]
    assert got == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
