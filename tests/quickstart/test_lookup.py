# SPDX-License-Identifier: Apache-2.0
from math import log
from random import Random

import pytest
import torch
from transformers import Qwen3ForCausalLM

from verl_kernel.quickstart.options import WarmStart
from verl_kernel.quickstart.warm_start import build_model
from verl_kernel.world.tokenizer import train_tokenizer

SEEN, REPEATED = 40, 10


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a text"], 640)


def surprise(model, seed):
    """Return the mean negative log-probability, in nats, of tokens that repeat some of those before them."""
    rng = Random(seed)
    tokens = rng.sample(range(len(model.model.embed_tokens.weight)), SEEN)
    start = rng.randrange(SEEN - REPEATED)
    ids = torch.tensor([tokens + tokens[start : start + REPEATED]])
    with torch.no_grad():
        log_probs = model(input_ids=ids).logits[0].log_softmax(-1)
    return -log_probs[SEEN:-1].gather(1, ids[0, SEEN + 1 :, None]).mean().item()


@pytest.mark.parametrize(
    "sizes", [{}, {"layers": 2, "width": 64, "heads": 2}, {"width": 192, "heads": 6}, {"kv_heads": 4}]
)
def test_an_untrained_model_continues_what_it_has_seen(tokenizer, sizes):
    model = build_model(WarmStart(**sizes), tokenizer, 0)
    assert sum(surprise(model, seed) for seed in range(8)) / 8 < log(len(tokenizer)) - 0.7


def test_random_weights_do_not_continue_it(tokenizer):
    model = Qwen3ForCausalLM(build_model(WarmStart(), tokenizer, 0).config)
    assert sum(surprise(model, seed) for seed in range(8)) / 8 > log(len(tokenizer)) - 0.7


def test_all_weights_of_the_smallest_model_are_finite(tokenizer):
    model = build_model(WarmStart(layers=2, width=16, heads=2, head_dim=16), tokenizer, 0)
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_two_seeds_give_two_models(tokenizer):
    models = [build_model(WarmStart(layers=2), tokenizer, seed) for seed in (0, 1)]
    first, second = (model.model.layers[1].self_attn.q_proj.weight for model in models)
    assert not torch.equal(first, second)
