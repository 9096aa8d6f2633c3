# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of a torch op, if it is known; an op that is not listed here has no price.

Matrix products, convolutions and attention are counted by `torch.utils.flop_counter`, or by a formula of the same form;
windows and sorts by their sizes; recurrent layers by their products. Pointwise ops, reductions, norms and whatever only
moves data count one operation per element of their largest tensor: memory decides what they take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from verl_kernel.env.devices.op_prices.call import bound
from verl_kernel.env.devices.op_prices.indexed import BAGS

_aten = torch.ops.aten
_PER_ELEMENT = frozenset(
    # pointwise, where torch does not say so
    "_prelu_kernel prelu log_sigmoid_forward glu gelu mish hardswish hardsigmoid hardtanh softplus leaky_relu elu celu "
    "selu threshold rrelu_with_noise lerp addcmul addcdiv masked_fill polar complex copysign one_hot fake_quantize "
    "linalg_cross cross huber_loss mse_loss smooth_l1_loss soft_margin_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits nll_loss_forward nll_loss2d_forward multi_margin_loss "
    "multilabel_margin_loss_forward _masked_scale quantize_per_tensor special_ndtr floor_divide "
    # reductions and scans
    "sum nansum mean prod amax amin aminmax max min all any argmax argmin norm linalg_vector_norm std std_mean var "
    "var_mean logsumexp cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp count_nonzero trace "
    "dist histc bincount searchsorted bucketize _segment_reduce segment_reduce item _local_scalar_dense equal "
    "_softmax _log_softmax _safe_softmax softmax log_softmax "
    # norms
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit _batch_norm_with_update "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_no_update cudnn_batch_norm "
    "rms_norm _fused_rms_norm renorm _weight_norm_interface "
    # gradients
    "_softmax_backward_data _log_softmax_backward_data native_layer_norm_backward native_group_norm_backward "
    "native_batch_norm_backward native_dropout_backward nll_loss_backward nll_loss2d_backward embedding_dense_backward "
    "_adaptive_avg_pool2d_backward avg_pool2d_backward max_pool2d_with_indices_backward upsample_nearest2d_backward "
    "upsample_bilinear2d_backward glu_backward mse_loss_backward smooth_l1_loss_backward huber_loss_backward "
    "binary_cross_entropy_backward cudnn_batch_norm_backward slice_backward select_backward unfold_backward "
    # windows that read each element about once
    "adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool2d "
    "adaptive_max_pool3d im2col col2im max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    # moves, gathers, scatters
    "copy clone cat stack fill zero zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full "
    "_to_copy index index_select index_fill index_copy index_add index_put index_reduce _index_put_impl _unsafe_index "
    "_unsafe_index_put gather embedding scatter scatter_add scatter_reduce select_scatter slice_scatter "
    "diagonal_scatter as_strided_scatter masked_scatter masked_select take put arange linspace logspace eye tril triu "
    "tril_indices triu_indices roll flip rot90 repeat repeat_interleave constant_pad_nd reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d where scalar_tensor "
    "pixel_shuffle pixel_unshuffle channel_shuffle diag diag_embed _reshape_copy nonzero nonzero_static resize_as "
    "view_as_complex_copy contiguous _assert_async _linalg_check_errors "
    "unfold_copy expand_copy permute_copy transpose_copy slice_copy select_copy complex real_copy meshgrid "
    # random numbers
    "rand rand_like randn randn_like randint randint_like randperm uniform normal bernoulli random exponential "
    "log_normal cauchy geometric native_dropout multinomial poisson".split()
)
_SORTS = frozenset("sort argsort topk kthvalue median nanmedian mode msort _unique2 unique_consecutive".split())
_SAMPLES = {
    **{"upsample_linear1d": 4, "upsample_bilinear2d": 8, "_upsample_bilinear2d_aa": 16, "upsample_trilinear3d": 16},
    **{"upsample_bicubic2d": 40, "_upsample_bicubic2d_aa": 80, "grid_sampler_2d": 16, "grid_sampler_3d": 32},
}
"""Operations per element of the result of ops that interpolate."""

_COMPLEX = 4
"""Real products in a complex one."""
Formula = Callable[[tuple[Any, ...], dict[str, Any], Any], int]


def flops_of(func: Any, args: Sequence[Any], kwargs: Any, result: Any) -> tuple[int, bool] | None:
    """Operations of an op that has just run.

    Returns:
        Their number and whether they are products that tensor cores can do; None where the op has no price.
    """
    formula, is_product = _formula(func)
    if formula is None:
        return None
    flops = formula(tuple(args), dict(kwargs), result)
    return flops * _COMPLEX if is_product and _is_complex(result) else flops, is_product


def _is_complex(result: Any) -> bool:
    return any(tensor.is_complex() for tensor in tensors_in(result))


