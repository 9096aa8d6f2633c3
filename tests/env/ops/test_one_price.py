# SPDX-License-Identifier: Apache-2.0
"""No call has two prices: the same work costs no less by another op, and as much however its arguments are written.

Nor is a way dearer where a GPU runs the same kernels.
"""

from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env.ops.test_prices import tensor
from tests.env.ops.ways import ATEN, FAMILIES, SPACE, n, t
from tests.tiers import one_of_each, thinned
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cpu.cuda_shim import CudaAsCpu
from verl_kernel.env.devices.op_recorder import OpRecorder, whole
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import event_ms
from verl_kernel.env.true_size.dataless import DatalessMode

H100 = MachineModel.of("h100")
CHEAPEST, DEAREST = 0.8, 1.3
"""What another way may cost, over the plain one."""
DEPTHS, WIDTHS = st.sampled_from([64, 512, 4096]), st.sampled_from([128, 1024, 4096])
SHAPES = [(4096, 4096), (64, 65536), (32768, 128)]
WAYS = [(family, way, shape) for family, ways in FAMILIES.items() for way in ways if way != "plain" for shape in SHAPES]
SAME = [
    ("sums", "addmv"), ("sums", "vector of ones"), ("unary", "logsigmoid"), ("unary", "rrelu"),
    ("unary", "batch norm that learns nothing"), ("unary", "native batch norm"), ("unary", "and without weights"),
    ("copies", "copies of a list"), ("copies", "nearest"), ("copies", "slice_copy"), ("pairs", "silu_backward"),
    ("logits", "at once"), ("stores", "index_copy"),
]  # fmt: skip


def ms(run, mode=torch.no_grad, memory=None):
    """What a forward costs on tensors as a CPU dispatches them, or as `memory` does, without data."""
    found = []
    with mode(), memory or DatalessMode(SPACE), OpRecorder(found):
        run()
    assert found
    assert all(event.priced for event in found), [event.name for event in found]
    return sum(event_ms(event, H100) for event in found)


meta_ms = partial(ms, memory=torch.device("meta"))
numbers, complex_numbers = (partial(tensor, dtype=dtype) for dtype in (torch.int64, torch.complex64))
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
    "complex, half of columns": lambda a, b: complex_numbers(*a.shape) @ complex_numbers(b.shape[0], b.shape[1] // 2),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(PRODUCTS, 9))
@settings(max_examples=10)
@given(st.tuples(WIDTHS, DEPTHS, WIDTHS), st.integers(0, 2))
def test_a_product_by_another_op_or_twice_is_no_cheaper(name, sizes, grown):
    def product_ms(run, rows, depth, columns):
        a, b = tensor(rows, depth), tensor(depth, columns)
        return meta_ms(lambda: run(a, b))

    once = product_ms(PRODUCTS[name], *sizes)
    assert once >= CHEAPEST * product_ms(torch.matmul, *sizes)
    larger = [size * (2 if place == grown else 1) for place, size in enumerate(sizes)]
    assert product_ms(PRODUCTS[name], *larger) >= 0.95 * once  # more blocks may fill the last round better


def test_distances_of_many_rows_are_a_product():
    a, b = tensor(2048, 1024), tensor(2048, 1024)
    by_hand = meta_ms(lambda: (((a * a).sum(1)[:, None] + (b * b).sum(1)) - 2 * (a @ b.t())).clamp_min(0.0).sqrt())
    assert 0.8 < meta_ms(lambda: torch.cdist(a, b)) / by_hand < 1.25


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


@pytest.mark.parametrize("name", thinned(STORES, 5))
def test_a_store_by_index_is_no_cheaper_than_a_plain_one(name):
    x = tensor(4096, 4096)
    assert meta_ms(lambda: STORES[name](x, numbers(4096))) >= meta_ms(lambda: x.fill_(0.0))


@pytest.mark.parametrize("name", ["index_fill_", "index_put_, a row"])
def test_few_rows_are_a_small_store(name):
    x = tensor(4096, 4096)
    assert meta_ms(lambda: STORES[name](x, numbers(8))) < 0.5 * meta_ms(lambda: x.fill_(0.0))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(CALLS, 6))
