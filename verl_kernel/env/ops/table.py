# SPDX-License-Identifier: Apache-2.0
"""The table of torch ops; a row has an op's operations, bytes, price, host time, and traits.

A row's key is the op's name without namespace and without the marks of in-place and list variants (`plain_name`), and
occurs here once. An op that torch marks as pointwise needs no row; any other op without a row has no price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from verl_kernel.env.ops import convolutions, flops, prices, products, traffic
from verl_kernel.env.ops.call import Price, is_in_place, plain_name
from verl_kernel.env.ops.flops import Formula, each
from verl_kernel.env.ops.traffic import Traffic


class Trait(Flag):
    """Properties of an op that are not part of its cost."""

    NONE = 0
    MOVES = auto()
    """The op moves or fills, and computes nothing."""
    GATHERS = auto()
    """The op moves elements, and adds those that go to the same place."""
    ALLOCATES = auto()
    """The op returns memory without values, and starts no device kernel."""
    GROWS = auto()
    """The op may enlarge the memory of its first tensor."""
    ALIASES = auto()
    """The op returns or changes a view, though its schema may not say so, and starts no device kernel."""
    FREE = auto()
    """The op starts no device kernel for another reason."""
    FILLS = auto()
    """The in-place variant does not read the tensor that it writes."""
    ASKS = auto()
    """The op makes the host wait for a value."""
    HOST_BUFFER = auto()
    """The op has a second result on a CPU only."""


_WITHOUT_KERNEL = Trait.ALLOCATES | Trait.ALIASES | Trait.FREE
_MOVES, _FILLS, _ALIASES = Trait.MOVES, Trait.FILLS, Trait.ALIASES
_MATMUL_HOST, _LAYER_HOST = "product_host_us", "convolution_host_us"


@dataclass(frozen=True)
class TorchOp:
    """A row of the table."""

    flops: Formula | None = None
    """Number of operations of a call; None takes torch's own counter, and without one the op has no price."""
    price: Price = prices.copied
    """Steps of a call on a GPU: device kernels and their phases."""
    bytes: Traffic = traffic.touched
    """Bytes that a call reads and writes if each element is touched once."""
    host: str = "op_host_us"
    """Name of the constant (`machine.constants`) with the host's time to issue a call."""
    is_product: bool = False
    """Whether tensor cores can do the operations."""
    traits: Trait = Trait.NONE
    unread: int | None = None
    """Place of an argument that is only written, or of which only the shape is used."""
    factors: tuple[int, ...] = ()
    """Places among the arguments of a product's factors."""

    @property
    def is_free(self) -> bool:
        """Whether the op starts no device kernel."""
        return bool(self.traits & _WITHOUT_KERNEL)

    def unread_place(self, name: str) -> int | None:
        """Return the place of the argument that is not read in a call by this name, such as `fill_` or `fill`."""
        return 0 if Trait.FILLS in self.traits and is_in_place(name) else self.unread


def _rows(*rows: tuple[str, TorchOp]) -> Mapping[str, TorchOp]:
    """Map names to rows.

    Raises:
        ValueError: a name occurs in two rows.
    """
    table: dict[str, TorchOp] = {}
    for names, op in rows:
        for name in names.split():
            if name in table:
                raise ValueError(f"op {name} has two rows: leave one")
            table[name] = op
    return MappingProxyType(table)


