# SPDX-License-Identifier: Apache-2.0
"""Bytes and operations of torch ops against counts made by hand; and the table of ops, with a row for each."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.ops.table import OPS, TorchOp, Trait, _rows, op_of, row_of
from verl_kernel.env.tamper.trace_checks import is_moving

X = torch.randn(6, 8)
Y = torch.randn(6, 8)
N = 48
EMBEDDING = torch.randn(1000, 8)
INDEX = torch.tensor([1, 5, 7])
HEADS = [torch.ones(1, 1, 4, 8)] * 3
MOVING = ["aten::copy_", "aten::fill", "aten::tril_", "aten::zero", "aten::put", "aten::cat"]


def trace(run):
    with torch.no_grad(), resolve_device("cpu").record() as events:
        run()
    return events


@pytest.mark.parametrize(("run", "size"), [
    (lambda: X + Y, 3 * 4 * N),
    (lambda: X * 2.0, 2 * 4 * N),
    (lambda: X * X, 2 * 4 * N),
    (lambda: X.clone().add_(Y), (2 + 3) * 4 * N),
    (lambda: X + torch.ones(8), 4 * 8 + 4 * (N + 8 + N)),
    (lambda: X + Y[:1].expand(6, 8), 4 * (N + 8 + N)),
    (lambda: torch.zeros(6, 8), 4 * N),
    (lambda: torch.zeros_like(X), 4 * N),
    (lambda: torch.full((6, 8), 3.0), 4 * N),
    (lambda: torch.empty(6, 8).fill_(1.0), 4 * N),
    (lambda: torch.empty_like(X).copy_(Y), 2 * 4 * N),
    (lambda: X.t().contiguous(), 2 * 4 * N),
    (lambda: X.half(), (4 + 2) * N),
    (lambda: X.sum(), 4 * N + 4),
    (lambda: X.sum(-1), 4 * N + 4 * 6),
    (lambda: torch.softmax(X, -1), 2 * 4 * N),
    (lambda: torch.cat([X, Y]), 4 * 4 * N),
    (lambda: X > 0, (4 + 1) * N),
    (lambda: F.embedding(INDEX, EMBEDDING), 3 * 8 + 2 * 3 * 8 * 4),
    (lambda: EMBEDDING[INDEX], 3 * 8 + 2 * 3 * 8 * 4),
    (lambda: EMBEDDING.index_add_(0, INDEX, torch.ones(3, 8)), 4 * 3 * 8 + 3 * 8 + 3 * 8 * 4 + 2 * 3 * 8 * 4),
    (lambda: torch._foreach_add_([torch.empty(4)], 1.0), 2 * 4 * 4),
    (lambda: torch.add(X, Y, out=torch.empty(6, 8)), 3 * 4 * N),
])  # fmt: skip
def test_bytes(run, size):
    assert sum(event.bytes for event in trace(run)) == size


@pytest.mark.parametrize("run", [
    lambda: X.view(-1),
    lambda: X.t()[1:, ::2].unsqueeze(0).expand(3, -1, -1).detach(),
    lambda: X.reshape(8, 6).chunk(2),
    lambda: torch.empty(5),
    lambda: torch.empty_like(X).transpose_(0, 1),
    lambda: X.contiguous(),
    lambda: F.dropout(X, 0.5, training=False),
    lambda: torch.zeros(0) + 1,
    lambda: X.shape[0] * X.stride(0),
])  # fmt: skip
def test_views_and_allocation_are_free(run):
    assert trace(run) == []


def test_a_mask_by_keyword_is_read_and_causal_takes_as_long():
    attention, mask = F.scaled_dot_product_attention, torch.zeros(4, 4)
    (bare,) = trace(lambda: attention(*HEADS))
    (masked,) = trace(lambda: attention(*HEADS, attn_mask=mask))
    (causal,) = trace(lambda: attention(*HEADS, is_causal=True))
    assert masked.bytes - bare.bytes == 4 * 4 * 4
    assert causal.steps[0].flops == bare.steps[0].flops


@pytest.mark.parametrize(("run", "flops", "half"), [
    (lambda: X @ Y.t(), 2 * 6 * 8 * 6, 0),
    (lambda: X.half() @ Y.t().half(), 2 * 6 * 8 * 6, 2 * 6 * 8 * 6),
    (lambda: torch.nn.functional.linear(X, Y, torch.ones(6)), 2 * 6 * 8 * 6, 0),
    (lambda: torch.bmm(X[None], Y.t()[None]), 2 * 6 * 8 * 6, 0),
    (lambda: F.conv2d(torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3)), 2 * 3 * 9 * 2 * 9, 0),
    (lambda: F.scaled_dot_product_attention(*HEADS), 2 * 2 * 4 * 4 * 8, 0),
    (lambda: F.scaled_dot_product_attention(*HEADS, is_causal=True), 2 * 4 * 4 * 8, 0),
    (lambda: X.exp(), N, 0),
    (lambda: X.sum(), N, 0),
])  # fmt: skip
def test_flops(run, flops, half):
    event = trace(run)[-1]
    assert (event.flops, event.half_flops) == (flops, half)


def test_names_carry_the_overload():
    assert [event.name for event in trace(lambda: torch.relu(X + Y))] == ["aten::add.Tensor", "aten::relu"]


@given(st.lists(st.integers(0, 5), max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_broadcast_dimensions_are_read_once(shape, broadcast):
    stored = [1 if flag else size for size, flag in zip(shape, broadcast, strict=False)]
    source = torch.ones(stored)
    target = torch.empty(shape)
    events = trace(lambda: target.copy_(source.expand(shape)))
    distinct = source.numel() if target.numel() else 0
    assert sum(event.bytes for event in events) == 4 * (distinct + target.numel())


IMAGE = torch.randn(2, 3, 8, 8)
VECTOR, BATCHES, ATEN = torch.randn(8), (torch.ones(2, 3, 5), torch.ones(2, 5, 4)), torch.ops.aten
PRICES = {
    "mv": (lambda: X @ VECTOR, 2 * 48),
    "addmv": (lambda: torch.addmv(torch.ones(6), X, VECTOR), 2 * 48),
    "dot": (lambda: VECTOR @ VECTOR, 2 * 8),
    "outer": (lambda: torch.outer(VECTOR, VECTOR), 64),
    "addr": (lambda: torch.addr(torch.ones(8, 8), VECTOR, VECTOR), 2 * 64),
    "baddbmm": (lambda: torch.baddbmm(torch.ones(2, 3, 4), *BATCHES), 2 * 2 * 3 * 5 * 4),
    "addbmm": (lambda: torch.addbmm(torch.ones(3, 4), *BATCHES), 2 * 2 * 3 * 5 * 4),
    "einsum": (lambda: torch.einsum("ab,cb->ac", X, Y), 2 * 6 * 8 * 6),
    "linalg": (lambda: torch.linalg.matmul(X, Y.t()), 2 * 6 * 8 * 6),
    "distances": (lambda: torch.cdist(X, Y), 3 * 36 * 8),
    "bilinear": (lambda: F.bilinear(X, X, torch.ones(5, 8, 8)), 3 * 6 * 8 * 8 * 5),
    "transposed convolution": (lambda: F.conv_transpose2d(IMAGE, torch.ones(3, 5, 2, 2)), 2 * 2 * 64 * 3 * 5 * 4),
    "max pooling": (lambda: F.max_pool2d(IMAGE, 2), 2 * 3 * 16 * 4),
    "pooling in one dimension": (lambda: F.avg_pool1d(IMAGE[0], 4), 3 * 8 * 2 * 4),
    "sort": (lambda: X.sort(-1), 48 * 3),
    "largest": (lambda: X.topk(2, -1), 48 * 3),
    "upsampling": (lambda: F.interpolate(IMAGE, scale_factor=2, mode="bilinear"), 8 * 2 * 3 * 16 * 16),
    "batch norm": (lambda: F.batch_norm(IMAGE, None, None, training=True), IMAGE.numel()),
    "layer norm": (lambda: F.layer_norm(X, (8,)), 48),
    "running sum": (lambda: X.cumsum(-1), 48),
    "gather": (lambda: EMBEDDING.gather(0, INDEX[:, None]), EMBEDDING.numel()),
    "in place": (lambda: X.clone().sigmoid_(), 48),
    "a quotient of whole numbers": (lambda: INDEX // 2, INDEX.numel()),
    "the gradient of softmax": (lambda: ATEN._softmax_backward_data(X, X, -1, X.dtype), 48),
    "the gradient of a window": (
        lambda: ATEN.avg_pool2d_backward(IMAGE[..., ::2, ::2], IMAGE, [2, 2], [2, 2], [0, 0], False, True, None),
        IMAGE.numel(),
    ),
    "many at once": (lambda: torch._foreach_mul_([X.clone()], 2.0), 48),
}


@pytest.mark.parametrize("run, flops", PRICES.values(), ids=PRICES)
def test_prices(run, flops):
    event = trace(run)[-1]
    assert event.priced
    assert event.flops == flops


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (2, True)])
def test_a_recurrent_layer_is_one_kernel(device, kind, layers, both):
    x, layer = torch.randn(5, 3, 8), kind(8, 8, layers, bidirectional=both)
    events = [event for event in trace(lambda: layer(x)) if event.name != "aten::zeros"]
    weights = [weight.numel() for weight in layer.parameters() if weight.dim() == 2]
    assert len(events) == layers * (1 + both)
    assert all(event.priced for event in events)
    assert sum(event.flops for event in events) == 2 * 15 * sum(weights)
    floor = sum(4 * weight.numel() for weight in layer.parameters()) + 4 * x.numel() * (2 + both)
    assert sum(event.bytes for event in events) >= floor


@pytest.mark.parametrize("kind", [torch.nn.GRUCell, torch.nn.LSTMCell])
def test_a_recurrent_cell_is_two_products_and_a_kernel(device, kind):
    x, cell = torch.randn(3, 8), kind(8, 8)
    events = [event for event in trace(lambda: cell(x)) if event.name != "aten::zeros"]
    assert len(events) == 3
    assert sum(event.flops for event in events) == 2 * 3 * (cell.weight_ih.numel() + cell.weight_hh.numel())


def test_a_packed_sequence_is_priced_by_its_steps(device):
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 8), [5, 3])
    layer = torch.nn.GRU(8, 8)
    (event,) = [event for event in trace(lambda: layer(packed)) if event.name == "aten::gru"]
    assert event.flops == 2 * 8 * 2 * 24 * 8
    assert layer(torch.randn(5, 2, 8))[0].shape == (5, 2, 8)  # also while nobody records


@pytest.mark.parametrize("run", [
    lambda: torch.fft.fft(X), lambda: torch.linalg.inv(torch.eye(4) * 2), lambda: torch.linalg.svd(X),
    lambda: torch.linalg.matrix_exp(torch.eye(4)),
])  # fmt: skip
def test_what_is_not_known_has_no_price(run):
    assert any(not event.priced for event in trace(run))


def test_the_table_has_one_row_for_an_op_and_stays():
    with pytest.raises(ValueError, match="op exp has two rows"):
        _rows(("exp sin", TorchOp()), ("cos exp", TorchOp()))
    with pytest.raises(TypeError):
        OPS["add"] = TorchOp()
    left = {"_segment_reduce", "fake_quantize", "real_copy"}  # torch has them with other endings or no longer
    assert {name for name in OPS if not hasattr(ATEN, name)} <= left


def test_what_is_free_and_what_grows_is_told():
    assert not [name for name, op in OPS.items() if op.is_free and op.flops is not None]
    assert [name for name, op in OPS.items() if Trait.GROWS in op.traits] == ["resize_as", "resize"]


@pytest.mark.parametrize("name", [*MOVING, "aten::add_", "mine::copy_", "copy_", "", "::", "aten::"])
def test_an_op_that_moves_does_so_in_all_its_variants(name):
    assert is_moving(name) is (name in MOVING)


@pytest.mark.parametrize(("func", "place"), [(ATEN.fill_.Scalar, 0), (ATEN.bernoulli.default, None)])
def test_a_tensor_that_is_filled_in_place_is_not_read(func, place):
    assert op_of(func).unread_place(func._schema.name) == place


def test_only_a_pointwise_op_has_a_price_without_a_row():
    assert "atan2" not in OPS
    assert op_of(ATEN.atan2.default).flops is not None
    assert op_of(ATEN._fft_r2c.default).flops is None
    assert row_of("aten::t_").is_free
    assert row_of("aten::empty_like").is_free