@given(st.integers(0, 9))
@settings(max_examples=10)
def test_a_whole_layer_costs_the_same_by_place_and_by_keyword(name, places):
    given_ = CALLS[name](name)
    function, by_place = getattr(torch, name), list(given_.values())[:places]
    by_name = dict(list(given_.items())[places:])
    plain = meta_ms(lambda: whole(function, tuple(given_.values()), {}))
    assert meta_ms(lambda: whole(function, tuple(by_place), by_name)) == plain


def test_a_packed_layer_costs_the_same_by_keyword():
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 8), [5, 3])
    arguments = {
        "data": packed.data, "batch_sizes": packed.batch_sizes, "hx": torch.zeros(1, 2, 8),
        "params": [torch.randn(24, 8), torch.randn(24, 8)], "has_biases": False, "num_layers": 1, "dropout": 0.0,
        "train": False, "bidirectional": False,
    }  # fmt: skip
    by_place, by_name = [], []
    with OpRecorder(by_place):
        whole(torch.gru, tuple(arguments.values()), {})
    with OpRecorder(by_name):
        whole(torch.gru, (), arguments)
    assert [event.flops for event in by_name] == [event.flops for event in by_place] != [0]


@cache
def family_ms(family, way, shape):
    return ms(lambda: FAMILIES[family][way](*shape))


@pytest.mark.parametrize("case", one_of_each(WAYS, key=lambda case: case[0]), ids=str)
def test_another_way_is_no_cheaper(case):
    family, _, shape = case
    assert family_ms(*case) >= CHEAPEST * family_ms(family, "plain", shape)


def attention(size, dtype):
    q = t(4, 8, size, 64, dtype=dtype)
    plain, heads = F.scaled_dot_product_attention, q.view(-1, size, 64)
    return {
        "plain": lambda: plain(q, q, q),
        "by keyword": lambda: plain(query=q, key=q, value=q, scale=0.1),
        "causal": lambda: plain(q, q, q, is_causal=True),
        "with a mask": lambda: plain(q, q, q, attn_mask=t(size, size, dtype=dtype)),
        "one op": lambda: ATEN._scaled_dot_product_flash_attention_for_cpu(q, q, q),
        "its parts": lambda: ATEN._scaled_dot_product_attention_math(q, q, q),
        "by hand": lambda: (q @ q.transpose(-1, -2) * 0.1).softmax(-1) @ q,
        "baddbmm": lambda: (
            torch.baddbmm(t(1, size, size, dtype=dtype), heads, heads.transpose(1, 2)).softmax(-1) @ heads
        ),
        "einsum": lambda: torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, q).softmax(-1), q),
    }


def norms(rows, size):
    x, bare = t(rows, size), {"eps": 1e-5}
    return {
        "plain": lambda: F.layer_norm(x, (size,)),
        "with weights": lambda: F.layer_norm(x, (size,), t(size), t(size)),
        "by keyword": lambda: ATEN.native_layer_norm(input=x, normalized_shape=[size], weight=None, bias=None, **bare),
        "one group": lambda: F.group_norm(x[:, :, None], 1),
        "instances": lambda: F.instance_norm(x[None]),
        "batches": lambda: F.batch_norm(x[None], None, None, None, None, True),
        "by hand": lambda: (x - x.mean(1, True)) * (x.var(1, keepdim=True) + 1e-5).rsqrt(),
        "var_mean": lambda: (x - torch.var_mean(x, 1, keepdim=True)[1]) * t(rows, 1),
        "root mean squares by hand": lambda: x * (x.square().mean(1, True) + 1e-5).rsqrt(),
        "renorm": lambda: x.renorm(2, 0, 1.0),
        "root mean squares": lambda: whole(torch.rms_norm, (x, (size,)), {}),
    }


