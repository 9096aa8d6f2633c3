# SPDX-License-Identifier: Apache-2.0
"""Attention without a mask gives rows that are padded on the right what attention with a mask gives them."""

import importlib

import pytest
import torch
from transformers import AttentionMaskInterface, AutoModelForCausalLM, LlamaConfig

LENGTHS = (9, 33, 40)


@pytest.fixture
def models(monkeypatch):
    known = dict(AttentionMaskInterface._global_mapping)
    monkeypatch.setattr(AttentionMaskInterface, "_global_mapping", known)  # for this test alone
    attention = importlib.reload(importlib.import_module("verl_kernel.cpu.attention"))
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 50}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    masked = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    plain = AutoModelForCausalLM.from_config(config, attn_implementation=attention.NAME)
    plain.load_state_dict(masked.state_dict())
    return masked, plain


def padded_on_the_right():
    """Return ids, mask and positions as verl's engine makes them of rows without padding."""
    places = torch.arange(max(LENGTHS)).expand(len(LENGTHS), -1)
    mask = places < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(50, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    return {"input_ids": ids, "attention_mask": mask, "position_ids": places * mask}


def test_tokens_get_the_same_outputs(models):
    batch = padded_on_the_right()
    masked, plain = (model(**batch).logits[batch["attention_mask"]] for model in models)
    assert torch.allclose(masked, plain, atol=1e-5)


def test_weights_get_the_same_gradients(models):
    batch = padded_on_the_right()
    for model in models:
        model(**batch).logits[batch["attention_mask"]].logsumexp(-1).sum().backward()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-4)


def test_no_mask_reaches_torch(models, monkeypatch):
    asked = []
    original = torch.nn.functional.scaled_dot_product_attention

    def attend(*args, **kwargs):
        asked.append((kwargs["attn_mask"], kwargs["is_causal"]))
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    models[1](**padded_on_the_right())
    assert asked == [(None, True)] * 2
