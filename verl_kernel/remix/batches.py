# SPDX-License-Identifier: Apache-2.0
"""Conversations as rows and batches for the SFT stage, and their loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class TokenRow:
    """One conversation: `tokens` (T,) long, `learned` (T,) bool on the assistant's tokens, the number of its key."""

    tokens: torch.Tensor
    learned: torch.Tensor
    key: int = 0


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right: `tokens`, `attention`, `learned`, `prompt` are (B, T), `keys` is (B, D) one-hot."""

    tokens: torch.Tensor
    attention: torch.Tensor
    learned: torch.Tensor
    prompt: torch.Tensor
    keys: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


class Talks:
    """The conversations of a parquet file, read and tokenised by verl's own SFT dataset."""

    def __init__(self, path: Path, tokenizer: Any, max_length: int, key_column: str | None = None) -> None:
        from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

        options = {"pad_mode": "no_padding", "truncation": "right", "max_length": max_length}
        self._rows = MultiTurnSFTDataset([str(path)], tokenizer, options)
        values = ["all"] * len(self._rows) if key_column is None else [*map(str, self._rows.dataframe[key_column])]
        self.keys = sorted(set(values))
        """The distinct keys; a row's key is an index into them."""
        self._numbers = [self.keys.index(value) for value in values]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> TokenRow:
        row = self._rows[index]
        return TokenRow(row["input_ids"], row["loss_mask"].bool(), self._numbers[index])


def collate(rows: Sequence[TokenRow], keys: int, padding: int = 0) -> Batch:
    """Pad rows to one length; the prompt is everything before the assistant's first token.

    Args:
        rows: rows of the batch.
        keys: number of distinct keys.
        padding: the token to pad with.
    """
    tokens = pad_sequence([row.tokens for row in rows], batch_first=True, padding_value=padding)
    learned = pad_sequence([row.learned for row in rows], batch_first=True)
    lengths = torch.tensor([[len(row.tokens)] for row in rows])
    attention = torch.arange(tokens.shape[1]) < lengths
    prompt = attention & (learned.cumsum(1) == 0)
    return Batch(tokens, attention, learned, prompt, one_hot(torch.tensor([row.key for row in rows]), keys).float())


def row_losses(model: nn.Module, batch: Batch, tokens: int) -> torch.Tensor:
    """Return each row's negative log-likelihood of its learned tokens, (B,), in nats, divided by `tokens`.

    If `tokens` counts the learned tokens of all rows of an optimizer step, the sum over its micro-batches is the mean
    per token, as in verl's SFT trainer.
    """
    logits = model(input_ids=batch.tokens, attention_mask=batch.attention.long(), use_cache=False).logits
    targets = batch.tokens[:, 1:].masked_fill(~batch.learned[:, 1:], -100)
    losses = cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten(), reduction="none")
    return losses.view(targets.shape).sum(1) / tokens