def windows(size):
    x = t(16, 64, 128, 128)
    return {
        "plain": lambda: x.view(16, 64, 128 // size, size, 128 // size, size).mean((3, 5)),
        "avg_pool2d": lambda: F.avg_pool2d(x, size),
        "avg_pool3d": lambda: F.avg_pool3d(x, (1, size, size)),
        "by keyword": lambda: ATEN.avg_pool2d(self=x, kernel_size=[size]),
        "adaptive": lambda: F.adaptive_avg_pool2d(x, 128 // size),
        "adaptive in three dimensions": lambda: F.adaptive_avg_pool3d(x, (64, 128 // size, 128 // size)),
        "max_pool2d": lambda: F.max_pool2d(x, size),
        "adaptive maxima": lambda: F.adaptive_max_pool2d(x, 128 // size),
        "area": lambda: F.interpolate(x, size=128 // size, mode="area"),
        "convolution": lambda: F.conv2d(x, t(64, 1, size, size), stride=size, groups=64),
        "unfold": lambda: F.unfold(x, size, stride=size).view(16, 64, size * size, -1).mean(2),
    }


@pytest.mark.parametrize(("ways", "sizes"), [
    *((attention, (size, dtype)) for size in (64, 1024) for dtype in (torch.float32, torch.float16)),
    (norms, (4096, 4096)), (norms, (32768, 512)), (windows, (2,)), (windows, (8,)),
])  # fmt: skip
def test_attention_norms_and_windows_otherwise_are_no_cheaper(ways, sizes):
    ways = ways(*sizes)
    assert min(map(ms, ways.values())) >= CHEAPEST * ms(ways["plain"])


@pytest.mark.parametrize("mode", thinned([torch.no_grad, torch.inference_mode], 2))
@pytest.mark.parametrize(("family", "way"), SAME)
def test_another_way_for_the_same_kernels_is_no_dearer(family, way, mode):
    plain, other = FAMILIES[family]["plain"], FAMILIES[family][way]
    assert ms(lambda: other(32768, 128), mode) <= DEAREST * ms(lambda: plain(32768, 128), mode)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "plain"), [
    (lambda: t(4096, 4096).trace(), lambda: t(4096, 4096).diagonal().sum()),
    (lambda: F.nll_loss(t(32768, 128), n(32768), reduction="none"), lambda: t(32768, 128).gather(1, n(32768, 1))),
    (lambda: F.nll_loss(t(8, 64, 64, 64), n(8, 64, 64)), lambda: t(8, 64, 64, 64).gather(1, n(8, 1, 64, 64))),
    (lambda: t(4096, 4096).put_(n(8), t(8)), lambda: t(8).put_(n(8), t(8))),
    (lambda: ATEN.select_copy(t(4096, 4096), 0, 0), lambda: t(4096).clone()),
    (lambda: torch._foreach_exp([t(512) for _ in range(4096)]), lambda: t(512 * 4096).exp()),
    (lambda: whole(torch.rms_norm, (t(4096, 4096), (4096,)), {}), lambda: F.layer_norm(t(4096, 4096), (4096,))),
])  # fmt: skip
def test_what_reads_a_part_is_no_dearer_than_that_part(way, plain):
    assert ms(way) <= DEAREST * ms(plain)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_bilinear_interpolation_is_one_kernel_in_either_mode(mode):
    found = []
    with mode(), OpRecorder(found):
        F.interpolate(torch.ones(1, 2, 8, 8), scale_factor=2, mode="bilinear")
    assert [event.name for event in found if event.name != "aten::ones"] == ["aten::upsample_bilinear2d"]


def test_an_rms_module_costs_what_the_function_does():
    module, found = torch.nn.RMSNorm(128, elementwise_affine=False), []
    for call in (module, lambda x: torch.rms_norm(input=x, normalized_shape=(128,))):
        with torch.no_grad(), resolve_device("cpu").record() as events, CudaAsCpu():
            call(torch.ones(64, 128))
        found.append([event.name for event in events if event.name != "aten::ones"])
    assert found == [["aten::rms_norm"]] * 2
