# SPDX-License-Identifier: Apache-2.0
"""The device kernels of torch ops: passes over memory, work on padding, blocks; from shapes alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.op_recorder import WHOLE, OpRecorder, whole
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import step_ms


def events_of(run):
    found = []
    with torch.no_grad(), torch.device("meta"), OpRecorder(found):
        run()
    return found


def steps_of(run):
    (event,) = events_of(run)
    return event.steps


def tensor(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


X = tensor(64, 1024)
BYTES = 4 * 64 * 1024


@pytest.mark.parametrize(("run", "moved", "access"), [
    (lambda: torch.relu(X), 2 * BYTES, "contiguous"),
    (lambda: X + tensor(64, 1024), 3 * BYTES, "contiguous"),
    (lambda: X * X, 2 * BYTES, "contiguous"),
    (lambda: X + tensor(1024), 2 * BYTES + 4096, "mixed"),
    (lambda: X * tensor(), 2 * BYTES + 4, "mixed"),
    (lambda: X + tensor(64, 1024, dtype=torch.float16), 2 * BYTES + BYTES // 2, "mixed"),
    (lambda: X.t().contiguous(), 2 * BYTES, "mixed"),
    (lambda: X.flip(1), 2 * BYTES, "mixed"),
    (lambda: torch.cat([X, tensor(64, 1024)]), 4 * BYTES, "mixed"),
    (lambda: torch.cat([tensor(64, 1), tensor(64, 1023)], 1), 2 * BYTES, "unaligned"),
    (lambda: X.sum(1), BYTES + 256, "reduction"),
    (lambda: X.cumsum(1), 2 * BYTES, "scan"),
    (lambda: torch.softmax(X, 1), 2 * BYTES, "reduction"),
    (lambda: tensor(64, 1024).zero_(), BYTES, "contiguous"),
    (lambda: tensor(64, 1024, dtype=torch.int32) >> 4, 2 * BYTES, "contiguous"),
    (lambda: tensor(64, 1024, dtype=torch.int32).__ilshift__(4), 2 * BYTES, "contiguous"),
])  # fmt: skip
def test_one_kernel(run, moved, access):
    (step,) = steps_of(run)
    assert (step.bytes, step.access) == (moved, access)


ROW, LONG = tensor(1 << 20), tensor(4, 16384)
IMAGE, SIZE = tensor(4, 16, 32, 32), 4 * 4 * 16 * 32 * 32
ATEN, ALL = torch.ops.aten, [True, True, True]


@pytest.mark.parametrize(("run", "blocks", "warps", "in_flight"), [
    (lambda: ROW.cummax(0), 1, 16, 1024 * 16),  # a value read, one written, an index of 8 bytes
    (lambda: tensor(8, 1 << 17).cumsum(1), 8, 16, 1024 * 8),
    (lambda: tensor(512, 4096).cumsum(-1), 64, 16, 1024 * 8),  # 64 threads a row
    (lambda: tensor(1 << 15, 1 << 15).cumsum(1), 1024, 16, 1024 * 8),
    (lambda: tensor(4096, 8).cumsum(1), 128, 16, 256 * 8),  # 16 threads for 8 elements
    (lambda: tensor(64, 1024).cumsum(0), 2, 16, 512 * 8),
    (lambda: tensor(16, 512, 64).logcumsumexp(1), 16, 2, 64 * 8),
    (lambda: tensor().cummin(0), 1, 16, 16),
])  # fmt: skip
def test_blocks_share_out_whole_rows_of_a_scan(run, blocks, warps, in_flight):
    (step,) = steps_of(run)
    assert (step.blocks, step.warps, step.in_flight, step.access) == (blocks, warps, in_flight, "scan")


def softmax_gradient(size):
    return lambda: ATEN._softmax_backward_data(tensor(*size), tensor(*size), 1, torch.float32)


def layer_norm_gradient():
    mean, weight = tensor(64, 1), tensor(1024)
    ATEN.native_layer_norm_backward(X, tensor(64, 1024), [1024], mean, tensor(64, 1), weight, tensor(1024), ALL)


def group_norm_gradient():
    mean = tensor(4, 4)
    ATEN.native_group_norm_backward(IMAGE, tensor(4, 16, 32, 32), mean, tensor(4, 4), tensor(16), 4, 16, 1024, 4, ALL)


SCANNED = dict(bytes=8 << 20, access="contiguous", blocks=2048, kernels=2)
# An op, and what is known of each of its kernels.
H100 = MachineModel.of("h100")
KERNELS = {
    "zeros of a large tensor's type": (lambda: X.new_zeros(16), [dict(bytes=64, instructions=16)]),
    "ones of it": (lambda: X.new_ones(16), [dict(bytes=64, instructions=16)]),
    "another number of it": (lambda: X.new_full((16,), 2.0), [dict(bytes=64, instructions=16)]),
    "a row's sums": (lambda: ROW.cumsum(0), [SCANNED]),
    "a row's products": (lambda: ROW[None].cumprod(1), [SCANNED]),
    "a row's logarithms": (lambda: ROW.logcumsumexp(0), [SCANNED]),
    "softmax": (lambda: torch.softmax(X, 1), [dict(bytes=2 * BYTES, repeated_bytes=0, blocks=64)]),
    "softmax of columns":
        (lambda: torch.softmax(X, 0), [dict(bytes=2 * BYTES, repeated_bytes=2 * BYTES, shared_bytes=BYTES)]),
    "softmax of long rows":
        (lambda: torch.log_softmax(LONG, 1),
         [dict(bytes=2 * BYTES, repeated_bytes=2 * BYTES, private_bytes=65536, blocks=4)]),
    "its gradient": (softmax_gradient((64, 1024)), [dict(bytes=3 * BYTES, repeated_bytes=0)]),
    "its gradient of long rows": (softmax_gradient((4, 16384)), [dict(bytes=3 * BYTES, repeated_bytes=4 * BYTES)]),
    "layer norm's gradient":
        (layer_norm_gradient, [dict(bytes=3 * BYTES, repeated_bytes=2 * BYTES, blocks=64), dict(bytes=2 * BYTES)]),
    "group norm's gradient": (group_norm_gradient, [dict(bytes=2 * SIZE), dict(bytes=3 * SIZE)]),
    "an embedding's gradient":  # it sorts, and writes the table
        (lambda: ATEN.embedding_dense_backward(X, tensor(64, dtype=torch.int64), 512, -1, False),
         [*[{}] * 8, dict(bytes=4 * 512 * 1024), dict(bytes=2 * BYTES)]),
    "two tensors without data": (lambda: tensor(8, 8) + tensor(8, 8), [dict(bytes=3 * 256)]),
    "a loss":
        (lambda: F.mse_loss(X, tensor(64, 1024)), [dict(bytes=3 * BYTES), dict(bytes=BYTES, access="reduction")]),
    "a loss without a mean": (lambda: F.smooth_l1_loss(X, tensor(64, 1024), reduction="none"), [{}]),
    "a picked loss": (lambda: F.nll_loss(X, torch.empty(64, dtype=torch.int64)), [dict(blocks=1, block_ns=4 * 64)]),
    "a product":
        (lambda: X @ tensor(1024, 256),
         [dict(flops=2 * 64 * 1024 * 256, unit="matmul", bytes=BYTES + 4 * 1024 * 256),
          dict(bytes=4 * 64 * 256, kernels=0)]),
    "a product of halves":
        (lambda: X.half() @ tensor(1024, 256, dtype=torch.float16), [{}, dict(unit="half"), {}]),
    "batch norm":
        (lambda: F.batch_norm(IMAGE, *[tensor(16) for _ in range(4)], True), [dict(bytes=3 * SIZE, blocks=16)]),
    "group norm":
        (lambda: F.group_norm(IMAGE, 4), [dict(bytes=SIZE, blocks=16), dict(bytes=2 * SIZE, access="norm")]),
    "instance norm": (lambda: F.instance_norm(IMAGE), [dict(bytes=SIZE, blocks=64), dict(bytes=2 * SIZE)]),
    "layer norm":
        (lambda: F.layer_norm(X, (1024,), tensor(1024), tensor(1024)),
         [dict(blocks=64, repeated_bytes=BYTES, l2_bytes=3 * BYTES + 64 * 8192, private_bytes=4096)]),
    "maxima of windows":
        (lambda: F.max_pool2d(tensor(2, 8, 64, 64), 4, 2),
         [dict(instructions=2 * 8 * 31 * 31 * (110 + 30 * 16), bytes=4 * 2 * 8 * 4096 + 12 * 2 * 8 * 31 * 31)]),
    "the logarithm of a sum":
        (lambda: X.logsumexp(1), [dict(bytes=size) for size in (BYTES, 2 * BYTES, 2 * BYTES, BYTES, 512, 512)]),
    "means of windows":
        (lambda: F.avg_pool3d(tensor(1, 2, 8, 8, 8), 2), [dict(instructions=2 * 64 * (110 + 30 * 8))]),
}  # fmt: skip


@pytest.mark.parametrize("run, kernels", KERNELS.values(), ids=KERNELS)
def test_kernels_of_an_op(run, kernels):
    assert_are([step for event in events_of(run) for step in event.steps], kernels)


@pytest.mark.parametrize("width", [1024, 16384])
def test_weights_of_a_layer_norm_come_from_the_second_level(width):
    x, weights = tensor(4096, width), (tensor(width), tensor(width))
    runs = (lambda: F.layer_norm(x, (width,)), lambda: F.layer_norm(x, (width,), *weights))
    plain, weighted = (step for run in runs for event in events_of(run) for step in event.steps)
    assert weighted.bytes == plain.bytes + 2 * 4 * width
    assert weighted.l2_bytes == plain.l2_bytes + 4096 * 2 * 4 * width
    assert step_ms(plain, H100) < step_ms(weighted, H100)


def assert_are(steps, kernels):
    seen = [{name: getattr(step, name) for name in known} for step, known in zip(steps, kernels, strict=True)]
    assert seen == kernels


def convolution(inner, outer, size=3, dims=2, places=16, **options):
    kind = getattr(F, f"conv{'_transpose' if options.pop('transposed', False) else ''}{dims}d")
    bias = tensor(outer) if options.pop("bias", False) else None
    groups, is_transposed = options.get("groups", 1), "transpose" in kind.__name__
    shape = (inner, outer // groups) if is_transposed else (outer, inner // groups)
    return steps_of(lambda: kind(tensor(2, inner, *[places] * dims), tensor(*shape, *[size] * dims), bias, **options))


PADDED_PRODUCT = dict(flops=2 * (2 * 256) * 9 * 16 * 64, unit="convolution", kernels=0)
CONVOLUTIONS = {
    "it copies, then multiplies padded channels": ({"inner": 3, "outer": 40, "padding": 1}, [
        dict(bytes=2 * 4 * 2 * 3 * 256, access="mixed", kernels=1), dict(bytes=4 * (2 * 3 * 256 + 40 * 27), kernels=1),
        PADDED_PRODUCT, dict(bytes=4 * 2 * 40 * 256, kernels=0),
    ]),
    "a bias is a kernel of its own": ({"inner": 16, "outer": 32, "padding": 1, "bias": True},
                                      [*[{}] * 4, dict(bytes=2 * 4 * 2 * 32 * 256, access="mixed", kernels=1)]),
    "a window of one place is a plain product": (
        {"inner": 64, "outer": 32, "size": 1}, [dict(flops=2 * 512 * 64 * 32), dict(bytes=4 * 2 * 32 * 256)],
    ),
    "transposed, it copies on both sides": ({"inner": 32, "outer": 32, "transposed": True, "stride": 2}, [
        dict(bytes=2 * 4 * 2 * 32 * 256), *[{}] * 3, dict(bytes=2 * 4 * 2 * 32 * 33 * 33, access="mixed", kernels=1),
    ]),
    "a depthwise one": ({"inner": 8, "outer": 8, "groups": 8, "padding": 1, "bias": True},
                        [dict(instructions=2 * 8 * 256 * (205 + 14 * 9))]),
}  # fmt: skip


@pytest.mark.parametrize("options, kernels", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_kernels_of_a_convolution(options, kernels):
    assert_are(convolution(**options), kernels)


@pytest.mark.parametrize(("dims", "layout"), [(2, torch.channels_last), (3, torch.channels_last_3d)])
def test_a_convolution_of_channels_last_copies_nothing(dims, layout):
    x, w = tensor(2, 8, *[16] * dims), tensor(32, 8, *[3] * dims)
    copy, *others = steps_of(lambda: getattr(F, f"conv{dims}d")(x, w))
    laid = x.to(memory_format=layout)
    assert [*steps_of(lambda: getattr(F, f"conv{dims}d")(laid, w))] == others
    assert copy.bytes == 2 * 4 * x.numel()


def test_transposed_convolutions_of_channels_last_copy_nothing():
    x, w = tensor(2, 8, 16, 16), tensor(8, 32, 3, 3)
    before, *others, after = steps_of(lambda: F.conv_transpose2d(x, w))
    laid = x.to(memory_format=torch.channels_last)
    assert [*steps_of(lambda: F.conv_transpose2d(laid, w))] == others
    assert (before.access, after.access) == ("mixed", "mixed")


@pytest.mark.parametrize(("window", "unit"), [((3, 3), "matmul"), ((3, 1), "direct")])
def test_a_depthwise_convolution_of_channels_last_is_cudnns(window, unit):
    x, w = tensor(2, 8, 16, 16).to(memory_format=torch.channels_last), tensor(8, 1, *window)
    steps = steps_of(lambda: F.conv2d(x, w, groups=8))
    assert sum(step.bytes for step in steps) == 4 * (x.numel() + w.numel() + 16 * (17 - window[0]) * (17 - window[1]))
    assert {step.unit for step in steps if step.flops} == ({"direct"} if unit == "direct" else set())
    assert steps[0].kernels == 1


@pytest.mark.parametrize(("options", "unit", "flops"), [
    ({"dims": 3, "inner": 3, "outer": 16, "places": 8, "padding": 1}, "direct", 2 * 1024 * 27 * 3 * 32),
    ({"dims": 3, "inner": 8, "outer": 16, "places": 8, "padding": 1}, "convolution", 2 * 1024 * 27 * 16 * 32),
    ({"inner": 64, "outer": 64, "groups": 4, "padding": 1}, "direct", 2 * 512 * 9 * 16 * 32 * 4),
    ({"inner": 32, "outer": 32, "transposed": True, "stride": 2}, "convolution", 2 * 512 * 9 * 32 * 32),
    ({"inner": 32, "outer": 32, "transposed": True, "stride": 2, "dilation": 2}, "convolution",
     2 * 512 * 9 * 32 * 32 * 4),
    ({"inner": 32, "outer": 16, "transposed": True, "dims": 3, "places": 8}, "transposed", 2 * 1024 * 27 * 32 * 128),
])  # fmt: skip
def test_ways_of_a_convolution(options, unit, flops):
    assert [(step.unit, step.flops) for step in convolution(**options) if step.flops] == [(unit, flops)]


def test_a_recurrent_layer_is_a_chain_of_kernels_through_time():
    lstm, found = nn.LSTM(8, 16, num_layers=2, device="meta"), []
    arguments = (tensor(5, 3, 8), [tensor(2, 3, 16)] * 2, lstm._flat_weights, True, 2, 0.0, False, False, False)
    with torch.no_grad(), OpRecorder(found):
        assert torch.lstm in WHOLE
        whole(torch.lstm, arguments, {})
    assert [step.kernels for event in found for step in event.steps] == [10, 10]


def test_the_host_takes_longer_for_some_ops():
    found = events_of(lambda: (torch.relu(X), X @ X.t(), F.conv2d(tensor(1, 8, 8, 8), tensor(8, 8, 3, 3))))
    assert [event.host_us for event in found] == [10, 20, 29]


def test_ops_with_data_have_the_same_steps_as_those_without():
    def run(device):
        x = torch.ones(2, 3, 8, 8, device=device)
        y = F.conv2d(x, torch.ones(8, 3, 3, 3, device=device), torch.ones(8, device=device), padding=1)
        return torch.softmax(F.max_pool2d(F.group_norm(y, 2), 2).flatten(1), 1).sum()

    with torch.no_grad(), resolve_device("cpu").record() as real:
        run("cpu")
    assert [(one.name, one.steps) for one in real if one.name != "aten::ones"] == [
        (one.name, one.steps) for one in events_of(lambda: run("meta")) if one.name != "aten::ones"
    ]


def test_an_op_without_a_price_has_no_steps():
    with torch.no_grad(), resolve_device("cpu").record() as found:
        torch.linalg.svd(torch.ones(3, 3))
    assert any(not event.priced and event.steps == () for event in found)
