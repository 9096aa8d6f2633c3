# SPDX-License-Identifier: Apache-2.0
"""No call has two prices: the same work costs as much whichever op does it, and however its arguments are written."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.ops.test_prices import tensor
from verl_kernel.env.devices.op_recorder import OpRecorder, whole
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import event_ms

H100 = Machine.of("h100")
CHEAPEST = 0.8
"""The least that another way may cost, over the plain one."""
DEPTHS, WIDTHS = st.sampled_from([64, 512, 4096]), st.sampled_from([128, 1024, 4096])


def ms(run):
    """What a forward on tensors without data costs."""
    found = []
    with torch.no_grad(), torch.device("meta"), OpRecorder(found):
        run()
    assert all(event.priced for event in found)
    return sum(event_ms(event, H100) for event in found)


def numbers(*shape):
    return tensor(*shape, dtype=torch.int64)


def complex_numbers(*shape):
    return tensor(*shape, dtype=torch.complex64)


PRODUCTS = {
    "linear": lambda a, b: F.linear(a, b.t()),
    "addmm": lambda a, b: torch.addmm(tensor(b.shape[1]), a, b),
    "batch of one": lambda a, b: a[None] @ b[None],
    "baddbmm": lambda a, b: torch.baddbmm(tensor(1, 1, b.shape[1]), a[None], b[None]),
    "addbmm": lambda a, b: torch.addbmm(tensor(a.shape[0], b.shape[1]), a[None], b[None]),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "a bag for each row": lambda a, b: F.embedding_bag(numbers(*a.shape), b, mode="sum", per_sample_weights=a),
    "bags end to end": lambda a, b: F.embedding_bag(
        numbers(a.numel()), b, numbers(a.shape[0]), mode="sum", per_sample_weights=a.reshape(-1)
    ),
    "bags by keyword": lambda a, b: torch.embedding_bag(
        weight=b, indices=numbers(a.numel()), offsets=numbers(a.shape[0]), per_sample_weights=a.reshape(-1)
    ),
    "a convolution": lambda a, b: F.conv1d(a.t()[None], b.t()[:, :, None]),
    "a convolution of images": lambda a, b: F.conv2d(a[:, :, None, None], b.t()[:, :, None, None]),
    "a transposed convolution": lambda a, b: F.conv_transpose1d(a.t()[None], b[:, :, None]),
    "distances": lambda a, b: torch.cdist(a, b.t()),
    "differences": lambda a, b: torch.cdist(a, b.t(), compute_mode="donot_use_mm_for_euclid_dist"),
    "bilinear": lambda a, b: F.bilinear(a, tensor(a.shape[0], 1), b.t()[:, :, None]),
    "complex": lambda a, b: complex_numbers(*a.shape) @ complex_numbers(*b.shape),
    "complex, half of the columns": lambda a, b: (
        complex_numbers(*a.shape) @ complex_numbers(b.shape[0], b.shape[1] // 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=10, deadline=None)
@given(WIDTHS, DEPTHS, WIDTHS)
def test_a_product_by_another_op_is_no_cheaper(name, rows, depth, columns):
    a, b = tensor(rows, depth), tensor(depth, columns)
    assert ms(lambda: PRODUCTS[name](a, b)) >= CHEAPEST * ms(lambda: a @ b)


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=10, deadline=None)
@given(WIDTHS, DEPTHS, WIDTHS, st.integers(0, 2))
def test_twice_the_product_is_no_cheaper(name, rows, depth, columns, grown):
    rows_2, depth_2, columns_2 = (
        size * (2 if place == grown else 1) for place, size in enumerate((rows, depth, columns))
    )
    one = ms(lambda: PRODUCTS[name](tensor(rows, depth), tensor(depth, columns)))
    twice = ms(lambda: PRODUCTS[name](tensor(rows_2, depth_2), tensor(depth_2, columns_2)))
    assert twice >= 0.95 * one  # more blocks may fill the last round better


def test_distances_of_many_rows_are_a_product():
    a, b = tensor(2048, 1024), tensor(2048, 1024)
    by_hand = ms(lambda: (((a * a).sum(1)[:, None] + (b * b).sum(1)) - 2 * (a @ b.t())).clamp_min(0.0).sqrt())
    assert 0.8 < ms(lambda: torch.cdist(a, b)) / by_hand < 1.25


STORES = {
    "index_fill_": lambda x, i: x.index_fill_(0, i, 0.0),
    "index_put_, a number": lambda x, i: x.index_put_((i,), torch.tensor(0.0)),
    "index_put_, a row": lambda x, i: x.index_put_((i,), tensor(x.shape[1])),
    "index_put_, two indices": lambda x, i: x.index_put_((i[:, None], numbers(x.shape[1])), torch.tensor(0.0)),
    "index_put_, by column": lambda x, i: torch.ops.aten.index_put_(x, [None, numbers(x.shape[1])], torch.tensor(0.0)),
    "index_put_, a mask": lambda x, i: x.index_put_((tensor(*x.shape, dtype=torch.bool),), torch.tensor(0.0)),
    "index_put_, a mask of rows": lambda x, i: x.index_put_((tensor(x.shape[0], dtype=torch.bool),), torch.tensor(0.0)),
    "scatter_": lambda x, i: x.scatter_(0, numbers(*x.shape), 0.0),
    "index_copy_": lambda x, i: x.index_copy_(0, i, tensor(1, 1).expand(x.shape)),
    "masked_fill_": lambda x, i: x.masked_fill_(tensor(*x.shape, dtype=torch.bool), 0.0),
}


@pytest.mark.parametrize("name", STORES)
def test_a_store_by_index_is_no_cheaper_than_a_plain_one(name):
    x = tensor(4096, 4096)
    assert ms(lambda: STORES[name](x, numbers(4096))) >= ms(lambda: x.fill_(0.0))


@pytest.mark.parametrize("name", ["index_fill_", "index_put_, a row"])
def test_few_rows_are_a_small_store(name):
    x = tensor(4096, 4096)
    assert ms(lambda: STORES[name](x, numbers(8))) < 0.5 * ms(lambda: x.fill_(0.0))


def test_a_mask_names_where_it_is_true():
    x, mask, events = torch.zeros(100, 8), torch.zeros(100, dtype=torch.bool), []
    mask[:3] = True
    with OpRecorder(events):
        x.index_put_((mask,), torch.tensor(0.0))
    assert events[-1].bytes == 100 + 4 + 3 * 8 * 4


def layer(kind, width=64):
    gates = {"gru": 3, "lstm": 4, "rnn_tanh": 1, "rnn_relu": 1}[kind]
    state = tensor(1, 8, width)
    return {
        "input": tensor(32, 8, width), "hx": [state, state] if kind == "lstm" else state,
        "params": [tensor(gates * width, width), tensor(gates * width, width)], "has_biases": False, "num_layers": 1,
        "dropout": 0.0, "train": False, "bidirectional": False, "batch_first": False,
    }  # fmt: skip


def cell(kind, width=64):
    gates, state = {"gru_cell": 3, "lstm_cell": 4}[kind], tensor(8, width)
    return {
        "input": state, "hx": [state, state] if kind == "lstm_cell" else state, "w_ih": tensor(gates * width, width),
        "w_hh": tensor(gates * width, width), "b_ih": None, "b_hh": None,
    }  # fmt: skip


CALLS = {**{name: layer for name in ("gru", "lstm", "rnn_tanh", "rnn_relu")}, "gru_cell": cell, "lstm_cell": cell}


@pytest.mark.parametrize("name", CALLS)
@given(st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_a_whole_layer_costs_the_same_by_place_and_by_keyword(name, places):
    given_ = CALLS[name](name)
    function, by_place = getattr(torch, name), list(given_.values())[:places]
    by_name = dict(list(given_.items())[places:])
    plain = ms(lambda: whole(function, tuple(given_.values()), {}))
    assert ms(lambda: whole(function, tuple(by_place), by_name)) == plain


def test_a_packed_layer_costs_the_same_by_keyword():
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 8), [5, 3])
    states, weights = torch.zeros(1, 2, 8), [torch.randn(24, 8), torch.randn(24, 8)]
    options = (False, 1, 0.0, False, False)
    names = ("has_biases", "num_layers", "dropout", "train", "bidirectional")
    by_place, by_name = [], []
    with OpRecorder(by_place):
        whole(torch.gru, (packed.data, packed.batch_sizes, states, weights, *options), {})
    with OpRecorder(by_name):
        tensors = {"data": packed.data, "batch_sizes": packed.batch_sizes, "hx": states, "params": weights}
        whole(torch.gru, (), {**tensors, **dict(zip(names, options, strict=True))})
    assert [event.flops for event in by_name] == [event.flops for event in by_place] != [0]
