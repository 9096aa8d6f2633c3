# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing recomputes layers during the backward pass; it may change no choice and no gradient."""

import pytest
import torch

from tests.remix.modules import fill, language_model, options
from verl_kernel.remix.batches import Row, collate, row_losses
from verl_kernel.remix.layers import apply_remix
from verl_kernel.remix.loss import remix_loss


def gradients(router: str, checkpointing: bool) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of one loss, and how often a target layer was called for each of its forward passes."""
    model = language_model().double().train()
    routing = apply_remix(model, options(router=router), key_width=2)
    fill(routing)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    tokens = torch.arange(2, 14).view(2, 6)
    learned = torch.tensor([False, False, False, True, True, True])
    batch = collate([Row(row, learned, key) for key, row in enumerate(tokens)], 2)
    calls = []
    routing.layers["model.layers.0.mlp.up_proj"].register_forward_hook(lambda *_: calls.append(1))
    loss, _ = remix_loss(
        routing,
        lambda: row_losses(model, batch, 6),
        3,
        prompt=batch.prompt,
        keys=batch.keys,
        generator=torch.Generator().manual_seed(4),
    )
    loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}, len(calls)


@pytest.mark.parametrize("router", ["layer", "prompt"])
def test_checkpointing_changes_no_gradient(router: str):
    kept, calls = gradients(router, checkpointing=False)
    recomputed, more_calls = gradients(router, checkpointing=True)
    assert (calls, more_calls) == (3, 6)
    assert kept.keys() == recomputed.keys()
    assert len(kept) == 2 * 3 * 3
    for name, grad in kept.items():
        assert grad.abs().max() > 0, name
        assert torch.equal(recomputed[name], grad), name