OPS = _rows(
    # pointwise ops that torch does not mark as such, and ops without a special rule
    (
        "_prelu_kernel prelu gelu mish hardswish hardsigmoid hardtanh softplus leaky_relu elu celu selu threshold lerp "
        "addcmul addcdiv native_dropout native_dropout_backward floor_divide copysign",
        TorchOp(each, prices.elementwise),
    ),
    (
        "glu polar complex one_hot fake_quantize linalg_cross cross multi_margin_loss multilabel_margin_loss_forward "
        "_masked_scale quantize_per_tensor special_ndtr _segment_reduce segment_reduce histc bincount searchsorted "
        "bucketize _cummax_helper _cummin_helper _weight_norm_interface",
        TorchOp(each),
    ),
    ("log_sigmoid_forward", TorchOp(each, prices.elementwise, traits=Trait.HOST_BUFFER)),
    ("rrelu_with_noise", TorchOp(each, prices.elementwise, unread=1)),
    # reductions, scans, losses, softmax
    (
        "sum nansum mean prod amax amin aminmax max min all any argmax argmin norm linalg_vector_norm std std_mean var "
        "var_mean count_nonzero adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool3d",
        TorchOp(each, prices.reduced),
    ),
    ("trace", TorchOp(each, prices.reduced, traffic.diagonal)),
    ("equal", TorchOp(each, prices.reduced, traits=Trait.ASKS)),
    ("item _local_scalar_dense", TorchOp(each, traits=Trait.ASKS)),
    ("is_nonzero", TorchOp(traits=Trait.ASKS)),
    ("logsumexp", TorchOp(each, prices.logsumexp)),
    ("cumsum cumprod logcumsumexp", TorchOp(each, prices.scanned)),
    ("cummax cummin", TorchOp(each, prices.scanned_rows)),
    ("_softmax _log_softmax _safe_softmax softmax log_softmax", TorchOp(each, prices.softmax)),
    ("mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss dist", TorchOp(each, prices.loss)),
    ("binary_cross_entropy_with_logits", TorchOp(each, prices.loss_of_logits)),
    ("nll_loss_forward nll_loss2d_forward", TorchOp(each, prices.nll_loss)),
    # norms
    ("native_layer_norm rms_norm _fused_rms_norm", TorchOp(each, prices.layer_norm, host=_MATMUL_HOST)),
    ("native_group_norm", TorchOp(each, prices.group_norm, host=_MATMUL_HOST)),
    (
        "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm _batch_norm_no_update "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training",
        TorchOp(each, prices.batch_norm, host=_LAYER_HOST),
    ),
    ("renorm", TorchOp(each, prices.renormed)),
    # gradients
    ("_softmax_backward_data _log_softmax_backward_data", TorchOp(each, prices.softmax_gradient)),
    ("native_layer_norm_backward", TorchOp(each, prices.layer_norm_gradient)),
    (
        "native_batch_norm_backward cudnn_batch_norm_backward native_group_norm_backward",
        TorchOp(each, prices.norm_gradient),
    ),
    ("embedding_dense_backward", TorchOp(each, prices.embedding_gradient, traits=Trait.GATHERS)),
    (
        "nll_loss_backward nll_loss2d_backward _adaptive_avg_pool2d_backward avg_pool2d_backward "
        "max_pool2d_with_indices_backward upsample_nearest2d_backward upsample_bilinear2d_backward glu_backward "
        "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward slice_backward "
        "select_backward unfold_backward",
        TorchOp(each),
    ),
    # sorts
    ("sort argsort msort mode _unique2", TorchOp(flops.sorted_rows, prices.sorted_rows)),
    ("topk kthvalue median nanmedian", TorchOp(flops.sorted_rows, prices.selected)),
    ("unique_consecutive", TorchOp(flops.sorted_rows)),
    # windows
    (
        "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d",
        TorchOp(flops.pooled, convolutions.pooled),
    ),
    ("adaptive_max_pool2d adaptive_max_pool3d col2im max_unpool2d max_unpool3d", TorchOp(each)),
    (
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
        "_upsample_nearest_exact3d",
        TorchOp(each, bytes=traffic.sampled, traits=_MOVES),
    ),
    ("upsample_linear1d", TorchOp(flops.interpolated(4))),
    ("upsample_bilinear2d", TorchOp(flops.interpolated(8))),
    ("_upsample_bilinear2d_aa upsample_trilinear3d grid_sampler_2d", TorchOp(flops.interpolated(16))),
    ("grid_sampler_3d", TorchOp(flops.interpolated(32))),
    ("upsample_bicubic2d", TorchOp(flops.interpolated(40))),
    ("_upsample_bicubic2d_aa", TorchOp(flops.interpolated(80))),
    # moves
    ("clone where", TorchOp(each, prices.elementwise, traits=_MOVES)),
    ("copy", TorchOp(each, traits=_MOVES | _FILLS)),
    ("cat stack", TorchOp(each, prices.joined, traits=_MOVES)),
    (
        "_to_copy tril triu roll flip repeat repeat_interleave constant_pad_nd reflection_pad1d reflection_pad2d "
        "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle "
        "channel_shuffle diag_embed im2col unfold_copy masked_select",
        TorchOp(each, traits=_MOVES),
    ),
    (
        "linspace logspace tril_indices triu_indices rot90 scalar_tensor diag _reshape_copy nonzero nonzero_static "
        "view_as_complex_copy contiguous _assert_async _linalg_check_errors expand_copy permute_copy transpose_copy "
        "real_copy meshgrid",
        TorchOp(each),
    ),
    ("resize_as", TorchOp(each, traits=Trait.GROWS)),
    # gathers and scatters
    ("index index_select gather take embedding", TorchOp(each, bytes=traffic.gathered, traits=_MOVES)),
    ("_unsafe_index", TorchOp(each, bytes=traffic.gathered)),
    ("slice_copy select_copy", TorchOp(each, bytes=traffic.sampled)),
    ("scatter put", TorchOp(each, bytes=traffic.scattered(traffic.elements_of_index), traits=_MOVES)),
    ("scatter_add", TorchOp(each, bytes=traffic.scattered(traffic.elements_of_index, adds=True), traits=Trait.GATHERS)),
    ("scatter_reduce", TorchOp(each, bytes=traffic.scattered(traffic.elements_of_index, adds=True))),
    ("index_fill index_copy", TorchOp(each, bytes=traffic.scattered(traffic.rows_of_index), traits=_MOVES)),
    ("index_add", TorchOp(each, bytes=traffic.scattered(traffic.rows_of_index, adds=True), traits=Trait.GATHERS)),
    ("index_reduce", TorchOp(each, bytes=traffic.scattered(traffic.rows_of_index, adds=True))),
    ("index_put", TorchOp(each, bytes=traffic.scattered(traffic.elements_of_indices), traits=_MOVES)),
    ("_index_put_impl", TorchOp(each, bytes=traffic.scattered(traffic.elements_of_indices))),
    ("_unsafe_index_put", TorchOp(each)),
    ("select_scatter slice_scatter masked_scatter", TorchOp(each, bytes=traffic.copied_into, traits=_MOVES)),
    ("diagonal_scatter as_strided_scatter", TorchOp(each, bytes=traffic.copied_into)),
    ("_embedding_bag _embedding_bag_forward_only", TorchOp(flops.bagged, prices.bagged, traffic.bagged)),
    # fills and random numbers
    ("arange full ones zeros masked_fill", TorchOp(each, prices.elementwise, traits=_MOVES)),
    ("eye", TorchOp(each, traits=_MOVES)),
    ("fill zero", TorchOp(each, prices.elementwise, traits=_MOVES | _FILLS)),
    ("zeros_like ones_like full_like", TorchOp(each, prices.elementwise, traits=_MOVES, unread=0)),
    ("new_zeros new_ones new_full", TorchOp(flops.each_of_result, prices.elementwise, traits=_MOVES, unread=0)),
    ("rand randn randint", TorchOp(each, prices.elementwise)),
    ("rand_like randn_like randint_like", TorchOp(each, prices.elementwise, unread=0)),
    ("uniform normal bernoulli random exponential", TorchOp(each, prices.elementwise, traits=_FILLS)),
    ("log_normal", TorchOp(each, traits=_FILLS)),
    ("randperm cauchy geometric multinomial poisson", TorchOp(each)),
    # products
    ("mm bmm", TorchOp(None, products.product, host=_MATMUL_HOST, factors=(0, 1))),
    (
        "addmm addbmm baddbmm _addmm_activation",
        TorchOp(flops.added_product, products.product, host=_MATMUL_HOST, is_product=True, factors=(1, 2)),
    ),
    ("_int_mm", TorchOp(flops.plain_product, products.product, host=_MATMUL_HOST, is_product=True)),
    ("linear", TorchOp(flops.linear, products.product, host=_MATMUL_HOST, is_product=True)),
    ("mv", TorchOp(flops.twice(0), prices.reduced, is_product=True, factors=(0, 1))),
    ("addmv", TorchOp(flops.twice(1), prices.reduced, is_product=True, factors=(1, 2))),
    ("dot vdot", TorchOp(flops.twice(0), prices.reduced, is_product=True)),
    ("addr", TorchOp(flops.twice_result, is_product=True)),
    ("ger", TorchOp(flops.each_of_result, is_product=True)),
    ("_trilinear", TorchOp(flops.trilinear)),
    ("_cdist_forward _euclidean_dist _pdist_forward", TorchOp(flops.distances, products.distances)),
    (
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_cudnn_attention_backward",
        TorchOp(None, products.attention, host=_MATMUL_HOST),
    ),
    # convolutions and recurrent layers
    ("convolution _convolution", TorchOp(None, convolutions.convolved, host=_LAYER_HOST, factors=(0, 1))),
    ("convolution_overrideable cudnn_convolution mkldnn_convolution", TorchOp(factors=(0, 1))),
    ("gru lstm rnn_tanh rnn_relu", TorchOp(flops.recurrent, products.layer, host=_LAYER_HOST, is_product=True)),
    ("mkldnn_rnn_layer", TorchOp(flops.recurrent_layer, is_product=True)),
    ("gru_cell lstm_cell", TorchOp(flops.cell, products.cell, host=_MATMUL_HOST, is_product=True)),
    # ops without a device kernel
    (
        "empty empty_like empty_strided empty_permuted new_empty new_empty_strided",
        TorchOp(traits=Trait.ALLOCATES),
    ),
    ("resize", TorchOp(traits=Trait.FREE | Trait.GROWS)),
    ("set detach t transpose squeeze unsqueeze as_strided _unsafe_view", TorchOp(traits=_ALIASES)),
    (
        "_reshape_alias lift lift_fresh is_pinned is_same_size unsafe_split unsafe_chunk unsafe_split_with_sizes",
        TorchOp(traits=Trait.FREE),
    ),
)
"""The table of ops by plain name."""
_UNKNOWN, _POINTWISE = TorchOp(), TorchOp(each, prices.elementwise)


def row_of(name: str) -> TorchOp:
    """Return the row of an op by its name (`aten::add_`), which may be any text; an empty row where it has none."""
    return OPS.get(plain_name(name), _UNKNOWN) if name.startswith("aten::") else _UNKNOWN


@cache
def op_of(func: Any) -> TorchOp:
    """Return the row of an `OpOverload`; ops marked as pointwise share one row."""
    name = plain_name(func._schema.name)
    if func.namespace != "aten" or name in OPS:
        return row_of(func._schema.name)
    return _POINTWISE if _is_pointwise(name) else _UNKNOWN


def is_view(func: Any) -> bool:
    """Whether an op's schema says that its result is a view."""
    returns = func._schema.returns
    return any(item.alias_info is not None and not item.alias_info.is_write for item in returns)


def _is_pointwise(name: str) -> bool:
    """Whether torch marks an op of this plain name as pointwise."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)
