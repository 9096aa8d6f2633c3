# SPDX-License-Identifier: Apache-2.0
"""Which price an op has. Ops without an entry are one pass with index arithmetic, if their operations are known."""

from __future__ import annotations

from collections.abc import Callable

from verl_kernel.env.devices.op_prices import (
    convolutions,
    gradients,
    indexed,
    moves,
    norms,
    products,
    recurrent,
    reductions,
    scans,
    sorts,
    windows,
)
from verl_kernel.env.devices.op_prices.call import Call
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.trace import Step

Price = Callable[[Call], list[Step]]


def _named(price: Price, names: str) -> dict[str, Price]:
    return dict.fromkeys(names.split(), price)


PRICES: dict[str, Price] = {
    **_named(
        moves.elementwise,
        "_prelu_kernel prelu log_sigmoid_forward gelu mish hardswish hardsigmoid hardtanh softplus leaky_relu elu celu "
        "selu threshold rrelu_with_noise lerp addcmul addcdiv masked_fill fill zero zeros zeros_like ones ones_like "
        "full full_like new_zeros new_ones new_full uniform normal bernoulli random exponential rand rand_like randn "
        "randn_like randint randint_like native_dropout native_dropout_backward floor_divide arange",
    ),
    **_named(moves.joined, "cat stack"),
    **dict.fromkeys(indexed.BAGS, indexed.bagged),
    **_named(
        reductions.reduced,
        "sum nansum mean prod amax amin aminmax max min all any argmax argmin norm linalg_vector_norm std std_mean var "
        "var_mean count_nonzero trace equal adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d "
        "_adaptive_avg_pool3d mv addmv dot vdot",
    ),
    **_named(scans.scanned, "cumsum cumprod logcumsumexp"),
    **_named(scans.scanned_rows, "cummax cummin"),
    **_named(reductions.softmax, "_softmax _log_softmax _safe_softmax softmax log_softmax"),
    **_named(reductions.logsumexp, "logsumexp"),
    **_named(sorts.sorted_rows, "sort argsort msort mode _unique2"),
    **_named(sorts.selected, "topk kthvalue median nanmedian"),
    **_named(products.distances, "_cdist_forward _pdist_forward _euclidean_dist"),
    **_named(reductions.loss, "mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss dist"),
    **_named(reductions.loss_of_logits, "binary_cross_entropy_with_logits"),
    **_named(reductions.nll_loss, "nll_loss_forward nll_loss2d_forward"),
    **_named(norms.layer_norm, "native_layer_norm rms_norm _fused_rms_norm"),
    **_named(norms.renormed, "renorm"),
    **_named(
        norms.batch_norm,
        "native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm _batch_norm_no_update "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training",
    ),
    **_named(norms.group_norm, "native_group_norm"),
    **_named(gradients.softmax_gradient, "_softmax_backward_data _log_softmax_backward_data"),
    **_named(gradients.layer_norm_gradient, "native_layer_norm_backward"),
    **_named(
        gradients.norm_gradient, "native_batch_norm_backward cudnn_batch_norm_backward native_group_norm_backward"
    ),
    **_named(gradients.embedding_gradient, "embedding_dense_backward"),
    **_named(windows.pooled, "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d"),
    **_named(products.product, "mm bmm addmm addbmm baddbmm _addmm_activation _int_mm linear"),
    **_named(convolutions.convolved, "convolution _convolution"),
    **_named(recurrent.layer, "gru lstm rnn_tanh rnn_relu"),
    **_named(recurrent.cell, "gru_cell lstm_cell"),
}
"""By the name of the op, without namespace and the marks of in-place and list variants."""
_HOST: dict[Price, str] = {
    **dict.fromkeys((convolutions.convolved, norms.batch_norm, recurrent.layer), "convolution_host_us"),
    **dict.fromkeys((norms.layer_norm, norms.group_norm, recurrent.cell), "product_host_us"),
    **dict.fromkeys((products.product, products.attention), "product_host_us"),
}


def price_of(name: str, is_pointwise: bool) -> tuple[Price, int]:
    """How an op is priced whose operations are known, and the microseconds that the host needs for it.

    Args:
        name: its name without namespace and marks (`op_flops.plain_name`).
        is_pointwise: whether torch says that it works element by element.
    """
    price = PRICES.get(name) or (moves.elementwise if is_pointwise else moves.copied)
    if name.startswith("_scaled_dot_product"):
        price = products.attention
    return price, int(constant(_HOST.get(price, "op_host_us")))
