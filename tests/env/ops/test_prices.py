# SPDX-License-Identifier: Apache-2.0
"""The device kernels of torch ops: passes over memory, work on padding, blocks; from shapes alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.devices.op_recorder import WHOLE, OpRecorder, whole


def events_of(run):
    """The events of ops on tensors without data."""
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


@pytest.mark.parametrize(
    ("run", "moved", "access"),
    [
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
    ],
)
def test_one_kernel(run, moved, access):
    (step,) = steps_of(run)
    assert (step.bytes, step.access) == (moved, access)


@pytest.mark.parametrize("run", [lambda: X.new_zeros(16), lambda: X.new_ones(16), lambda: X.new_full((16,), 2.0)])
def test_what_a_large_tensor_lends_its_type_to_stays_small(run):
    (event,) = events_of(run)
    assert (event.steps[0].bytes, event.steps[0].instructions, event.flops) == (64, 16, 16)


ROW = tensor(1 << 20)


@pytest.mark.parametrize("run", [lambda: ROW.cumsum(0), lambda: ROW[None].cumprod(1), lambda: ROW.logcumsumexp(0)])
def test_a_single_row_is_scanned_by_all_blocks(run):
    (step,) = steps_of(run)
    assert (step.bytes, step.access, step.blocks, step.kernels) == (8 << 20, "contiguous", 2048, 2)


@pytest.mark.parametrize(
    ("run", "blocks", "warps", "in_flight"),
    [
        (lambda: ROW.cummax(0), 1, 16, 1024 * 16),  # a value read, one written, an index of 8 bytes
        (lambda: tensor(8, 1 << 17).cumsum(1), 8, 16, 1024 * 8),
        (lambda: tensor(512, 4096).cumsum(-1), 64, 16, 1024 * 8),  # 64 threads a row
        (lambda: tensor(1 << 15, 1 << 15).cumsum(1), 1024, 16, 1024 * 8),
        (lambda: tensor(4096, 8).cumsum(1), 128, 16, 256 * 8),  # 16 threads for 8 elements
        (lambda: tensor(64, 1024).cumsum(0), 2, 16, 512 * 8),
        (lambda: tensor(16, 512, 64).logcumsumexp(1), 16, 2, 64 * 8),
        (lambda: tensor().cummin(0), 1, 16, 16),
    ],
)  # fmt: skip
def test_blocks_share_out_whole_rows_of_a_scan(run, blocks, warps, in_flight):
    (step,) = steps_of(run)
    assert (step.blocks, step.warps, step.in_flight, step.access) == (blocks, warps, in_flight, "scan")


def test_softmax_reads_again_what_does_not_stay_on_the_chip():
    (kept,) = steps_of(lambda: torch.softmax(X, 1))
    (columns,) = steps_of(lambda: torch.softmax(X, 0))
    (long,) = steps_of(lambda: torch.log_softmax(tensor(4, 16384), 1))
    assert [step.bytes for step in (kept, columns, long)] == [2 * BYTES] * 3
    assert (kept.repeated_bytes, kept.blocks) == (0, 64)
    assert (columns.repeated_bytes, columns.shared_bytes) == (2 * BYTES, BYTES)
    assert (long.repeated_bytes, long.private_bytes, long.blocks) == (2 * BYTES, 65536, 4)


def test_the_gradient_of_softmax_reads_two_tensors_again():
    long = tensor(4, 16384)
    (kept,) = steps_of(lambda: torch.ops.aten._softmax_backward_data(X, tensor(64, 1024), 1, torch.float32))
    (again,) = steps_of(lambda: torch.ops.aten._softmax_backward_data(long, tensor(4, 16384), 1, torch.float32))
    assert (kept.bytes, kept.repeated_bytes) == (3 * BYTES, 0)
    assert (again.bytes, again.repeated_bytes) == (3 * BYTES, 4 * BYTES)


def test_layer_norms_gradient_reads_rows_again_for_weights():
    mean, weight = tensor(64, 1), tensor(1024)
    rows, weights = steps_of(
        lambda: torch.ops.aten.native_layer_norm_backward(
            X, tensor(64, 1024), [1024], mean, tensor(64, 1), weight, tensor(1024), [True, True, True]
        )
    )
    assert (rows.bytes, rows.repeated_bytes, rows.blocks, weights.bytes) == (3 * BYTES, 2 * BYTES, 64, 2 * BYTES)


def test_group_norms_gradient_reads_everything_twice():
    x, mean = tensor(4, 16, 32, 32), tensor(4, 4)
    sums, applied = steps_of(
        lambda: torch.ops.aten.native_group_norm_backward(
            x, tensor(4, 16, 32, 32), mean, tensor(4, 4), tensor(16), 4, 16, 1024, 4, [True, True, True]
        )
    )
    assert (sums.bytes, applied.bytes) == (2 * BYTES, 3 * BYTES)


def test_an_embeddings_gradient_sorts_and_writes_the_table():
    ids = tensor(64, dtype=torch.int64)
    steps = steps_of(lambda: torch.ops.aten.embedding_dense_backward(X, ids, 512, -1, False))
    assert [step.bytes for step in steps[-2:]] == [4 * 512 * 1024, 2 * BYTES]


def test_two_tensors_without_data_are_two_tensors():
    (step,) = steps_of(lambda: tensor(8, 8) + tensor(8, 8))
    assert step.bytes == 3 * 256


def test_losses_write_what_they_reduce():
    whole_loss, mean = steps_of(lambda: F.mse_loss(X, tensor(64, 1024)))
    assert (whole_loss.bytes, mean.bytes, mean.access) == (3 * BYTES, BYTES, "reduction")
    assert len(steps_of(lambda: F.smooth_l1_loss(X, tensor(64, 1024), reduction="none"))) == 1
    picked = events_of(lambda: F.nll_loss(X, torch.empty(64, dtype=torch.int64)))[-1].steps
    assert (picked[0].blocks, picked[0].block_ns) == (1, 4 * 64)
    assert sum(step.bytes for step in steps_of(lambda: X.logsumexp(1))) == 6 * BYTES + 4 * 64 * 4


def test_products_write_after_they_have_multiplied():
    main, written = steps_of(lambda: X @ tensor(1024, 256))
    assert (main.flops, main.unit, main.bytes) == (2 * 64 * 1024 * 256, "matmul", BYTES + 4 * 1024 * 256)
    assert (written.bytes, written.kernels) == (4 * 64 * 256, 0)
    half = events_of(lambda: X.half() @ tensor(1024, 256, dtype=torch.float16))[-1].steps[0]
    assert half.unit == "half"


def convolution(inner, outer, size=3, dims=2, places=16, **options):
    kind = getattr(F, f"conv{'_transpose' if options.pop('transposed', False) else ''}{dims}d")
    bias = tensor(outer) if options.pop("bias", False) else None
    groups, is_transposed = options.get("groups", 1), "transpose" in kind.__name__
    shape = (inner, outer // groups) if is_transposed else (outer, inner // groups)
    return steps_of(lambda: kind(tensor(2, inner, *[places] * dims), tensor(*shape, *[size] * dims), bias, **options))


def arithmetic(steps):
    (step,) = [step for step in steps if step.flops]
    return step.unit, step.flops


def test_a_convolution_copies_then_multiplies_padded_channels():
    copy, read, product, written = convolution(3, 40, padding=1)
    assert copy.bytes == 2 * 4 * 2 * 3 * 256
    assert copy.access == "mixed"
    assert product.flops == 2 * (2 * 256) * 9 * 16 * 64
    assert product.unit == "convolution"
    assert read.bytes == 4 * (2 * 3 * 256 + 40 * 27)
    assert written.bytes == 4 * 2 * 40 * 256
    assert [step.kernels for step in (copy, read, product, written)] == [1, 1, 0, 0]


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
    assert sum(step.bytes for step in steps) == 4 * (
        x.numel() + w.numel() + 2 * 8 * (17 - window[0]) * (17 - window[1])
    )
    assert {step.unit for step in steps if step.flops} == ({"direct"} if unit == "direct" else set())
    assert steps[0].kernels == 1


def test_a_bias_is_a_kernel_of_its_own():
    *_, bias = convolution(16, 32, padding=1, bias=True)
    assert bias.bytes == 2 * 4 * 2 * 32 * 256
    assert bias.access == "mixed"
    assert bias.kernels == 1


def test_a_window_of_one_place_is_a_plain_product():
    main, written = convolution(64, 32, size=1)
    assert main.flops == 2 * 512 * 64 * 32
    assert written.bytes == 4 * 2 * 32 * 256


@pytest.mark.parametrize(
    ("options", "unit", "flops"),
    [
        ({"dims": 3, "inner": 3, "outer": 16, "places": 8, "padding": 1}, "direct", 2 * 1024 * 27 * 3 * 32),
        ({"dims": 3, "inner": 8, "outer": 16, "places": 8, "padding": 1}, "convolution", 2 * 1024 * 27 * 16 * 32),
        ({"inner": 64, "outer": 64, "groups": 4, "padding": 1}, "direct", 2 * 512 * 9 * 16 * 32 * 4),
        ({"inner": 32, "outer": 32, "transposed": True, "stride": 2}, "convolution", 2 * 512 * 9 * 32 * 32),
        ({"inner": 32, "outer": 32, "transposed": True, "stride": 2, "dilation": 2}, "convolution",
         2 * 512 * 9 * 32 * 32 * 4),
        ({"inner": 32, "outer": 16, "transposed": True, "dims": 3, "places": 8}, "transposed",
         2 * 1024 * 27 * 32 * 128),
    ],
)  # fmt: skip
def test_ways_of_a_convolution(options, unit, flops):
    assert arithmetic(convolution(**options)) == (unit, flops)


def test_a_transposed_convolution_copies_on_both_sides():
    steps = convolution(32, 32, transposed=True, stride=2)
    assert steps[0].bytes == 2 * 4 * 2 * 32 * 256
    assert steps[-1].bytes == 2 * 4 * 2 * 32 * 33 * 33
    assert steps[-1].access == "mixed"
    assert steps[-1].kernels == 1


def test_windows_are_counted_in_instructions():
    (pool,) = steps_of(lambda: F.max_pool2d(tensor(2, 8, 64, 64), 4, 2))
    outputs = 2 * 8 * 31 * 31
    assert pool.instructions == outputs * (110 + 30 * 16)
    assert pool.bytes == 4 * 2 * 8 * 4096 + 12 * outputs
    (depthwise,) = convolution(8, 8, groups=8, padding=1, bias=True)
    assert depthwise.instructions == 2 * 8 * 256 * (205 + 14 * 9)
    assert steps_of(lambda: F.avg_pool3d(tensor(1, 2, 8, 8, 8), 2))[0].instructions == 2 * 64 * (110 + 30 * 8)


def test_norms_by_their_passes_and_blocks():
    image = tensor(4, 16, 32, 32)
    size = 4 * image.numel()
    (batch,) = events_of(lambda: F.batch_norm(image, tensor(16), tensor(16), tensor(16), tensor(16), True))[-1].steps
    assert (batch.bytes, batch.blocks) == (3 * size, 16)
    statistics, applied = steps_of(lambda: F.group_norm(image, 4))
    assert (statistics.bytes, statistics.blocks, applied.bytes, applied.access) == (size, 16, 2 * size, "norm")
    instance = events_of(lambda: F.instance_norm(image))[-1].steps
    assert [step.bytes for step in instance] == [size, 2 * size]
    assert instance[0].blocks == 64
    (layer,) = steps_of(lambda: F.layer_norm(X, (1024,), tensor(1024), tensor(1024)))
    assert layer.blocks == 64
    assert layer.repeated_bytes == BYTES + 63 * 8192
    assert layer.private_bytes == 4096


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
