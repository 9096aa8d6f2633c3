# SPDX-License-Identifier: Apache-2.0
"""Three steps of a small language model by verl's actor loss, with every loss of ours."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from transformers import LlamaConfig, LlamaForCausalLM
from verl.utils import tensordict_utils as tu
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.utils.losses import ppo_loss

from tests.loss.cases import OURS, actor
from tests.loss.test_denominator import MASKS, PROMPT, nested

WORDS = 16


def language_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **sizes))


def log_probs(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """(T,) to (T,): the log-probability of the next token, 0 at the end."""
    scores = model(tokens[None]).logits[0].log_softmax(-1)
    return torch.nn.functional.pad(scores[:-1].gather(1, tokens[1:, None])[:, 0], (0, 1))


def batch_of(model: LlamaForCausalLM) -> TensorDict:
    generator = torch.Generator().manual_seed(1)
    texts = [torch.randint(WORDS, (PROMPT + len(mask),), generator=generator) for mask in MASKS]
    with torch.no_grad():
        old = [log_probs(model, text)[PROMPT - 1 : -1] for text in texts]
    data = TensorDict(
        {
            "input_ids": nested(texts),
            "prompts": nested([text[:PROMPT] for text in texts]),
            "responses": nested([text[PROMPT:] for text in texts]),
            "response_mask": nested([torch.tensor(mask) for mask in MASKS]),
            "old_log_probs": nested(old),
            "advantages": nested([torch.randn(len(mask), generator=generator) for mask in MASKS]),
        },
        batch_size=len(MASKS),
    )
    cut = {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 4, "dp_size": 1}
    tu.assign_non_tensor(data, global_batch_size=len(MASKS), batch_num_tokens=sum(map(sum, MASKS)), **cut)
    return data


@pytest.mark.parametrize("mode", OURS)
def test_three_steps_make_good_tokens_likelier_than_bad_ones(mode: str) -> None:
    model = language_model()
    data, config = batch_of(model), actor(mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(3):
        optimizer.zero_grad()
        for micro in prepare_micro_batches(data)[0]:
            scores = nested([log_probs(model, text) for text in micro["input_ids"].unbind()])
            loss, metrics = ppo_loss(config, {"log_probs": scores}, micro)
            assert torch.isfinite(loss)
            assert all(torch.isfinite(torch.tensor(m.values)).all() for m in metrics.values())
            loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        assert torch.isfinite(norm)
        assert norm > 0
        optimizer.step()
    assert gain(model, data) > 0


def gain(model: LlamaForCausalLM, data: TensorDict) -> float:
    """Sum over tokens of advantage times what log pi has gained."""
    total = 0.0
    for row in range(len(MASKS)):
        mask = data["response_mask"][row]
        with torch.no_grad():
            new = log_probs(model, data["input_ids"][row])[PROMPT - 1 : -1]
        total += (mask * data["advantages"][row] * (new - data["old_log_probs"][row])).sum().item()
    return total
