# SPDX-License-Identifier: Apache-2.0
"""No way of writing what is no product is cheaper than the plain one, nor dearer where a GPU runs the same kernels."""

from functools import cache

import pytest
import torch
import torch.nn.functional as F

from tests.env.ops.ways import ATEN, FAMILIES, SPACE, n, t
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.cpu.cuda_shim import CudaAsCpu
from verl_kernel.env.devices.op_recorder import OpRecorder, whole
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import event_ms
from verl_kernel.env.true_size.dataless import DatalessMode

H100 = Machine.of("h100")
CHEAPEST, DEAREST = 0.8, 1.3
"""What another way may cost, over the plain one."""
SHAPES = [(4096, 4096), (64, 65536), (32768, 128)]


def ms(run, mode=torch.no_grad):
    found = []
    with mode(), DatalessMode(SPACE), OpRecorder(found):
        run()
    assert found, [event.name for event in found]
    assert all(event.priced for event in found), [event.name for event in found]
    return sum(event_ms(event, H100) for event in found)


WAYS = [(family, way) for family, ways in FAMILIES.items() for way in ways if way != "plain"]


@cache
def plain_ms(family, shape):
    return ms(lambda: FAMILIES[family]["plain"](*shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("family", "way"), WAYS)
def test_another_way_is_no_cheaper(family, way, shape):
    other = FAMILIES[family][way]
    assert ms(lambda: other(*shape)) >= CHEAPEST * plain_ms(family, shape)


def attention(size, dtype):
    q, size = t(4, 8, size, 64, dtype=dtype), size
    plain = F.scaled_dot_product_attention
    return {
        "plain": lambda: plain(q, q, q),
        "by keyword": lambda: plain(query=q, key=q, value=q, scale=0.1),
        "causal": lambda: plain(q, q, q, is_causal=True),
        "with a mask": lambda: plain(q, q, q, attn_mask=t(size, size, dtype=dtype)),
        "one op": lambda: ATEN._scaled_dot_product_flash_attention_for_cpu(q, q, q),
        "its parts": lambda: ATEN._scaled_dot_product_attention_math(q, q, q),
        "by hand": lambda: (q @ q.transpose(-1, -2) * 0.1).softmax(-1) @ q,
        "baddbmm": lambda: (
            torch.baddbmm(t(1, size, size, dtype=dtype), q.view(-1, size, 64), q.view(-1, size, 64).transpose(1, 2))
            .softmax(-1) @ q.view(-1, size, 64)
        ),
        "einsum": lambda: torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, q).softmax(-1), q),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("size", [64, 1024])
def test_attention_in_parts_is_no_cheaper(size, dtype):
    ways = attention(size, dtype)
    assert min(map(ms, ways.values())) >= CHEAPEST * ms(ways["plain"])


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


@pytest.mark.parametrize("shape", [(4096, 4096), (32768, 512)], ids=str)
def test_a_normalisation_by_another_op_is_no_cheaper(shape):
    ways = norms(*shape)
    assert min(map(ms, ways.values())) >= CHEAPEST * ms(ways["plain"])


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


@pytest.mark.parametrize("size", [2, 8])
def test_a_window_by_another_op_is_no_cheaper(size):
    ways = windows(size)
    assert min(map(ms, ways.values())) >= CHEAPEST * ms(ways["plain"])


SAME = [
    ("sums", "addmv"), ("sums", "vector of ones"), ("unary", "logsigmoid"), ("unary", "rrelu"),
    ("unary", "batch norm that learns nothing"), ("unary", "native batch norm"), ("unary", "and without weights"),
    ("copies", "copies of a list"), ("copies", "nearest"), ("copies", "slice_copy"), ("pairs", "silu_backward"),
    ("logits", "at once"), ("stores", "index_copy"),
]  # fmt: skip


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(("family", "way"), SAME)
def test_another_way_for_the_same_kernels_is_no_dearer(family, way, mode):
    plain, other = FAMILIES[family]["plain"], FAMILIES[family][way]
    assert ms(lambda: other(32768, 128), mode) <= DEAREST * ms(lambda: plain(32768, 128), mode)


@pytest.mark.parametrize(
    ("way", "plain"),
    [
        (lambda: t(4096, 4096).trace(), lambda: t(4096, 4096).diagonal().sum()),
        (lambda: F.nll_loss(t(32768, 128), n(32768), reduction="none"), lambda: t(32768, 128).gather(1, n(32768, 1))),
        (lambda: F.nll_loss(t(8, 64, 64, 64), n(8, 64, 64)), lambda: t(8, 64, 64, 64).gather(1, n(8, 1, 64, 64))),
        (lambda: t(4096, 4096).put_(n(8), t(8)), lambda: t(8).put_(n(8), t(8))),
        (lambda: ATEN.select_copy(t(4096, 4096), 0, 0), lambda: t(4096).clone()),
        (lambda: torch._foreach_exp([t(512) for _ in range(4096)]), lambda: t(512 * 4096).exp()),
        (lambda: whole(torch.rms_norm, (t(4096, 4096), (4096,)), {}), lambda: F.layer_norm(t(4096, 4096), (4096,))),
    ],
)
def test_what_reads_a_part_is_no_dearer_than_that_part(way, plain):
    assert ms(way) <= DEAREST * ms(plain)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_bilinear_interpolation_is_one_kernel_in_either_mode(mode):
    found = []
    with mode(), OpRecorder(found):
        F.interpolate(torch.ones(1, 2, 8, 8), scale_factor=2, mode="bilinear")
    assert [event.name for event in found if event.name != "aten::ones"] == ["aten::upsample_bilinear2d"]


def test_an_rms_module_costs_what_the_function_does():
    x, found = torch.ones(64, 128), {}
    module = torch.nn.RMSNorm(128, elementwise_affine=False)
    calls = {"module": module, "function": lambda x: torch.rms_norm(input=x, normalized_shape=(128,))}
    for name, call in calls.items():
        with torch.no_grad(), resolve_device("cpu").record() as events, CudaAsCpu():
            call(x)
        found[name] = [event.name for event in events]
    assert found["module"] == found["function"] == ["aten::rms_norm"]
