# SPDX-License-Identifier: Apache-2.0
"""Initial weights with which a small model can look up what followed an earlier occurrence of a token.

Copying from the prompt takes two layers that fit each other (induction heads, arXiv 2209.11895). Training from random
weights finds them late: with a million parameters, after millions of tokens. Weights that start near what attention is
known to learn shorten this (mimetic initialisation, arXiv 2305.09828):

- an embedding fills the first half of a hidden state; the second half is free, but for a constant last coordinate;
- head h of the first layer attends to the token h + 1 places before, and the first two heads write a projection of its
  embedding into a quarter of the hidden state each;
- in the second layer, the first head of each key copies half of an embedding: with an even key from places where the
  previous token is the current one, with an odd key from places where the token two places before is the one before the
  current one.

No weight is fixed, and none depends on a task.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

ROPE_THETA = 1e8
"""Base of the rotary angles: most pairs of a head hardly turn within a conversation, so they can compare contents."""
_SLOW = 3e-3
"""Largest angle between neighbours, in radians, of a pair that compares contents."""
_FAST = 5
"""Number of pairs of the largest rotary angles, which encode positions."""
_SHARP = 2.0
"""Weights of the norms of queries and keys in both layers; a head of 32 reaches logits of 22 with them."""
_FAINT = 0.02
"""Factor on the random weights of queries and keys in both layers."""
_QUIET = 0.1
"""Factor on the outputs of everything else."""


@torch.no_grad()
def start_with_lookup(model: Qwen3ForCausalLM) -> None:
    """Set the first weights of a model with at least two layers and two heads."""
    width, size = model.config.hidden_size, model.config.head_dim
    half = width // 2
    embeddings = model.model.embed_tokens.weight
    # Half of the coordinates then have the norm that all of them had.
    embeddings[:, :half] *= 2**0.5
    embeddings[:, half:] = 0
    embeddings[:, -1] = 3 * width**-0.5
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight *= _QUIET
        layer.mlp.down_proj.weight *= _QUIET
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    slow = _slow_rows(size)[: width // 4 - 1]
    projection = torch.linalg.qr(torch.randn(half, half))[0][: len(slow)]
    _look_back(first, projection, size)
    _copy_matches(second, projection, slow, size)


def _look_back(attention: Qwen3Attention, projection: Tensor, size: int) -> None:
    """Let head h attend to the token h + 1 places before, and two heads write (K, W / 2) projections of embeddings."""
    queries, keys, values, outputs = _heads(attention, size)
    half = projection.shape[1]
    fast, angles = torch.arange(_FAST), _angles(size)[:_FAST]
    # Before the rotation all keys are equal, by the constant coordinate; a query that is turned back by h + 1 places
    # fits the key at that distance best.
    keys[:, fast, -1], keys[:, size // 2 + fast, -1] = 1, 0
    for head, query in enumerate(queries):
        query[fast, -1], query[size // 2 + fast, -1] = torch.cos((head + 1) * angles), -torch.sin((head + 1) * angles)
    shared = len(queries) // len(keys)
    for head, coordinates in enumerate(_free_coordinates(projection)):
        values[head // shared] = 0
        values[head // shared, : len(projection), :half] = projection
        outputs[:, head] = 0
        outputs[coordinates, head, : len(projection)] = torch.eye(len(projection))


def _copy_matches(attention: Qwen3Attention, projection: Tensor, slow: Tensor, size: int) -> None:
    """Let a head of each key attend to the places that follow a match, and copy part of the embedding there."""
    queries, keys, values, outputs = _heads(attention, size)
    half, dims = projection.shape[1], torch.arange(size)
    before, before_that = _free_coordinates(projection)
    rows, same = slow[:, None], torch.eye(len(slow))
    values.zero_()
    outputs.zero_()
    for key, head in enumerate(range(0, len(queries), len(queries) // len(keys))):
        if key % 2:
            queries[head, rows, before] = same
            keys[key, rows, before_that] = same
        else:
            queries[head, slow, :half] = projection
            keys[key, rows, before] = same
        copied = (key * size + dims) % half
        values[key, dims, copied] = outputs[copied, head, dims] = 1


def _heads(attention: Qwen3Attention, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return weights by head, sharp and faint: queries (H, D, W), keys and values (K, D, W), outputs (W, H, D)."""
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight.fill_(_SHARP)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight *= _FAINT
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    queries, keys, values = (projection.weight.unflatten(0, (-1, size)) for projection in inputs)
    return queries, keys, values, attention.o_proj.weight.unflatten(1, (-1, size))


def _free_coordinates(projection: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coordinates of a hidden state that hold what stands one place before, and two."""
    count, half = projection.shape
    return half + torch.arange(count), half + half // 2 + torch.arange(count)


def _angles(size: int) -> Tensor:
    """Return the (D / 2,) angles between neighbours by which the pairs of a head turn."""
    return ROPE_THETA ** (-torch.arange(size // 2) / (size // 2))


def _slow_rows(size: int) -> Tensor:
    """Return the rows of a head that compare contents."""
    pairs = (_angles(size) < _SLOW).nonzero()[:, 0]
    return torch.cat([pairs, size // 2 + pairs])
