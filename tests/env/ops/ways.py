# SPDX-License-Identifier: Apache-2.0
"""Ways that torch has for one mathematics, by families: each does at least the work of the plain one."""

from functools import partial

import torch
import torch.nn.functional as F

from verl_kernel.env.true_size.dataless import AddressSpace

SPACE = AddressSpace()
ATEN = torch.ops.aten
KNOWN_NORM = ATEN._native_batch_norm_legit_no_training


def t(*shape, dtype=torch.float32):
    """A tensor as a CPU dispatches it, without memory."""
    like = torch.empty(shape, dtype=dtype, device="meta")
    with torch.utils._python_dispatch._disable_current_modes():
        return SPACE.tensor(shape, like.stride(), dtype)


n = partial(t, dtype=torch.int64)
SUMS = {
    "plain": lambda r, c: t(r, c).sum(1),
    "mean": lambda r, c: t(r, c).mean(1),
    "nansum": lambda r, c: t(r, c).nansum(1),
    "einsum": lambda r, c: torch.einsum("ij->i", t(r, c)),
    "einsum with ones": lambda r, c: torch.einsum("ij,j->i", t(r, c), t(c)),
    "vector of ones": lambda r, c: t(r, c) @ t(c),
    "column of ones": lambda r, c: t(r, c) @ t(c, 1),
    "addmv": lambda r, c: torch.addmv(t(r), t(r, c), t(c)),
    "addmm": lambda r, c: torch.addmm(t(1), t(r, c), t(c, 1)),
    "linear": lambda r, c: F.linear(t(r, c), t(1, c), t(1)),
    "bmm": lambda r, c: torch.bmm(t(r, c)[:, None], t(c, 1).expand(r, c, 1)),
    "convolution": lambda r, c: F.conv1d(t(r, c)[:, :, None], t(1, c, 1)),
    "last of cumsum": lambda r, c: t(r, c).cumsum(1)[:, -1],
    "segment_reduce": lambda r, c: torch.segment_reduce(t(r * c), "sum", offsets=n(r + 1), unsafe=True),
    "scatter_add_": lambda r, c: t(r, 1).scatter_add_(1, n(1, 1).expand(r, c), t(r, c)),
    "scatter_reduce_": lambda r, c: t(r, 1).scatter_reduce_(1, n(1, 1).expand(r, c), t(r, c), "sum"),
    "index_add_": lambda r, c: t(r, 1).index_add_(1, n(c), t(r, c)),
    "index_reduce_": lambda r, c: t(r, 1).index_reduce_(1, n(c), t(r, c), "mean"),
    "index_put_": lambda r, c: t(r).index_put_((n(r, 1).expand(r, c),), t(r, c), accumulate=True),
    "put_": lambda r, c: t(r).put_(n(r, 1).expand(r, c), t(r, c), accumulate=True),
    "a bag for each row": lambda r, c: F.embedding_bag(n(r, c), t(1, 1), mode="sum", per_sample_weights=t(r, c)),
    "a bag of columns": lambda r, c: F.embedding_bag(n(1, c), t(r, c).t(), mode="sum"),
    "variance": lambda r, c: t(r, c).var(1),
    "norm": lambda r, c: torch.linalg.vector_norm(t(r, c), 1, 1),
    "trapezoid": lambda r, c: torch.trapezoid(t(r, c), dim=1),
    "avg_pool1d": lambda r, c: F.avg_pool1d(t(1, r, c), c),
    "adaptive_avg_pool1d": lambda r, c: F.adaptive_avg_pool1d(t(1, r, c), 1),
    "adaptive_avg_pool2d": lambda r, c: F.adaptive_avg_pool2d(t(1, 1, r, c), (r, 1)),
    "area": lambda r, c: F.interpolate(t(1, r, c), size=1, mode="area"),
    "distance": lambda r, c: torch.cdist(t(r, c), t(1, c), p=1.0),
    "cosine": lambda r, c: F.cosine_similarity(t(r, c), t(1, c)),
    "median": lambda r, c: t(r, c).median(1),
}
PAIRS = {
    "plain": lambda r, c: t(r, c) + t(r, c),
    "in place": lambda r, c: t(r, c).add_(t(r, c)),
    "out": lambda r, c: torch.add(t(r, c), t(r, c), out=t(r, c)),
    "by keyword": lambda r, c: ATEN.add_.Tensor(self=t(r, c), other=t(r, c)),
    "of a list": lambda r, c: torch._foreach_add([t(r, c)], [t(r, c)]),
    "of a list in place": lambda r, c: torch._foreach_mul_([t(r, c)], [t(r, c)]),
    "lerp": lambda r, c: torch.lerp(t(r, c), t(r, c), 0.5),
    "pow": lambda r, c: t(r, c) ** t(r, c),
    "atan2": lambda r, c: torch.atan2(t(r, c), t(r, c)),
    "stack and sum": lambda r, c: torch.stack([t(r, c), t(r, c)]).sum(0),
    "where": lambda r, c: torch.where(t(r, c, dtype=torch.bool), t(r, c), t(r, c)),
    "addcmul": lambda r, c: torch.addcmul(t(r, c), t(r, c), t(r, c)),
    "mse_loss": lambda r, c: F.mse_loss(t(r, c), t(r, c), reduction="none"),
    "binary_cross_entropy": lambda r, c: F.binary_cross_entropy(t(r, c), t(r, c), reduction="none"),
    "silu_backward": lambda r, c: ATEN.silu_backward(t(r, c), t(r, c)),
    "gelu_backward": lambda r, c: ATEN.gelu_backward(t(r, c), t(r, c)),
    "glu": lambda r, c: F.glu(t(2, r, c), 0),
    "index_add_": lambda r, c: t(r, c).index_add_(0, n(r), t(r, c)),
    "index_reduce_": lambda r, c: t(r, c).index_reduce_(0, n(r), t(r, c), "amax"),
    "scatter_add_": lambda r, c: t(r, c).scatter_add_(0, n(1, c).expand(r, c), t(r, c)),
    "index_add": lambda r, c: t(r, c).index_add(0, n(r), t(r, c)),
}
ACTIVATIONS = "relu gelu silu mish hardswish softplus elu selu leaky_relu logsigmoid rrelu hardtanh relu6 tanh sigmoid"
UNARY = {
    "plain": lambda r, c: t(r, c).exp(),
    **{name: lambda r, c, name=name: getattr(F, name)(t(r, c)) for name in ACTIVATIONS.split()},
    "prelu": lambda r, c: F.prelu(t(r, c), t(1)),
    "clamp_": lambda r, c: t(r, c).clamp_(0, 1),
    "of a list": lambda r, c: torch._foreach_exp([t(r, c)]),
    "batch norm that learns nothing": lambda r, c: F.batch_norm(t(r, c), t(c), t(c), t(c), t(c)),
    "native batch norm": lambda r, c: ATEN.native_batch_norm(t(r, c), t(c), t(c), t(c), t(c), False, 0.1, 1e-5),
    "and without weights": lambda r, c: KNOWN_NORM(t(r, c), None, None, t(c), t(c), 0, 0),
}  # fmt: skip
COPIES = {
    "plain": lambda r, c: t(r, c).clone(),
    "transposed": lambda r, c: t(c, r).t().contiguous(),
    "cat": lambda r, c: torch.cat([t(r // 2, c), t(r // 2, c)]),
    "stack": lambda r, c: torch.stack([t(r // 2, c), t(r // 2, c)]),
    "index_select": lambda r, c: t(r, c).index_select(0, n(r)),
    "index": lambda r, c: t(r, c)[n(r)],
    "gather": lambda r, c: t(r, c).gather(0, n(r, 1).expand(r, c)),
    "take": lambda r, c: t(r, c).take(n(r, 1).expand(r, c)),
    "embedding": lambda r, c: F.embedding(n(r), t(r, c)),
    "bags of one": lambda r, c: F.embedding_bag(n(r, 1), t(r, c), mode="sum"),
    "repeat_interleave": lambda r, c: t(r, c).repeat_interleave(1, 0),
    "roll": lambda r, c: t(r, c).roll(1, 1),
    "flip": lambda r, c: t(r, c).flip(1),
    "pad": lambda r, c: F.pad(t(r, c), (0, 4)),
    "unfold": lambda r, c: F.unfold(t(1, 1, r, c), (1, c), stride=(1, c)),
    "as_strided": lambda r, c: t(r, c).as_strided((r, c), (1, r)).clone(),
    "tril": lambda r, c: t(r, c).tril(),
    "copy_": lambda r, c: t(r, c).copy_(t(r, c)),
    "copies of a list": lambda r, c: torch._foreach_copy_([t(r, c)], [t(r, c)]),
    "index_copy_": lambda r, c: t(r, c).index_copy_(0, n(r), t(r, c)),
    "put_": lambda r, c: t(r, c).put_(n(r, 1).expand(r, c), t(r, c)),
    "nearest": lambda r, c: F.interpolate(t(1, 1, r, c), size=(r, c)),
    "bilinear": lambda r, c: F.interpolate(t(1, 1, r, c), size=(r, c), mode="bilinear"),
    "slice_copy": lambda r, c: ATEN.slice_copy(t(2 * r, c), 0, 0, r),
    "permute_copy": lambda r, c: torch.permute_copy(t(r, c), (1, 0)),
    "pixel_shuffle": lambda r, c: F.pixel_shuffle(t(1, 4, r // 2, c // 2), 2),
}
STORES = {
    "plain": lambda r, c: t(r, c).clone().copy_(t(r, c)),
    "index_copy": lambda r, c: t(r, c).index_copy(0, n(r), t(r, c)),
    "index_put": lambda r, c: t(r, c).index_put((n(r),), t(r, c)),
    "scatter": lambda r, c: t(r, c).scatter(0, n(r, 1).expand(r, c), t(r, c)),
    "slice_scatter": lambda r, c: torch.slice_scatter(t(r, c), t(r, c), 0, 0, r),
    "select_scatter": lambda r, c: torch.select_scatter(t(r, 1, c), t(r, c), 1, 0),
}
SOFTMAX = {
    "plain": lambda r, c: t(r, c).softmax(1),
    "log_softmax": lambda r, c: t(r, c).log_softmax(1),
    "safe": lambda r, c: ATEN._safe_softmax(t(r, c), 1),
    "by hand": lambda r, c: t(r, c).exp() / t(r, c).exp().sum(1, keepdim=True),
    "masked": lambda r, c: torch.masked.softmax(t(r, c), 1),
    "softmin": lambda r, c: F.softmin(t(r, c), 1),
    "normalize": lambda r, c: F.normalize(t(r, c).exp(), 1, 1),
    "logsumexp": lambda r, c: (t(r, c) - t(r, c).logsumexp(1, keepdim=True)).exp(),
    "weighed losses": lambda r, c: F.cross_entropy(t(r, c), t(r, c)),
}
LOSSES = {
    "plain": lambda r, c: F.mse_loss(t(r, c), t(r, c)),
    "by keyword": lambda r, c: ATEN.mse_loss(self=t(r, c), target=t(r, c), reduction=2),
    "by hand": lambda r, c: ((t(r, c) - t(r, c)) ** 2).mean(),
    "l1_loss": lambda r, c: F.l1_loss(t(r, c), t(r, c)),
    "huber_loss": lambda r, c: F.huber_loss(t(r, c), t(r, c)),
    "smooth_l1_loss": lambda r, c: F.smooth_l1_loss(t(r, c), t(r, c)),
    "kl_div": lambda r, c: F.kl_div(t(r, c), t(r, c), reduction="sum"),
    "dist": lambda r, c: torch.dist(t(r, c), t(r, c)),
    "norm of a difference": lambda r, c: (t(r, c) - t(r, c)).norm(),
    "cdist of one pair": lambda r, c: torch.cdist(t(1, r * c), t(1, r * c), p=1.0),
    "soft_margin_loss": lambda r, c: F.soft_margin_loss(t(r, c), t(r, c)),
    "with weights": lambda r, c: F.binary_cross_entropy(t(r, c), t(r, c), t(r, c)),
    "triplet": lambda r, c: F.triplet_margin_loss(t(r, c), t(r, c), t(r, c)),
}
LOGITS = {
    "plain": lambda r, c: (F.logsigmoid(t(r, c)), (1 - t(r, c)).mul_(t(r, c)).sub_(t(r, c)).mean()),
    "at once": lambda r, c: F.binary_cross_entropy_with_logits(t(r, c), t(r, c)),
    "with weights": lambda r, c: F.binary_cross_entropy_with_logits(t(r, c), t(r, c), t(r, c)),
    "weights of the true": lambda r, c: F.binary_cross_entropy_with_logits(t(r, c), t(r, c), pos_weight=t(c)),
}
SELECTIONS = {
    "plain": lambda r, c: t(r, c).kthvalue(3, 1),
    "topk": lambda r, c: t(r, c).topk(8, 1),
    "median": lambda r, c: t(r, c).median(1),
    "nanmedian": lambda r, c: t(r, c).nanmedian(1),
    "sort": lambda r, c: t(r, c).sort(1),
    "argsort": lambda r, c: t(r, c).argsort(1),
    "quantile": lambda r, c: t(r, c).quantile(0.5, 1),
    "median of all": lambda r, c: t(r, c).median(),
}
SCANS = {
    "plain": lambda r, c: t(r, c).cumsum(1),
    "in place": lambda r, c: t(r, c).cumsum_(1),
    "out": lambda r, c: torch.cumsum(t(r, c), 1, out=t(r, c)),
    "by keyword": lambda r, c: ATEN.cumsum(self=t(r, c), dim=1),
    "cumprod": lambda r, c: t(r, c).cumprod(1),
    "cummax": lambda r, c: t(r, c).cummax(1),
    "logcumsumexp": lambda r, c: t(r, c).logcumsumexp(1),
    "masked": lambda r, c: torch.masked.cumsum(t(r, c), 1),
    "another dimension": lambda r, c: t(r, c, 1).cumsum(1),
    "reversed": lambda r, c: t(r, c).flip(1).cumsum(1).flip(1),
    "cumulative_trapezoid": lambda r, c: torch.cumulative_trapezoid(t(r, c), dim=1),
}
FAMILIES = {
    "sums": SUMS, "pairs": PAIRS, "unary": UNARY, "copies": COPIES, "stores": STORES, "softmax": SOFTMAX,
    "losses": LOSSES, "logits": LOGITS, "selections": SELECTIONS, "scans": SCANS,
}  # fmt: skip
