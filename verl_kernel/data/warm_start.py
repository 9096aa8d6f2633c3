# SPDX-License-Identifier: Apache-2.0
"""Supervised warm start of a small Qwen3 on the corpus: next-token loss on assistant tokens only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from verl_kernel.data.corpus import Message
from verl_kernel.data.tokenizer import encode_conversation

Example = tuple[list[int], list[bool]]
_IGNORED = -100


@dataclass(frozen=True)
class WarmStart:
    """Size of the model and of its training; steps follow from the corpus, not from the clock."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    head_dim: int = 32
    batch_size: int = 6
    learning_rate: float = 3e-3
    warm_up: float = 0.1
    """Share of the steps."""
    weight_decay: float = 0.01
    threads: int = 2
    bfloat16: bool = False
    """Autocast; pays off only on processors with bfloat16 arithmetic."""


def build_model(options: WarmStart, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build a float32 Qwen3 with tied embeddings and random weights drawn from `seed`."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.heads,
        head_dim=options.head_dim,
        initializer_range=options.width**-0.5,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def train(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    corpus: list[list[Message]],
    options: WarmStart,
    seed: int,
    on_step: Callable[[int, int, float], None],
) -> list[float]:
    """Train for one pass over the corpus.

    Args:
        model: trained in place.
        tokenizer: its pad token fills short rows (on the right, behind a causal mask).
        corpus: conversations.
        options: batch size, learning rate and schedule.
        seed: order of the batches.
        on_step: called after each step with its number, the number of steps and its loss.

    Returns:
        Loss of every step, in nats per assistant token.
    """
    torch.set_num_threads(options.threads)
    examples = [encode_conversation(tokenizer, talk) for talk in corpus]
    batches = _batches(examples, options.batch_size, Random(seed))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=options.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _ramp(len(batches), options.warm_up))
    losses = []
    model.train()
    for batch in batches:
        loss = _loss(model, *_padded(batch, tokenizer.pad_token_id), options.bfloat16)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        on_step(len(losses), len(batches), losses[-1])
    model.eval()
    return losses


def _ramp(steps: int, warm_up: float) -> Callable[[int], float]:
    rise = max(math.ceil(steps * warm_up), 1)
    return lambda step: min((step + 1) / rise, max(steps - step, 1) / max(steps - rise, 1))


def _batches(examples: list[Example], size: int, rng: Random) -> list[list[Example]]:
    """Return batches of similar length in random order."""
    rng.shuffle(examples)
    examples.sort(key=lambda example: len(example[0]) // 32)
    batches = [examples[start : start + size] for start in range(0, len(examples), size)]
    rng.shuffle(batches)
    return batches


def _padded(batch: list[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(ids) for ids, _ in batch)
    ids_BT = torch.full((len(batch), longest), pad)
    labels_BT = torch.full((len(batch), longest), _IGNORED)
    for row, (ids, targets) in enumerate(batch):
        ids_BT[row, : len(ids)] = torch.tensor(ids)
        labels_BT[row, : len(ids)] = torch.tensor(ids).where(torch.tensor(targets), _IGNORED)
    return ids_BT, labels_BT


def _loss(model: Qwen3ForCausalLM, ids_BT: torch.Tensor, labels_BT: torch.Tensor, bfloat16: bool) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        hidden_BTD = model.model(ids_BT[:, :-1]).last_hidden_state
        wanted_BT = labels_BT[:, 1:] != _IGNORED
        logits_ND = model.lm_head(hidden_BTD[wanted_BT])
    return F.cross_entropy(logits_ND.float(), labels_BT[:, 1:][wanted_BT])
