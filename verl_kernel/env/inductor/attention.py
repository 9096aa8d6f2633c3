# SPDX-License-Identifier: Apache-2.0
"""Which kernels a GPU has for attention: a torch without CUDA would take it apart into products and a softmax."""

from __future__ import annotations

from typing import Any

import torch

_ALIGNED_BYTES, _WIDEST = 16, 256
"""Sizes of heads are multiples of so many bytes, and have at most so many elements, in kernels that keep the scores."""
_HALF = (torch.float16, torch.bfloat16)


def use_kernels() -> None:
    """Let torch's compiler see attention as one of the ops that a GPU has for it (once per process)."""
    op = torch.ops.aten.scaled_dot_product_attention.default
    op.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)(attention)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    *causal: bool,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute attention by the op that torch chooses on an H100; the arguments are those of torch's function."""
    # torch passes all that its schema has before `scale` by position, and leaves out defaults at the end.
    is_causal = any(causal)
    aten, size = torch.ops.aten, query.shape[-1]
    is_fit = query.dim() == 4 and not enable_gqa and size * query.element_size() % _ALIGNED_BYTES == 0
    if not is_fit or dropout_p or query.dtype not in (*_HALF, torch.float32):
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]
    if attn_mask is None and query.dtype in _HALF and size <= _WIDEST:
        return aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal, False, scale=scale)[0]
    bias = None if attn_mask is None else _bias(attn_mask, query, key)
    return aten._scaled_dot_product_efficient_attention(query, key, value, bias, False, 0.0, is_causal, scale=scale)[0]


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return a mask as numbers that are added to the scores."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask.logical_not(), float("-inf"))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