@cache
def _formula(func: Any) -> tuple[Formula | None, bool]:
    packet = func._overloadpacket
    name = plain_name(func._schema.name)
    if packet in _REGISTERED:
        registered = _REGISTERED[packet]
        return (
            lambda args, kwargs, result: int(registered(*args, **kwargs, out_val=result)) // _parts(func, args, kwargs),
            True,
        )
    if name in _PRODUCTS:
        return _PRODUCTS[name], True
    groups = ((_SORTS, _sorted), (_POOLS, _pooled), (frozenset(_SAMPLES), _sampled(name)))
    for names, formula in groups:
        if name in names:
            return formula, False
    if name in _OTHERS:
        return _OTHERS[name], False
    known = name in _PER_ELEMENT or is_pointwise(name)
    return (_largest if known and func.namespace == "aten" else None), False


def _parts(func: Any, args: Sequence[Any], kwargs: Any) -> int:
    """Causal attention does half of the products."""
    return 2 if bound(func, args, kwargs).get("is_causal") else 1


def plain_name(name: str) -> str:
    """The name without namespace and without the marks of in-place and of list variants."""
    plain = name.partition("::")[2].removeprefix("_foreach_")
    if plain.startswith("__") and plain.endswith("__"):  # an operator: `__rshift__`, in place `__irshift__`
        return f"__{plain[3:]}" if plain.startswith("__i") else plain
    return plain.rstrip("_") or plain


def is_pointwise(name: str) -> bool:
    """Whether torch says that an op of this plain name works element by element."""
    packet = getattr(_aten, name, None)
    overloads = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested data, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _largest(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    return max((tensor.numel() for tensor in tensors_in((args, kwargs, result))), default=1)


def _sorted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Size times its logarithm to base 2 comparisons, as a merge sort makes them along the longest dimension."""
    return int(args[0].numel() * max(1, (max(args[0].shape, default=1) - 1).bit_length()))


def _pooled(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    window = kwargs.get("kernel_size", args[1] if len(args) > 1 else 1)
    window = [window] if isinstance(window, int) else list(window)
    output = tensors_in(result)[0]
    return int(output.numel() * (window[0] ** 2 if len(window) == 1 and output.dim() > 2 else prod(window)))


def _sampled(name: str) -> Formula:
    return lambda args, kwargs, result: tensors_in(result)[0].numel() * _SAMPLES[name]


def _recurrent(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Every matrix of a layer is multiplied with every step of every sequence."""
    data, weights = args[0], args[2] if isinstance(args[2], list | tuple) else args[3]
    steps = data.numel() // data.shape[-1]
    return sum(2 * steps * weight.numel() for weight in tensors_in(weights) if weight.dim() == 2)


def _recurrent_layer(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    return _recurrent((args[0], None, args[1:3]), kwargs, result)


def _cell(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    data, _hidden, *weights = args
    rows = data.numel() // data.shape[-1]
    return sum(2 * rows * weight.numel() for weight in tensors_in(weights) if weight.dim() == 2)


def _distances(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """A difference, a power and a sum for each element of each pair."""
    return int(3 * result.numel() * args[0].shape[-1])


def _trilinear(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    shapes = []
    for tensor, expand in zip(args[:3], args[3:6], strict=True):
        shape = list(tensor.shape)
        for dim in sorted(expand):
            shape.insert(dim, 1)
        shapes.append(shape)
    return 3 * prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


_POOLS = frozenset("max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d".split())
_REGISTERED: dict[Any, Any] = {
    **flop_registry,
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[_aten._scaled_dot_product_flash_attention],
}
_PRODUCTS: dict[str, Formula] = {
    "mv": lambda args, kwargs, result: 2 * args[0].numel(),
    "addmv": lambda args, kwargs, result: 2 * args[1].numel(),
    "dot": lambda args, kwargs, result: 2 * args[0].numel(),
    "vdot": lambda args, kwargs, result: 2 * args[0].numel(),
    "addr": lambda args, kwargs, result: 2 * result.numel(),
    "ger": lambda args, kwargs, result: result.numel(),
    "addbmm": lambda args, kwargs, result: 2 * args[1].numel() * args[2].shape[-1],
    "baddbmm": lambda args, kwargs, result: 2 * args[1].numel() * args[2].shape[-1],
    "addmm": lambda args, kwargs, result: 2 * args[1].numel() * args[2].shape[-1],
    "_addmm_activation": lambda args, kwargs, result: 2 * args[1].numel() * args[2].shape[-1],
    "_int_mm": lambda args, kwargs, result: 2 * args[0].numel() * args[1].shape[-1],
    "linear": lambda args, kwargs, result: 2 * result.numel() * args[0].shape[-1],
    **dict.fromkeys(("gru", "lstm", "rnn_tanh", "rnn_relu"), _recurrent),
    "mkldnn_rnn_layer": _recurrent_layer,
    **dict.fromkeys(("gru_cell", "lstm_cell"), _cell),
}
_OTHERS: dict[str, Formula] = {
    # The tensor that they are called on lends type and device alone.
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), lambda args, kwargs, result: result.numel()),
    "_cdist_forward": _distances,
    "_euclidean_dist": _distances,
    "_pdist_forward": _distances,
    "_trilinear": _trilinear,
    **dict.fromkeys(BAGS, lambda args, kwargs, result: 2 * args[1].numel() * args[0].shape[-1]),
}
